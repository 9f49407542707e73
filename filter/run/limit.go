package run

import (
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// interruptedByLimit is the reason why output ends that an engine would have made longer
// than it was asked to.
const interruptedByLimit = "output_limit"

// outputLimit holds the choices of one model call to the limit that the engine was told,
// whatever the engine does. The zero value is of a call without choices.
//
// An engine counts every token that it sends: reasoning, headers, and the token at which it
// stops. So does the limit. An engine that keeps it is never cut: the token at the limit may
// still be the one that ends the choice, and its word that the limit is reached may come
// after it.
type outputLimit struct {
	left []int // tokens that a choice may still have; limitPassed
	open int   // choices that have no end yet
	cut  bool  // a choice was cut
	one  [1]int
}

// limitPassed is what is left of a choice that was cut.
const limitPassed = -1

// begin begins the output of a call.
func (l *outputLimit) begin(req *engine.Request) {
	l.open, l.cut = req.N, false
	if l.left = l.one[:]; req.N != 1 {
		l.left = make([]int, req.N)
	}
	for i := range l.left {
		l.left[i] = req.MaxTokens
	}
}

// take cuts chunks of the call. It returns those before the end of the last choice, if that
// one or another was cut: what follows, such as counts, comes of a call that is over.
func (l *outputLimit) take(chunks []engine.Chunk) []engine.Chunk {
	for i := range chunks {
		c := &chunks[i]
		if c.Index < 0 || c.Index >= len(l.left) {
			continue // the reply refuses it
		}
		l.takeOne(c)
		if l.over() {
			return chunks[:i+1]
		}
	}
	return chunks
}

func (l *outputLimit) takeOne(c *engine.Chunk) {
	left := &l.left[c.Index]
	switch n := len(c.Tokens); {
	case *left == limitPassed:
		c.Tokens, c.Logprobs, c.Finish = nil, nil, engine.FinishNone
		return
	case n > *left:
		c.Tokens, c.Logprobs, c.Finish = c.Tokens[:*left], c.Logprobs[:min(*left, len(c.Logprobs))], engine.FinishLength
		*left, l.cut = limitPassed, true
	default:
		*left -= n
	}
	if c.Finish != engine.FinishNone && c.Finish != engine.FinishAbort {
		l.open--
	}
}

// over reports whether the engine goes on although no choice of the call does: nobody waits
// for its own end then.
func (l *outputLimit) over() bool { return l.cut && l.open == 0 }
