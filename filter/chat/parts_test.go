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

// TestBillingLine shows that the line which Claude Code begins its system prompt with is
// dropped where that is converted to a chat, and nowhere else.
func TestBillingLine(t *testing.T) {
	t.Parallel()
	const line = "x-anthropic-billing-header: cc_version=1; cch=ab;"
	for _, c := range []struct{ name, messages, want string }{
		{"the first line", `{"role":"system","content":"` + line + `\nBe terse."}`, "# Instructions\n\nBe terse.<|end|>"},
		{"the first part", `{"role":"system","content":[{"type":"text","text":"` + line + `"},{"type":"text","text":"Be terse."}]}`, "# Instructions\n\nBe terse.<|end|>"},
		{"nothing else", `{"role":"developer","content":"` + line + `"}`, "every message.<|end|><|start|>user"},
		{"a second message", `{"role":"system","content":"Be terse."},{"role":"system","content":"` + line + `"}`, line + "<|end|>"},
		{"a user's text", `{"role":"user","content":"` + line + `"}`, "<|start|>user<|message|>" + line + "<|end|>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			prompt := apitest.Spell(t, mustDecode(t, `{"model":"m","messages":[`+c.messages+`,{"role":"user","content":"Hi"}]}`).Engine().Prompt)
			if !strings.Contains(prompt, c.want) {
				t.Errorf("the prompt has no %q:\n%s", c.want, prompt)
			}
		})
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
