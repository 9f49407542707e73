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
