package enginesim

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// fillerWords are the ids of the words that the model writes if nothing else is
// asked.
var fillerWords = sync.OnceValue(func() []harmony.Token {
	ids := encode(" the quick brown fox jumps over a lazy dog while seven small green boats sail past old stone" +
		" houses near quiet water and bright morning light falls on every open window of the town")
	slices.Sort(ids)
	return slices.Compact(ids)
})

// limits determine when an engine ends a choice.
type limits struct {
	minTokens, maxTokens int
	stops                []harmony.Token
	ignoreEOS            bool     // stops are only those of the request
	grammar              *grammar // nil: no constraint
}

// eos are the end-of-sequence tokens in gpt-oss's generation_config. An engine
// always stops at them.
var eos = []harmony.Token{harmony.TokenReturn, harmony.TokenEndOfText, harmony.TokenCall}

// choice generates one sequence token by token.
type choice struct {
	index int
	seq   sequence
	limits
	random  *rand.Rand
	output  []harmony.Token
	finish  string    // "" while the choice runs
	refused *apiError // why SGLang has ended it: its grammar
	offPlan bool      // min_tokens kept it from stopping within its sequence
}

func newChoice(index int, seq sequence, l limits, seed uint64) *choice {
	return &choice{index: index, seq: seq, limits: l, random: rand.New(rand.NewPCG(seed, uint64(index)))}
}

// pause returns the delay of the script before the next token.
func (c *choice) pause() time.Duration { return c.seq.delays[len(c.output)] }

// step generates the next token.
func (c *choice) step() {
	id := c.next()
	c.output = append(c.output, id)
	switch {
	// The stop token is part of the output and counts, as with real engines.
	case len(c.output) >= c.minTokens && slices.Contains(c.stops, id):
		c.finish = "stop"
	case len(c.output) >= c.maxTokens:
		c.finish = "length"
	}
}

// next returns the next token of the sequence, or a filler word where min_tokens
// forbids a stop.
func (c *choice) next() harmony.Token {
	n := len(c.output)
	// A sequence that has ended stops, unless something in it has no end.
	want := int32(harmony.TokenReturn)
	switch {
	case c.offPlan:
	case n < len(c.seq.ids):
		want = c.seq.ids[n]
	case len(c.seq.ids) > 0 && slices.Contains(c.seq.ids, fillerForever):
		want = fillerForever
	}

	if want < 0 {
		words := fillerWords()
		return words[c.random.IntN(len(words))]
	}

	id := harmony.Token(want)
	// An engine forbids all stop tokens before min_tokens. Nothing that comes later in the sequence may
	// follow where it would have stopped.
	if n < c.minTokens && slices.Contains(c.stops, id) {
		c.offPlan = c.offPlan || n < len(c.seq.ids)-1
		if slices.Contains(c.stops, harmony.TokenEnd) {
			return fillerWords()[0]
		}
		return harmony.TokenEnd
	}

	return id
}
