package output

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Verdict is the result of a [Check] so far.
//
//	Undecided ─▶ Complete ─▶ Passed, Unkept, Unchecked   by Decide
//	    └──────▶ Passed, Unkept                          by Push
type Verdict uint8

// The verdicts.
const (
	Undecided Verdict = iota
	Complete          // all choices have ended: [Check.Decide] says whether they follow their spec
	Passed            // the output follows its spec, or fails for another reason, which its own reader reports
	Unkept            // the output violates its spec
	Unchecked         // checking the output takes more work than the request has left
)

// Check verifies the answer to a model call before the client is sent any of it,
// for engines that cannot enforce the output's spec, or not all of it.
//
// What depends on texts, their schemas and expressions, can take long. It is left to
// Decide, which is not called between the chunks of a reply.
type Check struct {
	plan    *Plan
	readers []*Reader
	// Choices that have not ended.
	open int
	// That Decide verifies.
	texts []checkedText
}

// checkedText is a text of the output that has a form.
type checkedText struct {
	// Answer, or Call for the arguments of one.
	kind item.Kind
	// Of a Call.
	tool item.ToolName
	text []byte
}

// NewCheck begins a check; nil if any output is valid, or the engine enforces the
// spec.
func (p *Plan) NewCheck() *Check {
	if !p.verifier.alone && !p.verifier.held {
		return nil
	}

	c := &Check{plan: p, readers: make([]*Reader, p.Call.N), open: p.Call.N}
	for i := range c.readers {
		c.readers[i] = p.NewReader(func(item.Event) {})
		// The text is kept by the readers that the client's output comes from.
		c.readers[i].check, c.readers[i].keeps, c.readers[i].written = c, false, writtenTokens{}
	}
	return c
}

// Push takes a chunk of the engine. It must not be called after a verdict other
// than Undecided.
func (c *Check) Push(chunk *engine.Chunk) Verdict {
	if chunk.Refusal(len(c.readers)) != nil {
		return Passed
	}

	// A chunk that is no part of the reply, or output that is malformed, is reported by the reader of
	// the client's output.
	reader := c.readers[chunk.Index]
	open := reader.Finish() == item.FinishNone
	if _, err := reader.Push(chunk); err != nil {
		if err.Code == codeViolation {
			return Unkept
		}
		return Passed
	}

	if open && reader.Finish() != item.FinishNone {
		c.open--
	}
	if c.open == 0 {
		return Complete
	}
	return Undecided
}

// smallCheck is how many steps of work a check may take between two events of a run: about
// 5 ms.
const smallCheck = 100_000

// DecideSoon is Decide for output that takes little work. It returns Complete for other
// output.
func (c *Check) DecideSoon() Verdict {
	part := c.plan.rc.Work.Part(context.Background(), smallCheck)
	if part == nil {
		return Complete
	}

	// Unchecked means only that the part was too small.
	if v := c.decide(part); v != Unchecked {
		return v
	}
	return Complete
}

// Decide verifies the texts of the output, after the verdict Complete. It may take
// long, on a goroutine of its own, and ends early if ctx does.
func (c *Check) Decide(ctx context.Context) Verdict { return c.decide(c.plan.rc.Work.Within(ctx)) }

func (c *Check) decide(account *work.Account) Verdict {
	for i := range c.texts {
		follows, err := c.plan.verifier.follows(account, &c.texts[i])
		switch {
		case err != nil:
			return Unchecked
		case !follows:
			return Unkept
		}
	}
	return Passed
}

// Settle lets the turn's readers, which get the output next, take a verdict of Decide over.
func (c *Check) Settle(v Verdict) { c.plan.verifier.settled = v }
