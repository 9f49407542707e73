package filter

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
	"github.com/tidwall/gjson"
)

// TestCausesOfAgents requires that sessions of agents that lose nothing are told nothing, except that
// the answer ends the reasoning, and that others are told of the newest step, which no prompt has had.
func TestCausesOfAgents(t *testing.T) {
	t.Parallel()
	e, s := startSessions(t)
	log := test.NewLocal(s.o.Log)
	same := func(body string) string { return body }
	// What the first call of the second step read, in the request that is the first to have it.
	changed := func(body string) string { return strings.ReplaceAll(body, "go.mod", "go.sum") }

	for i, c := range []struct {
		model  string
		change func(body string) string
		want   []string
	}{
		{"gpt-oss-exact", same, []string{"", "", "", "", "", "", "", "reasoning", "", ""}},
		{"gpt-oss-exact", changed, []string{"", "", "history", "history", "", "", "", "reasoning", "", ""}},
		{"gpt-oss-canonical", same, []string{"", "respelled", "respelled", "respelled", "respelled", "respelled", "respelled", "reasoning", "respelled", "respelled"}},
	} {
		for _, known := range agents {
			for form := range len(callHeaders) {
				a, causes := known.make(), []string(nil)
				session := strconv.Itoa(i) + known.name + strconv.Itoa(form)
				for _, asked := range codingSession() {
					a.user(asked.user)
					for j := range asked.steps {
						e.output = asked.steps[j].output(form, rand.New(rand.NewPCG(3, 4)))
						body, err := json.Marshal(a.body(c.model))
						if err != nil {
							t.Fatal(err)
						}
						text := string(body)
						if len(causes) == 2 {
							text = c.change(text)
						}

						log.Reset()
						x := ask(t, s, a.path(), text, map[string]string{"session-id": session})
						cause, _ := log.LastEntry().Data["prefix_broken"].(string)
						causes = append(causes, cause)

						var results []string
						for _, call := range asked.steps[j].calls {
							results = append(results, call.result)
						}
						a.take(gjson.ParseBytes(x.body.Bytes()), results)
					}
				}
				if !slices.Equal(causes, c.want) {
					t.Errorf("%s, %s, form %d: %q, want %q", c.model, known.name, form, causes, c.want)
				}
			}
		}
	}
}
