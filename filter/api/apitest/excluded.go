package apitest

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// Excluded shows that a client gets nothing of a call of a tool that the request's choice of tools
// excludes, in a stream as little as in an object: of an engine that does not take the choice, or
// does not keep it. requests are the members of requests that exclude get_weather.
func (a *API) Excluded(t *testing.T, requests map[string]string) {
	const reasoning = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant"

	for name, members := range requests {
		for header, output := range map[string]string{
			"a call":                 "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Paris\"}<|call|>",
			"another spelling":       "<|channel|>commentary to=get-weather json<|message|>{\"city\":\"Paris\"}<|call|>",
			"several at once":        "<|channel|>commentary to=multi_tool_use.parallel json<|message|>{\"tool_uses\":[{\"recipient_name\":\"get_weather\",\"parameters\":{\"city\":\"Paris\"}},{\"recipient_name\":\"g\",\"parameters\":{\"other_city\":1}}]}<|call|>",
			"a call that has no end": "<|channel|>commentary to=functions.get_weather json<|message|>{\"city\":\"Paris",
		} {
			for _, finish := range []engine.Finish{engine.FinishStop, engine.FinishLength} {
				for _, size := range []int{1, 3, 1 << 20} {
					a.excluded(t, name+", "+header, members, Output{Tokens: Tokens(reasoning + output), Finish: finish}.Chunks(Size(size)))
				}
			}
		}
	}
}

func (a *API) excluded(t *testing.T, name, members string, chunks []engine.Chunk) {
	t.Helper()
	body := a.Ask(members)
	for kind, body := range map[string]string{"object": With(t, body, a.Whole...), "stream": With(t, body, a.Streamed...)} {
		r := a.MustDecode(t, body).NewReply(api.SingleCall)

		var out []byte
		for i := range chunks {
			next, err := r.Push(out, &chunks[i])
			if out = next; err == nil {
				continue
			}
			if err.Code != "constraint_not_kept" {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			out = r.Fail(out, err)
			break
		}

		out, err := End(t, r, out)
		if kind == "object" && (err == nil || err.Code != "constraint_not_kept") {
			t.Errorf("%s: the object is %s, %v", name, out, err)
		}
		// Responses names the tools of the request in each object.
		for _, part := range []string{`"function_call"`, `"tool_use"`, `"tool_calls":[`, "Paris", "other_city"} {
			if strings.Contains(string(out), part) {
				t.Errorf("%s, %s: the client gets\n%s", name, kind, out)
			}
		}
	}
}
