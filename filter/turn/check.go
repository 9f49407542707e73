package turn

import (
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// Verdict is the result of a [Check] so far.
type Verdict uint8

// The verdicts.
const (
	Undecided Verdict = iota
	Passed            // the output follows its spec, or fails for another reason, which its own reader reports
	Unkept            // the output violates its spec
)

// Check verifies the answer to a model call before the client is sent any of it,
// for engines that cannot enforce the output's spec, or not all of it.
type Check struct {
	readers []*Reader
	open    int // choices that have not ended
}

// NewCheck begins a check; nil if any output is valid, or the engine enforces the
// spec. A nil Turn has nothing to check.
func (t *Turn) NewCheck() *Check {
	if t == nil || !t.verifier.alone && !t.verifier.held {
		return nil
	}
	c := &Check{readers: make([]*Reader, t.Engine.N), open: t.Engine.N}
	for i := range c.readers {
		c.readers[i] = t.NewReader(func(Event) {})
		c.readers[i].keeps = false
	}
	return c
}

// Push takes a chunk of the engine. It must not be called after a verdict other
// than Undecided.
func (c *Check) Push(chunk *engine.Chunk) Verdict {
	if chunk.Refusal(len(c.readers)) != nil {
		return Passed
	}
	r := c.readers[chunk.Index]
	open := r.Finish() == FinishNone
	if _, err := r.Push(chunk); err != nil {
		if err.Code == codeViolation {
			return Unkept
		}
		return Passed
	}
	if open && r.Finish() != FinishNone {
		c.open--
	}
	if c.open == 0 {
		return Passed
	}
	return Undecided
}
