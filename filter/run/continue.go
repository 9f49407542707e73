package run

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// shortOutput is how many tokens of an output are kept without memory of their own.
const shortOutput = 64

// continuation is the output of a step's model call so far: other calls can continue it.
// The first call makes all choices. A call that continues makes one, and the choices
// that are not complete follow one after the other.
type continuation struct {
	request   *engine.Request // of the step's first call; nil: its choices are not continued
	turn      *turn.Turn
	choices   []output
	current   int             // the choice that the call being made continues; allChoices
	begun     int             // tokens of that choice before the call being made
	calls     int             // that have continued choices of this step
	again     int             // how often reasoning of these was ended that had been ended before
	lost      int             // calls of the reply that were lost and continued
	asked     int             // arguments of the reply's calls that were asked for again
	cause     *apierror.Error // by which the output ended; nil: it has not
	counted   bool            // the step's counts of cached tokens are known
	guarded   bool            // the choices have guards
	one       [1]output
	beginning [shortOutput]harmony.Token
}

// allChoices says that the step's first call is being made.
const allChoices = -1

// output is the output of a choice so far.
type output struct {
	tokens []harmony.Token
	done   bool              // its end has come
	guard  *turn.Guard       // nil: the model is not interrupted
	why    turn.Interruption // the model was interrupted behind the tokens
	again  *engine.Request   // by which the arguments of a call were asked for again; nil: they were not
	before int               // tokens before these arguments
}

// rest returns the request for what is missing of a choice; nil if there is none.
func (k *continuation) rest(o *output, more ...harmony.Token) *engine.Request {
	if o.again != nil {
		return o.again.Continued(k.turn.Stating(), slices.Concat(o.tokens[o.before:], more))
	}
	return k.request.Continued(k.turn.Stating(), slices.Concat(o.tokens, more))
}

// begin keeps the output of a step's first call. kept says that it is kept also if no
// guard needs it.
func (k *continuation) begin(req *engine.Request, t *turn.Turn, kept bool) {
	guard := k.newGuard(t)
	k.request, k.turn, k.guarded, k.cause = nil, t, guard != nil, nil
	if guard == nil && !kept {
		return
	}
	k.request, k.current, k.begun, k.calls, k.again, k.counted = req, allChoices, 0, 0, 0, false
	if req.N == 1 {
		k.one[0] = output{tokens: k.beginning[:0], guard: guard}
		k.choices = k.one[:]
		return
	}
	k.choices = make([]output, req.N)
	for i := range k.choices {
		if k.choices[i].guard = guard; guard != nil {
			guard = k.newGuard(t)
		}
	}
}

// newGuard returns the guard of a choice; nil if the model is never interrupted.
func (k *continuation) newGuard(t *turn.Turn) *turn.Guard {
	guard := t.NewGuard()
	if guard != nil && k.asked >= maxAsked {
		guard.AskNoMore()
	}

	return guard
}

// restart drops the output of a call that is repeated.
func (k *continuation) restart() {
	switch {
	case k.request == nil:
	case k.current == allChoices:
		k.begin(k.request, k.turn, true)
	default:
		k.dropHeld()
	}
}

// dropHeld drops what the guards hold back of a call that was lost.
func (k *continuation) dropHeld() {
	for i := range k.choices {
		if o := &k.choices[i]; o.guard != nil && !o.done {
			o.guard.Lost(o.tokens)
		}
	}
}

// take keeps the output of chunks, and gives them the indexes of their choices. It
// returns the chunks without what came after the model was interrupted.
func (k *continuation) take(chunks []engine.Chunk) []engine.Chunk {
	if k.request == nil {
		return chunks
	}
	kept := 0
	for i := range chunks {
		c := &chunks[i]
		if k.current != allChoices {
			if c.Index != 0 {
				c.Index = len(k.choices) // the call has one choice
			} else {
				c.Index = k.current
			}
		}
		if c.Index >= 0 && c.Index < len(k.choices) && !k.choices[c.Index].take(c) {
			continue
		}
		if kept != i {
			chunks[kept] = *c
		}
		kept++
	}
	return chunks[:kept]
}

