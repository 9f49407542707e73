package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/inspect"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Said is an output by channel.
type Said struct {
	Reasoning, Final string
	Calls            []string // recipient and arguments of each, in order
	Tokens           map[string]int
}

// channels are the names in Said.Tokens.
const (
	inReasoning = "reasoning"
	inFinal     = "final"
	inCalls     = "calls"
	inOther     = "other"
)

// Say returns an output by channel.
func (o *Output) Say() Said {
	s := Said{Tokens: map[string]int{}}
	messages := inspect.Messages(o.Tokens, harmony.RoleAssistant)
	for i := range messages {
		m := &messages[i]
		in := inOther
		switch {
		// The recipient first: calls stand in any channel.
		case m.Recipient != "":
			in = inCalls
			s.Calls = append(s.Calls, m.Recipient+" "+m.Text())
		case m.Channel == harmony.ChannelAnalysis:
			in = inReasoning
			s.Reasoning += m.Text()
		case m.Channel == harmony.ChannelFinal:
			in = inFinal
			s.Final += m.Text()
		}
		s.Tokens[in] += len(m.Pieces)
	}

	return s
}

// Tally compares what an engine says with what was recorded, over many calls.
type Tally struct {
	Asked, Failed                 int
	SameReasoning                 int // calls whose reasoning is the same text
	SameFinal, SameCalls, SameAll int
	Finish                        map[string]int // calls by finish reason
	Was, Is                       map[string]int // tokens by channel
	first, whole                  []time.Duration
	wasFirst, wasWhole            []time.Duration
}

// Add adds the answer to a call.
func (t *Tally) Add(was, is *Output) {
	if t.Finish == nil {
		t.Finish, t.Was, t.Is = map[string]int{}, map[string]int{}, map[string]int{}
	}

	// What was refused is compared with nothing: it would count as different in all.
	t.Asked++
	if is.Refused != "" {
		t.Failed++
		return
	}

	before, now := was.Say(), is.Say()
	reasoning, final := before.Reasoning == now.Reasoning, before.Final == now.Final
	calls := slices.Equal(before.Calls, now.Calls)
	for same, n := range map[*int]bool{
		&t.SameReasoning: reasoning, &t.SameFinal: final, &t.SameCalls: calls,
		&t.SameAll: reasoning && final && calls,
	} {
		if n {
			*same++
		}
	}

	t.Finish[string(is.Finish)]++
	for name, n := range before.Tokens {
		t.Was[name] += n
	}
	for name, n := range now.Tokens {
		t.Is[name] += n
	}
	t.first, t.whole = append(t.first, is.First), append(t.whole, is.Whole)
	t.wasFirst, t.wasWhole = append(t.wasFirst, was.First), append(t.wasWhole, was.Whole)
}

// Times returns the medians of the times to the first token and to the end, of the engine
// and as they were recorded.
func (t *Tally) Times() (first, whole, wasFirst, wasWhole time.Duration) {
	return median(t.first), median(t.whole), median(t.wasFirst), median(t.wasWhole)
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// FinishText is the finish reasons with their counts.
func (t *Tally) FinishText() string {
	// In one order, so that columns of two engines can be compared.
	var parts []string
	for _, name := range []string{"stop", "length", "abort"} {
		if n := t.Finish[name]; n > 0 {
			parts = append(parts, name+" "+percent(n, t.Asked-t.Failed))
		}
	}
	return strings.Join(parts, ", ")
}

// percent is a share as a text.
func percent(n, of int) string {
	if of <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}

// Row is a line of the comparison of engines.
type Row struct {
	Name   string
	Values []string // of the record, and of each engine
}

// Table compares engines with what was recorded, and with each other.
func Table(tallies []*Tally) []Row {
	row := func(name, was string, is func(t *Tally) string) Row {
		r := Row{Name: name, Values: []string{was}}
		for _, t := range tallies {
			r.Values = append(r.Values, is(t))
		}
		return r
	}

	answered := func(t *Tally) int { return t.Asked - t.Failed }
	rows := []Row{
		row("calls", "", func(t *Tally) string { return strconv.Itoa(t.Asked) }),
		row("refused or broken", "", func(t *Tally) string { return strconv.Itoa(t.Failed) }),
		row("the same in all channels", "", func(t *Tally) string { return percent(t.SameAll, answered(t)) }),
		row("the same reasoning", "", func(t *Tally) string { return percent(t.SameReasoning, answered(t)) }),
		row("the same answer", "", func(t *Tally) string { return percent(t.SameFinal, answered(t)) }),
		row("the same tool calls", "", func(t *Tally) string { return percent(t.SameCalls, answered(t)) }),
		row("finish", "", (*Tally).FinishText),
	}

	if len(tallies) == 0 {
		return rows
	}

	// All have the same records: the first one's figures of them are everyone's.
	first := tallies[0]
	for _, name := range []string{inReasoning, inFinal, inCalls, inOther} {
		mean := func(tokens map[string]int, t *Tally) string {
			if answered(t) == 0 {
				return "–"
			}
			return fmt.Sprintf("%.1f", float64(tokens[name])/float64(answered(t)))
		}
		rows = append(rows, row("tokens of "+name+", mean", mean(first.Was, first),
			func(t *Tally) string { return mean(t.Is, t) }))
	}

	ms := func(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
	_, _, wasFirst, wasWhole := first.Times()
	return append(rows,
		row("first token, median", ms(wasFirst), func(t *Tally) string { d, _, _, _ := t.Times(); return ms(d) }),
		row("whole output, median", ms(wasWhole), func(t *Tally) string { _, d, _, _ := t.Times(); return ms(d) }))
}
