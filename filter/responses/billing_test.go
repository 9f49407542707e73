package responses

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestBillingLine shows that the line which Claude Code begins its system prompt with is
// dropped where a proxy makes instructions of it, or the first message, and nowhere else.
// The response repeats the instructions as they were sent.
func TestBillingLine(t *testing.T) {
	t.Parallel()
	const line = "x-anthropic-billing-header: cc_version=1; cch=ab;"
	const hi = `{"role":"user","content":"Hi"}`
	for _, c := range []struct{ name, members, want string }{
		{"instructions", `"instructions":"` + line + `\nBe terse.","input":"Hi"`, "# Instructions\n\nBe terse.<|end|>"},
		{"behind white space, twice", `"instructions":" \n` + line + `\n\n` + line + `\nBe terse.","input":"Hi"`, "# Instructions\n\nBe terse.<|end|>"},
		{"nothing else", `"instructions":"` + line + `","input":"Hi"`, "every message.<|end|><|start|>user"},
		{"the first message", `"input":[{"role":"system","content":"` + line + `\nBe terse."},` + hi + `]`, "# Instructions\n\nBe terse.<|end|>"},
		{"a later message", `"input":[` + hi + `,{"role":"developer","content":"` + line + `"},` + hi + `]`, line},
		{"a user's text", `"input":"` + line + `"`, "<|start|>user<|message|>" + line + "<|end|>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			request := mustDecode(t, `{"model":"m",`+c.members+`}`)
			if prompt := apitest.Spell(t, request.Engine().Prompt); !strings.Contains(prompt, c.want) || c.want != line && strings.Count(prompt, line) != strings.Count(c.want, line) {
				t.Errorf("the prompt has no %q, or the line:\n%s", c.want, prompt)
			}
		})
	}
}
