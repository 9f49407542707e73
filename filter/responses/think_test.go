package responses

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestThinkBlock shows that reasoning in an assistant's text is reasoning, unless
// there is a reasoning item.
func TestThinkBlock(t *testing.T) {
	t.Parallel()
	const (
		call   = `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"x"}`
		said   = `{"role":"assistant","content":[{"type":"output_text","text":"<think>why</think>I look."}]},`
		reason = `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"other"}]},`
	)
	for items, want := range map[string]string{
		said + call:          "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>",
		reason + said + call: "<|channel|>analysis<|message|>other<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>",
	} {
		prompt := apitest.Spell(t, mustDecode(t, askItems(`{"role":"user","content":"Hi"},`+items)).Engine().Prompt)
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt has no %q:\n%s", want, prompt)
		}
	}
}