// take keeps the output of a chunk. It reports whether the chunk has something for the
// reply.
func (o *output) take(c *engine.Chunk) bool {
	if o.guard != nil {
		if o.why == turn.NotInterrupted {
			o.guarded(c)
		} else {
			c.Tokens, c.Logprobs, c.Finish = nil, nil, engine.FinishNone
		}
	}
	o.tokens = append(o.tokens, c.Tokens...)
	o.done = o.done || c.Finish != engine.FinishNone && c.Finish != engine.FinishAbort
	return len(c.Tokens) > 0 || c.Finish != engine.FinishNone || c.Usage != nil || c.Fingerprint != ""
}

// guarded gives the chunk the tokens that the guard lets through. Log probabilities belong
// to the tokens of the chunk itself: answers have some, the arguments of calls have none.
func (o *output) guarded(c *engine.Chunk) {
	own := len(c.Tokens)
	c.Tokens, o.why = o.guard.Push(c.Tokens)
	switch {
	case o.why != turn.NotInterrupted:
		c.Finish = engine.FinishNone
	case c.Finish != engine.FinishNone && c.Finish != engine.FinishAbort:
		if held := o.guard.Release(); len(held) > 0 {
			c.Tokens = slices.Concat(c.Tokens, held)
		}
	}
	if c.Logprobs = c.Logprobs[:min(len(c.Tokens), len(c.Logprobs))]; len(c.Tokens) > own {
		c.Logprobs = nil
	}
}

// interrupted reports whether the model call is to be ended, because the model was
// interrupted in all choices that are not complete.
func (k *continuation) interrupted() bool {
	if !k.guarded || k.request == nil {
		return false
	}
	found := false
	for i := range k.choices {
		o := &k.choices[i]
		if k.current != allChoices && i != k.current {
			continue
		}
		if !o.done && o.why == turn.NotInterrupted {
			return false
		}
		found = found || o.why != turn.NotInterrupted
	}
	return found
}

// continues reports whether the call being made continues a choice.
func (k *continuation) continues() bool { return k.request != nil && k.current != allChoices }

// grown reports whether the call being made continues a choice, and has had output.
func (k *continuation) grown() bool {
	return k.continues() && len(k.choices[k.current].tokens) > k.begun
}

// count corrects the counts of a call that continues a choice. Its prompt includes
// output; the counts of the call before count, if it has reported any.
func (k *continuation) count(c *engine.Chunk) {
	switch {
	case c.Usage == nil:
	case !k.continues():
		k.counted = true
	case k.counted:
		c.Usage = nil
	default:
		k.counted = true
		c.Usage.CachedTokens = min(c.Usage.CachedTokens, len(k.request.Prompt))
	}
}

// next returns the first choice that is not complete; ok is false if there is none.
func (k *continuation) next() (i int, ok bool) {
	for i := range k.choices {
		if k.request != nil && !k.choices[i].done {
			return i, true
		}
	}
	return 0, false
}

// possible reports whether all choices that are not complete can be continued by
// another engine: some output is there, what is left can be stated, and no call is
// complete, which the client may be executing.
func (k *continuation) possible() bool {
	written := false
	for i := range k.choices {
		o := &k.choices[i]
		written = written || len(o.tokens) > 0
		if o.done || k.ended(o) {
			continue
		}
		if turn.HasCall(o.tokens) || len(o.tokens) < k.request.MaxTokens && k.rest(o) == nil {
			return false
		}
	}
	return written
}

// ended reports whether only the engine's word is missing that a choice has ended.
func (k *continuation) ended(o *output) bool {
	return len(o.tokens) > 0 && k.request.Stops(o.tokens[len(o.tokens)-1])
}

// following returns the request that continues a choice. If there is none, the choice has
// its end: finish says which.
func (k *continuation) following(o *output) (req *engine.Request, finish engine.Finish) {
	if k.ended(o) {
		return nil, engine.FinishStop
	}
	if req = k.rest(o); req == nil {
		return nil, engine.FinishLength
	}
	k.calls++
	req.ID = fmt.Sprintf("%s-c%d", k.request.ID, k.calls)
	return req, engine.FinishNone
}

// maxAgain bounds how often a model that reasons on is interrupted again, in all choices of a
// step together: each time is a model call. A model that is left to choose its next message
// can reason on, and so can one behind its answer.
const maxAgain = 3

// ending returns the tokens by which the interrupted reasoning of a choice is ended; none
// if the choice ends there.
func (k *continuation) ending(o *output) []harmony.Token {
	if !o.guard.Reasoning() {
		return nil
	}
	if o.guard.Interrupted() {
		if k.again == maxAgain {
			return nil
		}
		k.again++
	}
	for _, tokens := range o.guard.Endings(k.again == maxAgain) {
		if k.rest(o, tokens...) != nil {
			return tokens
		}
	}
	return nil
}

