package apitest

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
)

// Letters shows that the model sees the names of tools in the letters of any script, that a
// call can be forced by such a name, and that calls come back under the client's name. tool
// returns the member of a request with a tool, and choice the one that forces its call.
func (a *API) Letters(t *testing.T, tool, choice func(name string) string) {
	for name, seen := range map[string]string{
		"wetter_ä": "wetter_ä", "погода": "погода", "天気": "天気", "wetter_a\u0308": "wetter_ä", "my.tööl": "my_tööl", "मौसम": "मौसम",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The choice shows that the name reaches the engine's grammar in the same letters.
			body := a.Ask(tool(name) + choice(name))
			request, streamed := a.MustDecode(t, body), a.MustDecode(t, With(t, body, a.Streamed...))
			if prompt := Spell(t, request.Engine().Prompt); !strings.Contains(prompt, "type "+seen+" = (_: {") {
				t.Errorf("the prompt is\n%s", prompt)
			}
			if tag := string(constraint.AppendStructuralTag(nil, request.Engine().Constraint)); !strings.Contains(tag, " to=functions."+seen) {
				t.Errorf("the constraint is %s", tag)
			}

			// The model may write the name as shown, as the client has it, quoted, or in another case.
			for _, to := range []string{"functions." + seen, "functions." + name, `"` + name + `"`, "functions::" + strings.ToUpper(seen)} {
				chunks := Said("<|channel|>commentary to=" + to + ` <|constrain|>json<|message|>{"city":"a"}<|call|>`).Chunks(Size(1))
				whole := Play(t, request, a.Mode, chunks)
				if got := a.Brief(t, whole); got != name+`({"city":"a"}) tool_calls` {
					t.Errorf("%s: got %s", to, got)
				}
				a.compareStream(t, request, whole, streamed, Play(t, streamed, a.Mode, chunks))
			}
		})
	}
}
