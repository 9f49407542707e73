package turn

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/output"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// updatesOf returns the updates of a conversation: words, and | where the model says something.
func updatesOf(t testing.TB, words ...string) (u EffortUpdates) {
	t.Helper()
	for _, word := range words {
		if word == "|" {
			u.Begin()
			continue
		}
		u.Set(word)
	}
	return u
}

// TestEfforts shows which effort the prompt says and by which budget another one is reached.
func TestEfforts(t *testing.T) {
	t.Parallel()
	const low, medium, high = harmony.EffortLow, harmony.EffortMedium, harmony.EffortHigh
	set := map[harmony.Effort]int{low: 100, medium: 200, high: 300}
	for name, c := range map[string]struct {
		updates string
		in      Input
		limits  ReasoningLimits
		// What the prompt says by each setting, the budget with keep_prefix, and what is hidden.
		exact, keeps harmony.Effort
		budget       int
		hidden       bool
	}{
		"none":                         {"", Input{}, ReasoningLimits{}, medium, medium, Unlimited, false},
		"the request's own":            {"", Input{Effort: high}, ReasoningLimits{ByEffort: set}, high, high, 300, false},
		"at the beginning":             {"low", Input{}, ReasoningLimits{}, low, low, Unlimited, false},
		"the last at the beginning":    {"low high", Input{}, ReasoningLimits{}, high, high, Unlimited, false},
		"lower":                        {"| low", Input{}, ReasoningLimits{}, low, medium, 512, false},
		"a little lower":               {"| medium", Input{Effort: high}, ReasoningLimits{}, medium, high, 4096, false},
		"lower, of the operator":       {"| low", Input{}, ReasoningLimits{ByEffort: set}, low, medium, 100, false},
		"lower, and the model's bound": {"| low", Input{}, ReasoningLimits{Budget: 50}, low, medium, 50, false},
		"lower, and the request's":     {"| low", Input{Budget: new(int)}, ReasoningLimits{}, low, medium, 0, false},
		"higher":                       {"| high", Input{}, ReasoningLimits{}, high, medium, Unlimited, false},
		"higher, of the operator":      {"| high", Input{Effort: low}, ReasoningLimits{ByEffort: set}, high, low, 300, false},
		"a little higher":              {"| medium", Input{Effort: low}, ReasoningLimits{}, medium, low, Unlimited, false},
		"the last":                     {"| low | high | low", Input{}, ReasoningLimits{}, low, medium, 512, false},
		"back":                         {"| low | medium", Input{}, ReasoningLimits{}, medium, medium, Unlimited, false},
		"from the beginning on":        {"high | low", Input{Effort: low}, ReasoningLimits{}, low, high, 512, false},
		"no reasoning":                 {"| none", Input{}, ReasoningLimits{}, low, medium, 512, true},
		"reasoning after all":          {"| high", Input{Effort: low, NoEffort: true}, ReasoningLimits{}, high, low, Unlimited, false},
		"the words of others":          {"xhigh | minimal", Input{}, ReasoningLimits{}, low, high, 512, false},
		"a switch":                     {"high | high", Input{Effort: high, OptedOut: true}, ReasoningLimits{}, low, low, Unlimited, true},
		"none of the request":          {"", Input{Effort: high, NoEffort: true}, ReasoningLimits{}, low, low, Unlimited, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for setting, head := range map[string]harmony.Effort{EffortExact: c.exact, "": c.exact, EffortKeepPrefix: c.keeps} {
				rc, _ := newContext()
				rc.Model = &Model{EffortUpdates: setting, Reasoning: c.limits}
				in := c.in
				in.Items = []Item{{Kind: User, Text: "hi"}}
				in.EffortUpdates = updatesOf(t, strings.Fields(c.updates)...)

				turn := prepare(t, rc, &in)
				if prompt := spell(t, turn.Engine.Prompt); !strings.Contains(prompt, "Reasoning: "+string(head)+"\n") {
					t.Errorf("%s: the prompt does not say %s:\n%s", setting, head, prompt)
				}
				if got := budgetOf(turn); setting == EffortKeepPrefix && got != c.budget {
					t.Errorf("a budget of %d, not %d", got, c.budget)
				}
				if in.Hides() != c.hidden {
					t.Errorf("hidden: %v", in.Hides())
				}
			}
		})
	}
}

// budgetOf returns how many tokens of reasoning a turn may have; [Unlimited] if they are more than any test's.
func budgetOf(turn *Turn) int {
	watcher := turn.NewWatcher()
	if watcher == nil {
		return Unlimited
	}

	watcher.Push(harmony.AppendEncodeSpecial(nil, "<|channel|>analysis<|message|>"))
	word := harmony.AppendEncode(nil, " word")
	for n := range 1 << 14 {
		if _, why := watcher.Push(word); why == output.BudgetUsed {
			return n
		}
	}
	return Unlimited
}

// TestEffortUpdatesWith requires that a conversation has the same efforts in whatever pieces it
// is read.
func TestEffortUpdatesWith(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"low", "medium", "high", "none", "|", "|", "|"}
	for range 3000 {
		all := make([]string, random.IntN(9))
		for i := range all {
			all[i] = words[random.IntN(len(words))]
		}
		first, second := random.IntN(len(all)+1), random.IntN(len(all)+1)
		first, second = min(first, second), max(first, second)

		want := updatesOf(t, all...)
		pieces := updatesOf(t, all[:first]...).With(updatesOf(t, all[first:second]...)).With(updatesOf(t, all[second:]...))
		if pieces != want || want.With(EffortUpdates{}) != want {
			t.Fatalf("%q in pieces of %d and %d: %+v, not %+v", all, first, second, pieces, want)
		}
	}
}

// TestEffortUpdateDiagnosed shows what an update costs: the prompt from its first tokens on, of
// which the diagnosis says that it was the effort; with keep_prefix nothing.
func TestEffortUpdateDiagnosed(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]diagnosis.Cause{EffortExact: diagnosis.Effort, EffortKeepPrefix: diagnosis.None} {
		rc := diagnosing()
		rc.Model = &Model{EffortUpdates: setting}
		in := &Input{Items: []Item{said(User, "question")}, Session: "s", Replies: Replies{Own: "one"}}
		answered(t, rc, in, plainAnswer)

		in.Items = append(in.Items, said(Answer, "answer"), said(User, "next"))
		in.EffortUpdates = updatesOf(t, "|", "low")
		_, d := answered(t, rc, in, plainAnswer)
		lost := d.Session.Lost > d.Session.Shared
		if d.Session.Cause != want || !d.Session.Known || lost != (want == diagnosis.Effort) {
			t.Errorf("%s: %+v", setting, d.Session)
		}
	}
}
