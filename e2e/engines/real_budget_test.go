//go:build engines

package engines

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Reasoning beyond its budget is ended, and the script's answer follows, also under a
// grammar that the engine has yet to compile.
func realBudget(t *testing.T, d *stack.Dataplane, model string, e realEngine) {
	kinds := map[string]func() (answer, fields string){
		"text":    func() (answer, fields string) { return "It is 42.", "" },
		"grammar": freshFormat,
	}
	if e.textless {
		delete(kinds, "grammar")
	}

	think := "THINK" + strings.Repeat(" word", 200) + "\nSAY "
	const budget = `,"thinking_token_budget":30`
	for name, next := range kinds {
		for range 3 {
			answer, fields := next()
			_, reply := d.Chat(t, model, think+answer, budget+fields)
			choice, reasoning := gjson.Get(reply, "choices.0"), gjson.Get(reply, "usage.completion_tokens_details.reasoning_tokens")
			if choice.Get("message.content").Str != answer || choice.Get("finish_reason").Str != "stop" || reasoning.Int() != 30 {
				t.Errorf("%s: %s", name, reply)
			}

			answer, fields = next()
			_, events := d.Chat(t, model, think+answer, budget+`,"stream":true`+fields)
			if got := streamedContent(nil, events); got != answer {
				t.Errorf("%s, streamed: %q: %s", name, got, events[max(0, len(events)-400):])
			}
		}
	}
}

// freshFormat returns an answer and the format that it has, which no request had before.
func freshFormat() (answer, fields string) {
	key := strings.ToLower(rand.Text()[:8])
	schema := fmt.Sprintf(`{"type":"object","properties":{%q:{"type":"boolean"}},"required":[%q],"additionalProperties":false}`, key, key)
	return fmt.Sprintf(`{%q:true}`, key),
		`,"response_format":{"type":"json_schema","json_schema":{"name":"r","strict":true,"schema":` + schema + `}}`
}

// Weights at random that have begun to reason go on without an end. With a budget every
// one of their replies has an answer.
func endlessReasoning(t *testing.T, d *stack.Dataplane, model string) {
	const requests = 10
	answers := map[bool]int{}
	for _, budget := range []int{-1, 15} {
		for i := range requests {
			body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Number %d"},{"role":"assistant","reasoning":"I begin"}],"continue_final_message":true,"add_generation_prompt":false,
				"max_completion_tokens":50,"seed":%d,"thinking_token_budget":%d,"logit_bias":{"200002":-100,"199999":-100,"200012":-100,"200007":-100,"200005":-100,"200006":-100}}`, model, i, i, budget)
			status, reply := d.Post(t, "/v1/chat/completions", body)
			if status != http.StatusOK {
				t.Fatalf("status %d: %s", status, reply.Raw)
			}

			if reply.Get("choices.0.message.content").Str != "" {
				answers[budget > 0]++
			}

			if n := reply.Get("usage.completion_tokens_details.reasoning_tokens").Int(); budget > 0 && (n < int64(budget) || n > int64(budget)+3) {
				t.Errorf("%d tokens of reasoning: %s", n, reply.Raw)
			}
		}
	}

	t.Logf("%d of %d replies have an answer with a budget, %d without", answers[true], requests, answers[false])
	if answers[true] != requests || answers[false] == requests {
		t.Errorf("answers: %v", answers)
	}
}
