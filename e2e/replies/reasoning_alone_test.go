package replies

import (
	"fmt"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// TestReasoningAlone shows what clients get if the model ends after its reasoning, or is cut in it: the table in
// docs/output.md, "Replies without an answer".
func TestReasoningAlone(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for path, api := range map[string]struct{ body, limit, answer, reason, ended, cut string }{
		"/v1/chat/completions": {
			`{"model":"gpt-oss-20b","messages":[{"role":"user","content":%q}]%s}`, `,"max_tokens":8`,
			`choices.0.message.content`, "choices.0.finish_reason", `"" "stop"`, `"" "length"`,
		},
		"/v1/responses": {
			`{"model":"gpt-oss-20b","input":%q%s}`, `,"max_output_tokens":8`,
			`output.#(type=="message")`, "status", ` "completed"`, ` "incomplete"`,
		},
		"/v1/messages": {
			`{"model":"gpt-oss-20b","messages":[{"role":"user","content":%q}],"max_tokens":%s}`, "8",
			"content", "stop_reason", `[{"type":"text","text":""}] "end_turn"`, `[{"type":"text","text":""}] "max_tokens"`,
		},
	} {
		for _, c := range []struct{ output, limit, want string }{
			{"<channel>analysis<message>Let me see what there is.<return>", "", api.ended},
			{"<channel>analysis<message>Let me see what there is.<end>", "", api.ended},
			{"<channel>analysis<message>Let me see what there is.<end>", api.limit, api.cut},
		} {
			limit := c.limit
			if limit == "" && path == "/v1/messages" {
				limit = "100"
			}
			status, reply := d.Post(t, path, fmt.Sprintf(api.body, "@@"+c.output+"@@", limit))
			if got := reply.Get(api.answer).Raw + " " + reply.Get(api.reason).Raw; status != 200 || got != c.want {
				t.Errorf("%s, %s%s: %d, %s, want %s", path, c.output, limit, status, got, c.want)
			}
			if reasoningTokens(reply) == 0 {
				t.Errorf("%s: the usage has no reasoning: %s", path, reply.Get("usage").Raw)
			}
		}
	}
}

func reasoningTokens(reply gjson.Result) int64 {
	for _, member := range []string{
		"completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens", "output_tokens_details.thinking_tokens",
	} {
		if n := reply.Get("usage." + member).Int(); n > 0 {
			return n
		}
	}
	return 0
}
