package turn

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/output"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func newWatcher(t *testing.T, limits ReasoningLimits, change func(in *Input)) *Watcher {
	t.Helper()
	rc, _ := newContext()
	model := *rc.Model
	model.Reasoning = limits
	rc.Model = &model
	in := &Input{Items: []Item{{Kind: User, Text: "hi"}}}
	if change != nil {
		change(in)
	}
	return prepare(t, rc, in).NewWatcher()
}

// The model is interrupted after the last token that it may have, whatever the pieces in
// which its output comes.
func TestWatcher(t *testing.T) {
	t.Parallel()
	const reasons = "<|channel|>analysis<|message|>"
	budget := func(n int) func(*Input) { return func(in *Input) { in.Budget = &n } }
	long := reasons + strings.Repeat(" word", 100)

	for name, c := range map[string]struct {
		limits ReasoningLimits
		change func(*Input)
		output string
		// Of the output.
		kept string
		why  Interruption
	}{
		"within":           {ReasoningLimits{}, budget(3), reasons + "a b c<|end|><|start|>assistant<|channel|>final<|message|>many words of an answer<|return|>", "", NotInterrupted},
		"beyond":           {ReasoningLimits{}, budget(3), reasons + "a b c d", reasons + "a b c", output.BudgetUsed},
		"none at all":      {ReasoningLimits{}, budget(0), reasons + "a b", reasons, output.BudgetUsed},
		"of the model":     {ReasoningLimits{Budget: 2}, budget(3), reasons + "a b c d", reasons + "a b", output.BudgetUsed},
		"no limit":         {ReasoningLimits{Budget: 2}, budget(Unlimited), reasons + "a b c d", reasons + "a b", output.BudgetUsed},
		"of the effort":    {ReasoningLimits{Budget: 9, ByEffort: map[harmony.Effort]int{harmony.EffortMedium: 1, harmony.EffortHigh: 3}}, nil, reasons + "a b c d", reasons + "a", output.BudgetUsed},
		"of all reasoning": {ReasoningLimits{}, budget(3), reasons + "a b<|end|><|start|>assistant" + reasons + "c d", reasons + "a b<|end|><|start|>assistant" + reasons + "c", output.BudgetUsed},
		"whole characters": {ReasoningLimits{}, budget(2), reasons + "a🦙🦙 b", reasons + "a🦙", output.BudgetUsed},
		"not of a call":    {ReasoningLimits{}, budget(1), "<|channel|>analysis to=python code<|message|>print(1, 2, 3)<|call|>", "", NotInterrupted},
		"not of an answer": {ReasoningLimits{}, budget(1), "<|channel|>final<|message|>a b c d<|return|>", "", NotInterrupted},
		"reserve":          {ReasoningLimits{ReserveFinal: 10}, func(in *Input) { in.Engine.MaxTokens = 20 }, long, reasons + strings.Repeat(" word", 7), output.ReserveReached},
		"half at most":     {ReasoningLimits{ReserveFinal: 1000}, func(in *Input) { in.Engine.MaxTokens = 20 }, long, reasons + strings.Repeat(" word", 7), output.ReserveReached},
		"repetition":       {ReasoningLimits{MaxRepeats: 20}, nil, reasons + strings.Repeat(" once more", 60), reasons + strings.Repeat(" once more", 31) + " once more", output.Repetition},
		"few repetitions":  {ReasoningLimits{MaxRepeats: 60}, nil, long[:len(reasons)+5*50] + "<|end|>", "", NotInterrupted},
		"of messages":      {ReasoningLimits{MaxRepeats: 3}, nil, strings.Repeat("<|channel|>analysis<|message|>I have to look at that.<|end|><|start|>assistant", 9), "*", output.Repetition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := harmony.AppendEncodeSpecial(nil, c.output)
			random := rand.New(rand.NewPCG(1, uint64(len(name))))

			for range 20 {
				g := newWatcher(t, c.limits, c.change)
				if g == nil {
					t.Fatal("there is no watcher")
				}

				kept, why := 0, NotInterrupted
				for kept < len(all) && why == NotInterrupted {
					var tokens []harmony.Token
					tokens, why = g.Push(all[kept : kept+1+random.IntN(len(all)-kept)])
					kept += len(tokens)
				}

				want := len(harmony.AppendEncodeSpecial(nil, c.kept))
				switch c.kept {
				case "":
					want = len(all)
				case "*":
					want = kept
				}

				if why != c.why || kept != want && why != output.Repetition {
					t.Fatalf("%q behind %d tokens, want %q behind %d: %q", why, kept, c.why, want, spell(t, all[:kept]))
				}
			}
		})
	}
}

