package enginesim

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// harmless are the ids of the words the model says when nothing is asked.
var harmless = sync.OnceValue(func() []harmony.Token {
	ids := encode(" the quick brown fox jumps over a lazy dog while seven small green boats sail past old stone" +
		" houses near quiet water and bright morning light falls on every open window of the town")
	slices.Sort(ids)
	return slices.Compact(ids)
})

// limits say when an engine ends a choice.
type limits struct {
	minTokens, maxTokens int
	stops                []harmony.Token
	grammar              *grammar // nil: the model may say anything
}

// eos are the ends of sequence in gpt-oss's generation_config: an engine stops
// there whatever the request says.
var eos = []harmony.Token{harmony.TokenReturn, harmony.TokenEndOfText, harmony.TokenCall}

// choice says one sequence token by token.
type choice struct {
	index int
	seq   sequence
	limits
	random *rand.Rand
	output []harmony.Token
	finish string // "" while it goes on
	lost   bool   // min_tokens kept it from stopping in the middle of its sequence
}

func newChoice(index int, seq sequence, l limits, seed uint64) *choice {
	return &choice{index: index, seq: seq, limits: l, random: rand.New(rand.NewPCG(seed, uint64(index)))}
}

// pause is how long the script waits before the next token.
func (c *choice) pause() time.Duration { return c.seq.delays[len(c.output)] }

// step says the next token.
func (c *choice) step() {
	id := c.next()
	c.output = append(c.output, id)
	switch {
	case len(c.output) >= c.minTokens && slices.Contains(c.stops, id):
		c.finish = "stop"
	case len(c.output) >= c.maxTokens:
		c.finish = "length"
	}
}

func (c *choice) next() harmony.Token {
	n := len(c.output)
	want := int32(harmony.TokenReturn)
	switch {
	case c.lost:
	case n < len(c.seq.ids):
		want = c.seq.ids[n]
	case len(c.seq.ids) > 0 && slices.Contains(c.seq.ids, anyWords):
		want = anyWords
	}
	if want < 0 {
		words := harmless()
		return words[c.random.IntN(len(words))]
	}
	id := harmony.Token(want)
	if n < c.minTokens && slices.Contains(c.stops, id) { // min_tokens forbids it
		c.lost = c.lost || n < len(c.seq.ids)-1
		if slices.Contains(c.stops, harmony.TokenEnd) {
			return harmless()[0]
		}
		return harmony.TokenEnd
	}
	return id
}
