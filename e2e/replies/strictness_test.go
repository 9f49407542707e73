package replies

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// startStrictness starts a filter with a tenant of the name of each word of tool_strictness.
func startStrictness(t *testing.T) *stack.Dataplane {
	t.Helper()
	return stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.TenantHeader = "x-tenant"
		for _, word := range []string{turn.StrictnessNames, turn.StrictnessArguments, turn.StrictnessAll} {
			c.ToolStrictnessFor = append(c.ToolStrictnessFor, config.ToolStrictness{Tenant: word, Strictness: word})
		}
	}})
}

var strictnesses = []string{turn.StrictnessNone, turn.StrictnessNames, turn.StrictnessArguments, turn.StrictnessAll}

// strictTools are two functions in each API's form: one that says nothing of strict, and one that says it is not.
var strictTools = map[string]string{
	"/v1/chat/completions": `[{"type":"function","function":{"name":"f","parameters":%[1]s}},{"type":"function","function":{"name":"loose","strict":false,"parameters":%[1]s}}]`,
	"/v1/responses":        `[{"type":"function","name":"f","parameters":%[1]s},{"type":"function","name":"loose","strict":false,"parameters":%[1]s}]`,
	"/v1/messages":         `[{"name":"f","input_schema":%[1]s},{"name":"loose","strict":false,"input_schema":%[1]s}]`,
}

// calledOf returns the call of a reply: its name and its arguments.
func calledOf(path string, reply gjson.Result) string {
	switch path {
	case "/v1/chat/completions":
		call := reply.Get("choices.0.message.tool_calls.0.function")
		return call.Get("name").Str + " " + call.Get("arguments").Str
	case "/v1/responses":
		call := reply.Get(`output.#(type=="function_call")`)
		return call.Get("name").Str + " " + call.Get("arguments").Str
	}
	call := reply.Get(`content.#(type=="tool_use")`)
	return call.Get("name").Str + " " + call.Get("input").Raw
}

// strictRequest is a request of an API with strictTools.
func strictRequest(path, script, more string) string {
	const parameters = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`
	member := `"input":%q`
	if path != "/v1/responses" {
		member = `"messages":[{"role":"user","content":%q}],"max_tokens":300`
	}
	return fmt.Sprintf(`{"model":"gpt-oss-20b",`+member+`,"tools":%s%s}`, script, fmt.Sprintf(strictTools[path], parameters), more)
}

// TestToolStrictness shows what each word makes of calls that break the tools' definitions, in each API. The
// simulated engine enforces grammars.
func TestToolStrictness(t *testing.T) {
	d := startStrictness(t)
	for path := range strictTools {
		for _, c := range []struct {
			name, script string
			// By the word; the last one counts for those after it.
			want []string
		}{
			// The simulated engine, whose script the grammar does not accept, answers in its place.
			{"an undeclared tool", `CALL nosuch {"n":"one"}`, []string{`nosuch {"n":"one"}`, " "}},
			{"arguments of another type", `CALL f {"n":"one"}`, []string{`f {"n":"one"}`, `f {"n":"one"}`, `f {"n": 1}`}},
			{"a tool that is not strict", `CALL loose {"n":"one"}`, []string{`loose {"n":"one"}`, `loose {"n":"one"}`, `loose {"n":"one"}`, `loose {"n": 1}`}},
			{"a good call", `CALL f {"n":7}`, []string{`f {"n":7}`}},
		} {
			for i, word := range strictnesses {
				want := c.want[min(i, len(c.want)-1)]
				// Responses tells the model by itself that there is no such tool.
				if path == "/v1/responses" && strings.HasPrefix(want, "nosuch") {
					want = " "
				}
				status, reply := postAs(t, d, path, strictRequest(path, "NOTHINK\n"+c.script, ""), word)
				got := strings.ReplaceAll(calledOf(path, reply), `{"n": 1}`, `{"n":1}`)
				if status != 200 || got != strings.ReplaceAll(want, `{"n": 1}`, `{"n":1}`) {
					t.Errorf("%s, %s, %s: %d, %s, want %s", path, c.name, word, status, got, want)
				}
			}
		}
	}
}

// TestStrictnessLeavesRepliesAlone shows that what the model writes around calls, and the forms of its headers, are
// as they are without a grammar.
func TestStrictnessLeavesRepliesAlone(t *testing.T) {
	d := startStrictness(t)
	const (
		thought  = "<channel>analysis<message>Hm.<end><start>assistant"
		preamble = "<channel>commentary<message>One moment.<end><start>assistant"
		call     = `<channel>commentary to=functions.f <constrain>json<message>{"n":1}`
	)
	for _, output := range []string{
		thought + preamble + thought + preamble + call + "<call>",
		preamble + preamble + call + "<call>",
		thought + thought + "<channel>final<message>Done.<return>",
		preamble + "<channel>final<message>Done.<return>",
		call + "<end><start>assistant" + thought + `<channel>commentary to=functions.loose<message>{"n":2}<call>`,
		` to=functions.f<channel>commentary json<message>{"n":1}<call>`,
		`<channel>analysis to=functions.f<message>{"n":1}<call>`,
		`<channel>commentary to=functions.f<message>{"n": 1}<call>`,
	} {
		reply := func(word string) string {
			status, reply := postAs(t, d, "/v1/chat/completions", strictRequest("/v1/chat/completions", "@@"+output+"@@", ""), word)
			var calls []string
			for _, call := range reply.Get("choices.0.message.tool_calls").Array() {
				calls = append(calls, call.Get("function").Raw)
			}
			message := reply.Get("choices.0.message")
			return fmt.Sprint(status, message.Get("reasoning").Str, message.Get("content").Raw, calls,
				reply.Get("choices.0.finish_reason").Str, reply.Get("usage.completion_tokens").Int())
		}
		want := reply(turn.StrictnessNone)
		for _, word := range strictnesses[1:] {
			if diff := cmp.Diff(want, reply(word)); diff != "" {
				t.Errorf("%s: %s: %s", word, output, diff)
			}
		}
	}
}

func postAs(t *testing.T, d *stack.Dataplane, path, body, tenant string) (int, gjson.Result) {
	t.Helper()
	resp := d.Do(t, http.MethodPost, path, "application/json", strings.NewReader(body), "x-tenant", tenant)
	return resp.StatusCode, gjson.Parse(stack.ReadText(t, resp))
}
