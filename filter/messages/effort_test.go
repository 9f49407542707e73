package messages

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// TestKeepPrefix requires that each prompt begins with the one before, whatever efforts the
// conversation sets.
func TestKeepPrefix(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"low", "medium", "high", "xhigh", "max"}
	for range 100 {
		rc := apitest.NewContext()
		rc.Model = &turn.Model{EffortUpdates: turn.EffortKeepPrefix}
		members := `,"output_config":{"effort":"` + words[random.IntN(len(words))] + `"}`
		messages, before := "", ""
		for range 5 {
			var sent []string
			for _, word := range words {
				if random.IntN(6) == 0 {
					sent = append(sent, effortOf(word))
				}
			}
			messages += strings.Join(append(sent, userHi), ",")

			prompt := apitest.Spell(t, decodeWith(t, rc, conversation(messages, members)).Engine().Prompt)
			if !strings.HasPrefix(prompt, before) {
				t.Fatalf("%s: the prompt\n%s\ndoes not begin with\n%s", messages, prompt, before)
			}
			before = strings.TrimSuffix(prompt, "<|start|>assistant")
			messages += `,{"role":"assistant","content":"Yes."},`
		}
	}
}

// TestEffortOptOuts shows what precedes: a switch of the request, an effort of the conversation,
// the effort of the request.
func TestEffortOptOuts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		update, members, effort string
		thinking                request.Visibility
	}{
		{"none", `,"thinking":{"type":"adaptive"}`, "low", request.Hidden},
		{"high", `,"thinking":{"type":"adaptive"},"reasoning_effort":"none"`, "high", request.Shown},
		{"high", `,"thinking":{"type":"disabled"}`, "low", request.Hidden},
		{"high", `,"enable_thinking":false`, "low", request.Hidden},
	} {
		r := mustDecode(t, conversation(userHi+`,{"role":"assistant","content":"Yes."},`+effortOf(c.update)+`,`+userHi, c.members))
		prompt := apitest.Spell(t, r.Engine().Prompt)
		if !strings.Contains(prompt, "Reasoning: "+c.effort+"\n") || r.Options.Thinking != c.thinking {
			t.Errorf("%+v: thinking is %v\n%s", c, r.Options.Thinking, prompt)
		}
	}
}
