package chat

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestLegacyCallsWithoutResult shows what the model sees of a function_call that nothing
// answers, which Instructor sends to have it corrected, and of a result that is null.
func TestLegacyCallsWithoutResult(t *testing.T) {
	t.Parallel()
	const (
		user   = `{"role":"user","content":"Hi"}`
		call   = `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`
		result = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>"
	)
	for _, c := range []struct{ name, messages, want string }{
		{"no result", user + "," + call + "," + user, "{}<|call|>" + result + "<|end|><|start|>user<|message|>Hi<|end|>"},
		{"nothing behind it", user + "," + call, result + "<|end|><|start|>assistant"},
		{"the second is answered by its own", user + "," + call + "," + user + "," + call + `,{"role":"function","name":"f","content":"one"}`, "{}<|call|>" + result + "one<|end|><|start|>assistant"},
		{"null", user + "," + call + `,{"role":"function","name":"f","content":null}`, result + "<|end|><|start|>assistant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			prompt := apitest.Spell(t, mustDecode(t, `{"model":"m","messages":[`+c.messages+`]}`).Engine().Prompt)
			if !strings.Contains(prompt, c.want) {
				t.Errorf("the prompt has no %q:\n%s", c.want, prompt)
			}
		})
	}
}