// continueOrFail continues the choices of a lost call with calls of another replica, if
// that is possible and allowed. Else it fails the reply: with the error by which the
// output ended, and not with that of a call that was to continue it and had none.
func (r *Run) continueOrFail(err *apierror.Error) {
	k := &r.cont
	if k.request == nil || r.failing {
		r.fail(err)
		return
	}
	if !k.continues() || k.grown() {
		k.cause = err
	}
	if k.lost >= r.env.Limits.Continuations || !k.possible() {
		r.fail(cmp.Or(k.cause, err)) // there is no cause behind an interruption
		return
	}
	k.lost++
	k.dropHeld()
	r.env.Telemetry.Continued(r.rec, err.Code, r.now)
	r.continueNext(Retry{Number: 1, Excluded: cmp.Or(r.call.replica, r.call.retry.Excluded), SamePrefill: true})
}

// continueNext continues the first choice that is not complete. If there is none, the
// step is complete.
func (r *Run) continueNext(retry Retry) {
	k := &r.cont
	for i, ok := k.next(); ok; i, ok = k.next() {
		o := &k.choices[i]
		if o.why != turn.NotInterrupted && r.endReasoning(i, o) {
			return
		}
		if o.done {
			continue
		}
		req, finish := k.following(o)
		if req != nil {
			k.current, k.begun = i, len(o.tokens)
			r.call.id, r.call.repeated = req.ID, false
			r.timers.Clear(TimerHold)
			r.reserveAgain(k.left(), func() { r.sendCall(req, retry) }, r.endsWithBudget)
			return
		}
		if r.endChoice(i, finish) {
			return
		}
	}
	if !r.waits(nil) {
		r.advance()
	}
}

// maxAsked is how often the calls of a reply have their arguments asked for again: each time
// the whole output is a prompt, and is parsed anew. Then arguments are passed on as they are.
const maxAsked = 8

// left is how many output tokens the choices may still have that are not complete.
func (k *continuation) left() (n int) {
	for i := range k.choices {
		if o := &k.choices[i]; !o.done {
			n += k.request.MaxTokens - len(o.tokens)
		}
	}
	return n
}

// askAgain has the next call of a choice generate the arguments anew that follow its
// output: of the form that the tool takes.
func (k *continuation) askAgain(o *output) {
	again := *k.request
	again.Constraint = nil
	o.again, o.before = again.Continued(k.turn.Stating(), o.tokens), len(o.tokens)
	if format := o.guard.Again(o.tokens); o.again != nil {
		o.again.Constraint = format
	}

	k.asked++
	if k.asked == maxAsked {
		for i := range k.choices {
			k.choices[i].guard.AskNoMore()
		}
	}
}

// endReasoning ends the reasoning of a choice in which the model was interrupted, or the
// choice if nothing else is possible. Arguments of a call are asked for again. It reports
// whether the model call is over.
func (r *Run) endReasoning(i int, o *output) (over bool) {
	r.env.Telemetry.Interrupted(r.rec, string(o.why), r.now)
	if o.why == turn.InvalidCall {
		o.why = turn.NotInterrupted
		r.cont.askAgain(o)
		return false
	}
	tokens := r.cont.ending(o)
	o.why = turn.NotInterrupted
	if tokens == nil {
		return r.endChoice(i, engine.FinishLength)
	}
	o.tokens = append(o.tokens, tokens...)
	o.guard.Ended(tokens)
	r.spend.total += len(tokens) // they are output of the reply
	r.spendOutput(len(tokens))
	return r.deliver([]engine.Chunk{{Index: i, Tokens: tokens, Inserted: true}})
}

// endChoice ends a choice in place of the engine. It reports whether the model call is
// over.
func (r *Run) endChoice(i int, finish engine.Finish) (over bool) {
	o := &r.cont.choices[i]
	o.done = true
	end := engine.Chunk{Index: i, Finish: finish}
	if o.guard != nil {
		end.Tokens = o.guard.Release()
	}
	return r.deliver([]engine.Chunk{end})
}

// callComplete takes the end of a model call whose output is complete.
func (r *Run) callComplete() {
	if r.waits(nil) {
		return
	}
	if r.cont.continues() || r.cont.interrupted() {
		r.continueNext(Retry{})
		return
	}
	r.advance()
}
