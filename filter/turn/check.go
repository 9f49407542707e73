package turn

import (
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// Verdict is what a [Check] knows of an answer.
type Verdict uint8

// The verdicts. Unkept is certain; Passed is that the answer is what the request
// asks for, or fails for another reason, which its own reader tells.
const (
	Undecided Verdict = iota
	Passed
	Unkept
)

// Check reads the answer to a model call whose engine cannot be made to keep
// what the request promises, before anybody is shown it.
type Check struct {
	readers []*Reader
	open    int // choices that have not ended
}

// NewCheck begins a check, nil if the request promises nothing or the engine
// sees to it.
func (t *Turn) NewCheck() *Check {
	if !t.kept.checked {
		return nil
	}
	c := &Check{readers: make([]*Reader, t.Engine.N), open: t.Engine.N}
	for i := range c.readers {
		c.readers[i] = t.NewReader(func(Event) {})
		c.readers[i].trial = true
	}
	return c
}

// Push reads news from the engine. After a verdict nothing more is to be pushed.
func (c *Check) Push(chunk *engine.Chunk) Verdict {
	if chunk.Refusal(len(c.readers)) != nil {
		return Passed
	}
	r := c.readers[chunk.Index]
	open := r.Finish() == FinishNone
	if _, err := r.Push(chunk); err != nil {
		if err.Code == codeUnkept {
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
