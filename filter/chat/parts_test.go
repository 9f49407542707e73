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

// TestThinkBlock shows that reasoning in an assistant's text is reasoning.
func TestThinkBlock(t *testing.T) {
	t.Parallel()
	body := `{"model":"m","messages":[{"role":"user","content":"Hi"},
		{"role":"assistant","content":"<think>why</think>I look.","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"a","content":"<think>x</think>"},
		{"role":"assistant","reasoning":"other","content":"<think>why</think>I look again.","tool_calls":[{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"b","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]}`
	prompt := apitest.Spell(t, mustDecode(t, body).Engine().Prompt)
	for _, want := range []string{
		"<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>",
		"<|message|><think>x</think><|end|>",
		"<|channel|>analysis<|message|>other<|end|><|start|>assistant<|channel|>commentary<|message|>I look again.<|end|>",
	} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt has no %q:\n%s", want, prompt)
		}
	}
}

// TestThinkOfTheModel shows that an answer in which the model writes such a block
// stays as it is.
func TestThinkOfTheModel(t *testing.T) {
	t.Parallel()
	const text = "<think>why</think>a"
	body := testAPI.Ask("")
	out := apitest.Play(t, mustDecode(t, body), testAPI.Mode, apitest.Said("<|channel|>final<|message|>"+text+"<|return|>").Chunks(apitest.Size(1)))
	if got := testAPI.Brief(t, out); got != `content "<think>why</think>a" stop` {
		t.Error(got)
	}
}
