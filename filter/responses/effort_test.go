package responses

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func effortUpdate(effort string) string {
	return `{"type":"configuration_update","reasoning":{"effort":"` + effort + `"}}`
}

// TestKeepPrefix requires that each prompt begins with the one before, whatever efforts the
// conversation sets, and that it is the same whether the conversation is sent, remembered or
// read from the store.
func TestKeepPrefix(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
	for n := range 60 {
		s := newServer()
		s.rc.Model = &turn.Model{EffortUpdates: turn.EffortKeepPrefix}
		chains := s.Chains
		effort := fmt.Sprintf(`,"reasoning":{"effort":%q}`, words[random.IntN(len(words))])
		sent, previously, before := "", "", ""
		for step := range 4 {
			var items []string
			for _, word := range words {
				if random.IntN(8) == 0 {
					items = append(items, effortUpdate(word))
				}
			}
			input := strings.Join(append(items, `{"role":"user","content":"Go on."}`), ",")
			sent += input

			prompt := func(members string) string {
				request, err := s.decode([]byte(`{"model":"gpt-oss-20b"`+effort+members+`}`), s.rc)
				if err != nil {
					t.Fatalf("%s: %v", members, err)
				}
				return apitest.Spell(t, request.Engine().Prompt)
			}
			stateless := prompt(`,"input":[` + sent + `]`)
			if !strings.HasPrefix(stateless, before) {
				t.Fatalf("%d: %s: the prompt\n%s\ndoes not begin with\n%s", n, sent, stateless, before)
			}
			before = strings.TrimSuffix(stateless, "<|start|>assistant")

			for name, remembered := range map[string]bool{"remembered": true, "read": false} {
				if s.Chains = nil; remembered {
					s.Chains = chains
				}
				if got := prompt(previously + `,"input":[` + input + `]`); got != stateless {
					t.Fatalf("%d, step %d, %s: %s: the prompt\n%s\nis not\n%s", n, step, name, sent, got, stateless)
				}
			}
			s.Chains = chains
			previously = previous(s.create(t, effort+previously+`,"input":[`+input+`]`, said))
			sent += `,{"role":"assistant","content":"answer"},`
		}
	}
}

// TestEffortUpdates shows which effort counts, and how the response names it.
func TestEffortUpdates(t *testing.T) {
	t.Parallel()
	const hi, answer = `{"role":"user","content":"Hi"}`, `{"role":"assistant","content":"Yes?"}`
	for _, c := range []struct {
		input, members string
		effort, echo   string
		hidden         bool
	}{
		{hi + "," + effortUpdate("minimal"), ``, "low", "minimal", false},
		{hi + "," + effortUpdate("low"), `,"reasoning":{"effort":"high"}`, "low", "low", false},
		{hi + "," + effortUpdate("low") + "," + answer + "," + effortUpdate("max") + "," + hi, ``, "high", "max", false},
		{hi + "," + effortUpdate("none"), `,"reasoning":{"effort":"high"}`, "low", "none", true},
		{hi + "," + effortUpdate("high"), `,"reasoning":{"effort":"none"}`, "high", "high", false},
		{hi + "," + effortUpdate("high"), `,"enable_thinking":false`, "low", "none", true},
	} {
		r := mustDecode(t, `{"model":"gpt-oss-20b","input":[`+c.input+`]`+c.members+`}`)
		prompt := apitest.Spell(t, r.Engine().Prompt)
		if !strings.Contains(prompt, "Reasoning: "+c.effort+"\n") || r.Options.HideReasoning != c.hidden || !strings.Contains(string(r.Echo), `"reasoning":{"effort":"`+c.echo+`"`) {
			t.Errorf("%s%s: hidden %v\n%s\n%s", c.input, c.members, r.Options.HideReasoning, r.Echo, prompt)
		}
	}
}

// TestEffortUpdatesRefused names what is wrong with an update, also if a later one is right.
func TestEffortUpdatesRefused(t *testing.T) {
	t.Parallel()
	for _, effort := range []string{`"huge"`, `""`, `1`, `["low"]`} {
		update := `{"type":"configuration_update","reasoning":{"effort":` + effort + `}}`
		s := newServer()
		_, err := s.decode([]byte(`{"model":"gpt-oss-20b","input":[{"role":"user","content":"Hi"},`+update+`,`+effortUpdate("low")+`]}`), s.rc)
		if err == nil || err.Status != 400 || err.Param != "input[1].reasoning.effort" {
			t.Errorf("%s: %v", effort, err)
		}
	}
	s := newServer()
	_, err := s.decode([]byte(`{"model":"gpt-oss-20b","enable_response_messages":true,"input":[{"role":"user","content":"Hi"},`+effortUpdate("none")+`]}`), s.rc)
	if err == nil || err.Param != "enable_response_messages" {
		t.Errorf("messages whose reasoning is hidden: %v", err)
	}
}

// TestManyEffortUpdates requires that updates cost work and memory in proportion to their number,
// and that a remembered conversation keeps two words of them.
func TestManyEffortUpdates(t *testing.T) {
	allocations := func(n int) float64 {
		s := newServer()
		body := []byte(`{"model":"gpt-oss-20b","input":[{"role":"user","content":"Hi"}` + strings.Repeat(`,`+effortUpdate("low")+`,`+effortUpdate("high"), n/2) + `]}`)
		return testing.AllocsPerRun(1, func() {
			if _, err := s.decode(body, s.rc); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocations(1000), allocations(8000)
	if many > 10*few {
		t.Errorf("1,000 updates take %.0f allocations, 8,000 take %.0f", few, many)
	}
}
