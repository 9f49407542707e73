package chat

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestTextParts shows how the parts of one message become one text.
func TestTextParts(t *testing.T) {
	t.Parallel()
	body := `{"model":"m","messages":[
		{"role":"user","content":[{"type":"text","text":"<reminder>"},{"type":"text","text":"Say hi.\n"},{"type":"text","text":"Now."}]},
		{"role":"assistant","content":[{"type":"text","text":"one"},{"type":"refusal","refusal":"two"}],"refusal":"three"},
		{"role":"user","content":"Go on."}]}`
	prompt := apitest.Spell(t, mustDecode(t, body).Engine().Prompt)
	for _, want := range []string{"<|message|><reminder>\nSay hi.\nNow.<|end|>", "<|message|>one\ntwo\nthree<|end|>"} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt has no %q:\n%s", want, prompt)
		}
	}
}
