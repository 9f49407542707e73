package responses

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestOutputsBehindTheirCalls has a client repeat the user's message before the outputs of
// tools: the model sees each output after its call, and the message after it.
func TestOutputsBehindTheirCalls(t *testing.T) {
	t.Parallel()
	const (
		user   = `{"role":"user","content":"Hi"}`
		calls  = `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call","call_id":"b","name":"g","arguments":"{}"}`
		first  = `{"type":"function_call_output","call_id":"a","output":"one"}`
		second = `{"type":"function_call_output","call_id":"b","output":"two"}`
	)
	prompt := func(items ...string) string {
		return apitest.Spell(t, mustDecode(t, askItems(strings.Join(items, ","))).Engine().Prompt)
	}
	want := prompt(user, calls, first, second, user)
	for _, got := range []string{prompt(user, calls, user, first, second), prompt(user, calls, first, user, second)} {
		if got != want {
			t.Errorf("the prompt is\n%s\nwant\n%s", got, want)
		}
	}
}

func TestResultsInAnyOrder(t *testing.T) {
	t.Parallel()
	const (
		functions = `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call","call_id":"b","name":"g","arguments":"{}"},` +
			`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`
		customs = `{"type":"custom_tool_call","call_id":"a","name":"f","input":"1"},` +
			`{"type":"mcp_call","id":"mcp_1","server_label":"m","name":"f","arguments":"{}","output":"of a server"},` +
			`{"type":"function_call","call_id":"b","name":"g","arguments":"{}"},{"type":"custom_tool_call","call_id":"c","name":"f","input":"2"}`
	)
	for calls, kind := range map[string]string{functions: "function_call_output", customs: "custom_tool_call_output"} {
		apitest.AnyOrder(t,
			`{"type":"`+kind+`","call_id":"a","output":"of first"}`,
			`{"type":"function_call_output","call_id":"b","output":"of other"}`,
			`{"type":"`+kind+`","call_id":"c","output":[{"type":"input_text","text":"of last"},{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}`,
			func(results ...string) string {
				return apitest.Spell(t, mustDecode(t, askItems(calls+","+strings.Join(results, ","))).Engine().Prompt)
			})
	}
}
