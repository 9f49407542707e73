package run

import (
	"cmp"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// What becomes of a model call that is lost: its connection breaks, its answer ends too early
// or with an error, the engine aborts it, or is silent for too long. An engine that dies while
// it makes the arguments of a call is such a one. What is done at most (remedy) depends on how it
// shows:
//
//	a broken connection, an error event, trailers, an abort     by its status: lostBy
//	an answer that ends too early, without an error              repeat: modelCall.end
//	a 503 after Envoy's own retries                              continue: modelCall.rejected
//	no event in time                                             continue: Run.expired
//
// The rows, in order:
//
//	where       question                                        answer
//	follow      does a job decide about the whole answer yet?   the decision first: it may need no more
//	lostBy      is its status 504?                              continue: as the filter's own deadlines
//	lostBy      is its status neither 502 nor 503?              fail: every replica would say the same
//	lost        is none of its output part of the reply?        repeat, once, at another replica
//	lose        does Envoy make the call (SingleCall)?          fail: nothing was kept to go on from
//	lost        is the reply failing already?                   fail
//	lose        are limits.max_continuations used up?           fail
//	possible    is a call complete, or a grammar cut?           fail
//	next        does a choice need only its end?                endChoice: nothing is missing
//	next        else, choice by choice                          a call at another replica
//
// A call that continues has the prompt followed by the output of its choice so far, and the
// limits that are left (choice.rest). So arguments that the engine had begun are completed by
// the other one, and the client notices nothing. Two kinds of arguments differ:
//
//   - Those that are checked before the client gets them (turn.Watcher holds them back) are not
//     part of the output until they are whole. dropHeld forgets the lost ones, and the other
//     engine makes them from the header of the call on.
//   - Those that are under a grammar of the request, which has begun: engines cannot begin in
//     the middle of one, so that nothing continues them, and the reply fails.
//
// A step whose model was interrupted (choicePhase) goes on by next too, without a loss. If the
// quota has no room for the call that would continue, the choices end as by their length
// (Run.endsWithQuota), without an error. The reply and its encoder never learn of a loss: the chunks of
// both engines are one output to the same turn.Reader.

// shortOutput is how many tokens of an output are kept without memory of their own.
const shortOutput = 64

// allChoices says that the step's first call is being made.
const allChoices = -1

// continuation is the output of a step's model call so far: other calls can continue it.
// The first call makes all choices. A call that continues makes one, and the choices
// that are not complete follow one after the other.
type continuation struct {
	// The step's first call, and its turn.
	request *engine.Request // nil: its choices are neither watched nor continued
	turn    *turn.Turn
	choices []choice
	watched bool // the choices have watchers

	// The call being made.
	current int // the choice that it continues; allChoices
	begun   int // tokens of that choice before it

	// Of the step.
	again   int  // how often reasoning was ended that had been ended before
	counted bool // the counts of cached tokens are known

	// Of the reply.
	lost  int             // calls that were lost and continued
	asked int             // arguments of calls that were asked for again
	cause *apierror.Error // by which the output ended; nil: it has not

	// Memory of the choices of most calls: one, with a short output. A call allocates nothing
	// for it.
	one       [1]choice
	beginning [shortOutput]harmony.Token
}

// begin keeps the output of a step's first call. kept says that it is kept also if no
// watcher needs it.
func (c *continuation) begin(req *engine.Request, t *turn.Turn, kept bool) {
	watcher := c.newWatcher(t)
	c.request, c.turn, c.watched, c.cause = nil, t, watcher != nil, nil
	if watcher == nil && !kept {
		return
	}

	c.request, c.current, c.begun = req, allChoices, 0
	c.again, c.counted = 0, false
	if req.N == 1 {
		c.one[0] = choice{asked: req, tokens: c.beginning[:0], watcher: watcher}
		c.choices = c.one[:]
		return
	}

	c.choices = make([]choice, req.N)
	for i := range c.choices {
		c.choices[i] = choice{asked: req, watcher: watcher}
		if watcher != nil {
			// The next choice has its own.
			watcher = c.newWatcher(t)
		}
	}
}

// newWatcher returns the watcher of a choice; nil if the model is never interrupted.
func (c *continuation) newWatcher(t *turn.Turn) *turn.Watcher {
	watcher := t.NewWatcher()
	if watcher != nil && c.asked >= maxAsked {
		watcher.AskNoMore()
	}

	return watcher
}

// restart drops the output of a call that is repeated.
func (c *continuation) restart() {
	switch {
	case c.request == nil:
	case c.current == allChoices:
		c.begin(c.request, c.turn, true)
	default:
		// The choice keeps what other calls have made of it.
		c.dropHeld()
	}
}

// dropHeld drops what the watchers hold back of a call that was lost.
func (c *continuation) dropHeld() {
	for i := range c.choices {
		if choice := &c.choices[i]; choice.watcher != nil && !choice.done() {
			choice.watcher.Lost(choice.tokens)
		}
	}
}

// take keeps the output of chunks, and gives them the indexes of their choices. It
// returns the chunks without what came after the model was interrupted.
func (c *continuation) take(chunks []engine.Chunk) []engine.Chunk {
	if c.request == nil {
		return chunks
	}

	kept := 0
	for i := range chunks {
		chunk := &chunks[i]
		if c.current != allChoices {
			// The call has one choice. Another index is none of the reply, which refuses it.
			if chunk.Index != 0 {
				chunk.Index = len(c.choices)
			} else {
				chunk.Index = c.current
			}
		}

		known := chunk.Index >= 0 && chunk.Index < len(c.choices)
		if known && !c.choices[chunk.Index].take(chunk) {
			continue
		}
		if kept != i {
			chunks[kept] = *chunk
		}
		kept++
	}

	return chunks[:kept]
}

// interrupted reports whether the model call is to be ended, because the model was
// interrupted in all choices that are not complete.
func (c *continuation) interrupted() bool {
	if !c.watched || c.request == nil {
		return false
	}

	found := false
	for i := range c.choices {
		// The other choices are no part of a call that continues one.
		if c.current != allChoices && i != c.current {
			continue
		}
		switch c.choices[i].phase {
		case choiceInterrupted:
			found = true
		case choiceOpen, choiceAskedAgain:
			return false
		}
	}

	return found
}

// continues reports whether the call being made continues a choice.
func (c *continuation) continues() bool { return c.request != nil && c.current != allChoices }

// grown reports whether the call being made continues a choice, and has had output.
func (c *continuation) grown() bool {
	return c.continues() && len(c.choices[c.current].tokens) > c.begun
}

// count corrects the counts of a call that continues a choice. Its prompt includes
// output; the counts of the call before count, if it has reported any.
func (c *continuation) count(chunk *engine.Chunk) {
	switch {
	case chunk.Usage == nil:
	case !c.continues():
		c.counted = true
	case c.counted:
		chunk.Usage = nil
	default:
		// Cached output was in the cache because it was made there, and is no part of the
		// prompt that the client pays for.
		c.counted = true
		chunk.Usage.CachedTokens = min(chunk.Usage.CachedTokens, len(c.request.Prompt))
	}
}

// possible reports whether another engine can go on where the lost one stopped.
func (c *continuation) possible() bool {
	anyOutput := false
	for i := range c.choices {
		choice := &c.choices[i]
		anyOutput = anyOutput || len(choice.tokens) > 0

		// The lost engine owed this choice nothing but the word that it has ended.
		if choice.done() || choice.stopped() {
			continue
		}

		// The client may be executing a complete call already. Another engine could make a
		// different one in its place, and both would be executed.
		if c.turn.HasCall(choice.tokens) {
			return false
		}

		// There is room for more output, but what is left cannot be stated as a request, such
		// as the rest of a grammar that has begun.
		if len(choice.tokens) < c.request.MaxTokens && choice.rest(c.turn) == nil {
			return false
		}
	}

	// Without any output there is nothing to continue. Such a call was repeated before, or it
	// has been repeated already.
	return anyOutput
}

// following returns the request that continues a choice. If there is none, the choice has
// its end: finish says which.
func (c *continuation) following(choice *choice) (req *engine.Request, finish engine.Finish) {
	if choice.stopped() {
		return nil, engine.FinishStop
	}
	if req = choice.rest(c.turn); req == nil {
		return nil, engine.FinishLength
	}
	return req, engine.FinishNone
}

// maxAgain bounds how often a model that reasons on is interrupted again, in all choices of a
// step together: each time is a model call. A model that is left to choose its next message
// can reason on, and so can one after its answer.
const maxAgain = 3

// ending returns the tokens by which the interrupted reasoning of a choice is ended; none
// if the choice ends there.
func (c *continuation) ending(choice *choice) []harmony.Token {
	// A repetition in an answer has no message after it that could be better.
	if !choice.watcher.Reasoning() {
		return nil
	}

	if choice.watcher.Interrupted() {
		if c.again == maxAgain {
			return nil
		}
		c.again++
	}

	for _, tokens := range choice.watcher.Endings(c.again == maxAgain) {
		if choice.rest(c.turn, tokens...) != nil {
			return tokens
		}
	}
	return nil
}

// maxAsked is how often the calls of a reply have their arguments asked for again: each time
// the whole output is a prompt, and is parsed anew. Then arguments are passed on as they are.
const maxAsked = 8

// askAgain has the arguments of a choice's call asked for again.
func (c *continuation) askAgain(choice *choice) {
	choice.askAgain(c.turn, c.request)

	c.asked++
	if c.asked == maxAsked {
		for i := range c.choices {
			c.choices[i].watcher.AskNoMore()
		}
	}
}

// kept is how many tokens of output the choices have so far.
func (c *continuation) kept() (n int) {
	for i := range c.choices {
		n += len(c.choices[i].tokens)
	}
	return n
}

// left is how many output tokens the choices may still have that are not complete.
func (c *continuation) left() (n int) {
	for i := range c.choices {
		if choice := &c.choices[i]; !choice.done() {
			n += c.request.MaxTokens - len(choice.tokens)
		}
	}
	return n
}

// lose takes that the call being made is lost, by err, and that another one is to continue its
// choices, of at most so many in a reply. It returns the error with which the reply fails if that
// is not possible: the one by which the output ended, and not that of a call that was to continue
// it and had none.
func (c *continuation) lose(err *apierror.Error, most int) (fails *apierror.Error) {
	if c.request == nil {
		return err
	}

	// A call that was to continue a choice and had no output has not ended it.
	if !c.continues() || c.grown() {
		c.cause = err
	}
	if c.lost >= most || !c.possible() {
		// There is no cause after an interruption.
		return cmp.Or(c.cause, err)
	}

	c.lost++
	c.dropHeld()
	return nil
}

// fromBeginning returns the request from which a wrong answer is made anew. It drops also what
// other calls have made of it that have continued the first one.
func (c *continuation) fromBeginning(now *engine.Request) *engine.Request {
	c.current = allChoices
	return cmp.Or(c.request, now)
}

// further is how a step goes on after a model call.
type further struct {
	// call continues a choice; nil: none does, or not yet.
	call *engine.Request

	// output is what a choice gets in place of an engine's, of which inserted tokens count as made,
	// and interrupted is why the model was interrupted there; NotInterrupted: it was not.
	output      []engine.Chunk
	inserted    int
	interrupted turn.Interruption

	complete bool // all choices have their ends
}

// next is how the step goes on: with the first choice that is not complete. It is called until a
// model call follows, or the step is complete.
func (c *continuation) next() further {
	i := slices.IndexFunc(c.choices, func(choice choice) bool { return !choice.done() })
	if c.request == nil || i < 0 {
		return further{complete: true}
	}

	choice := &c.choices[i]
	if choice.phase == choiceInterrupted {
		return c.endInterruption(i)
	}
	req, finish := c.following(choice)
	if req == nil {
		return further{output: c.endChoice(i, finish)}
	}
	c.current, c.begun = i, len(choice.tokens)
	return further{call: req}
}

// endInterruption lets a choice go on in which the model was interrupted, or ends it if
// nothing else is possible.
func (c *continuation) endInterruption(i int) further {
	choice := &c.choices[i]
	f := further{interrupted: choice.reason}
	if choice.reason == turn.InvalidCall {
		c.askAgain(choice)
		return f
	}

	tokens := c.ending(choice)
	if tokens == nil {
		f.output = c.endChoice(i, engine.FinishLength)
		return f
	}
	choice.leave(choiceOpen)
	choice.tokens = append(choice.tokens, tokens...)
	choice.watcher.Ended(tokens)

	// No engine has made these tokens, but they are output: the client sees and pays them.
	f.output, f.inserted = []engine.Chunk{{Index: i, Tokens: tokens, Inserted: true}}, len(tokens)
	return f
}

// endChoice ends a choice in place of the engine, and returns its end.
func (c *continuation) endChoice(i int, finish engine.Finish) []engine.Chunk {
	choice := &c.choices[i]
	choice.leave(choiceDone)
	end := engine.Chunk{Index: i, Finish: finish}
	if choice.watcher != nil {
		end.Tokens = choice.watcher.Release()
	}
	return []engine.Chunk{end}
}
