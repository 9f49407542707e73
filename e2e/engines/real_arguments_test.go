//go:build engines

package engines

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// The script calls a tool with arguments that the tool does not take. They are asked for
// again: the weights generate some under the engine's grammar.
func realAskedAgain(t *testing.T, d *stack.Dataplane, model string) {
	const tools = `"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"unit":{"enum":["celsius","kelvin"]}},"required":["unit"],"additionalProperties":false}}}]`
	for arguments, kept := range map[string]bool{`{"unit":"kelvin"}`: true, `{"unit":"feet"}`: false, `{"unit":`: false, `{}`: false} {
		body := fmt.Sprintf(`{"model":%q,%s,"max_completion_tokens":300,"messages":[{"role":"user","content":%q}]}`, model+"-retry", tools, "THINK Hm.\nCALL look "+arguments)
		status, reply := d.Post(t, "/v1/chat/completions", body)
		got := reply.Get("choices.0.message.tool_calls.0.function.arguments").Str
		unit := gjson.Get(got, "unit").Str
		if status != http.StatusOK || reply.Get("choices.0.finish_reason").Str != "tool_calls" || unit != "celsius" && unit != "kelvin" || kept && got != arguments {
			t.Errorf("%s: status %d: %s", arguments, status, reply.Raw)
		}
	}
}

// A custom tool's text is of its grammar, in Lark or as a regular expression, whatever the
// script says.
func realToolGrammar(t *testing.T, d *stack.Dataplane, model string) {
	for _, c := range []struct {
		syntax, definition, text string
		wants                    []string
	}{
		{"lark", `start: "*** " ("Begin \"a\"\n" | "End")`, `*** End`, []string{"*** End"}},
		{"lark", `start: "*** " ("Begin \"a\"\n" | "End")`, `something else`, []string{"*** End", "*** Begin \"a\"\n"}},
		{"regex", `(yes|no)\n`, "maybe", []string{"yes\n", "no\n"}},
	} {
		call := fmt.Sprintf(`CALL patch {"input":%q}`, c.text)
		body := fmt.Sprintf(`{"model":%q,"max_output_tokens":300,"tools":[{"type":"custom","name":"patch","format":{"type":"grammar","syntax":%q,"definition":%q}}],"input":%q}`, model, c.syntax, c.definition, "THINK Hm.\n"+call)
		status, reply := d.Post(t, "/v1/responses", body)
		got, found := reply.Get(`output.#(type=="custom_tool_call").input`).Str, false
		for _, want := range c.wants {
			found = found || got == want
		}
		if status != http.StatusOK || !found {
			t.Errorf("%s, %q: status %d, %q: %s", c.syntax, c.text, status, got, reply.Raw)
		}
	}
}