// What is dropped of a choice, with a lost model call or because it has to be asked for again,
// counts for nothing: the model is interrupted where it would be without.
func TestDroppedTokensDoNotCount(t *testing.T) {
	t.Parallel()
	const thought, call = "<|channel|>analysis<|message|>", "<|channel|>commentary to=functions.look <|constrain|>json<|message|>"
	const next = "<|end|><|start|>assistant"
	random := rand.New(rand.NewPCG(7, 8))

	// All calls are valid, many are long, and some come again.
	out := func() []harmony.Token {
		text := ""
		for range 2 + random.IntN(6) {
			switch random.IntN(3) {
			case 0:
				text += thought + strings.Repeat(" word", random.IntN(9)) + next
			default:
				text += call + `{"place":"` + strings.Repeat(" a b", 5+20*random.IntN(3)) + `"}` + next
			}
		}
		return harmony.AppendEncodeSpecial(nil, text+thought+strings.Repeat(" and so on", random.IntN(2)*30))
	}

	// play returns the output that there is where the model is interrupted. disturbed loses calls
	// while arguments are held back, and has arguments that are asked for again.
	play := func(g *Watcher, all []harmony.Token, disturbed bool) (got []harmony.Token, why Interruption) {
		// Where arguments were asked for again last.
		askedAt := -1
		for n, drops := 0, 0; n < len(all) && why == NotInterrupted; {
			var kept []harmony.Token
			size := 1 + random.IntN(min(40, len(all)-n))
			kept, why = g.Push(all[n : n+size])
			got, n = append(got, kept...), n+size
			if !disturbed || why != NotInterrupted || len(got) == n || drops > 9 {
				continue
			}

			drops++
			g.Lost(got)
			n = len(got)
			// Arguments that were asked for again pass, whatever they are.
			if askedAt == n || random.IntN(2) == 0 {
				continue
			}
			kept, invalid := g.Push(harmony.AppendEncodeSpecial(nil, "[1, 2, 3]<|call|>"))
			if len(kept) > 0 || invalid != InvalidCall {
				t.Fatalf("%d tokens are kept of an invalid call: %q", len(kept), invalid)
			}
			g.Again(got)
			askedAt = n
		}
		return got, why
	}

	found := map[Interruption]int{}
	for range 300 {
		limits := ReasoningLimits{Budget: random.IntN(60), ReserveFinal: random.IntN(200), MaxRepeats: 2 * random.IntN(3)}
		watched := func() *Watcher {
			return newChangedTurn(t, func(rc *RequestContext, in *Input) {
				rc.Model.Reasoning = limits
				in.Engine.MaxTokens = 400
			}).NewWatcher()
		}

		all := out()
		want, wantWhy := play(watched(), all, false)
		got, why := play(watched(), all, true)
		if why != wantWhy || !slices.Equal(got, want) {
			t.Fatalf("%+v: %q behind %d tokens, want %q behind %d of %q", limits, why, len(got), wantWhy, len(want), spell(t, all))
		}
		found[why]++
	}

	for _, why := range []Interruption{NotInterrupted, output.BudgetUsed, output.ReserveReached, output.Repetition} {
		if found[why] < 10 {
			t.Errorf("%d outputs end with %q", found[why], why)
		}
	}
}

// Without a limit there is no watcher.
func TestNoWatcher(t *testing.T) {
	t.Parallel()
	unlimited := Unlimited
	if newWatcher(t, ReasoningLimits{}, nil) != nil || newWatcher(t, ReasoningLimits{}, func(in *Input) { in.Budget = &unlimited }) != nil {
		t.Error("there is a watcher")
	}
}
