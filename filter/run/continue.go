package run

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
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
	choices   []output
	current   int             // the choice that the call being made continues; allChoices
	begun     int             // tokens of that choice before the call being made
	calls     int             // that have continued choices of this step
	lost      int             // calls of the reply that were lost and continued
	cause     *apierror.Error // by which the output ended; nil: it has not
	counted   bool            // the step's counts of cached tokens are known
	one       [1]output
	beginning [shortOutput]harmony.Token
}

// allChoices says that the step's first call is being made.
const allChoices = -1

// output is the output of a choice so far.
type output struct {
	tokens []harmony.Token
	done   bool // its end has come
}

// begin keeps the output of a step's first call.
func (k *continuation) begin(req *engine.Request) {
	k.request, k.current, k.begun, k.calls, k.counted = req, allChoices, 0, 0, false
	if req.N == 1 {
		k.one[0] = output{tokens: k.beginning[:0]}
		k.choices = k.one[:]
		return
	}
	k.choices = make([]output, req.N)
}

// take keeps the output of chunks, and gives them the indexes of their choices.
func (k *continuation) take(chunks []engine.Chunk) {
	if k.request == nil {
		return
	}
	for i := range chunks {
		c := &chunks[i]
		if k.current != allChoices {
			if c.Index != 0 {
				c.Index = -1 // the call has one choice
				continue
			}
			c.Index = k.current
		}
		if c.Index < 0 || c.Index >= len(k.choices) {
			continue
		}
		o := &k.choices[c.Index]
		o.tokens = append(o.tokens, c.Tokens...)
		o.done = o.done || c.Finish != engine.FinishNone && c.Finish != engine.FinishAbort
	}
}

// continues reports whether the call being made continues a choice.
func (k *continuation) continues() bool { return k.request != nil && k.current != allChoices }

// grown reports whether the call being made continues a choice, and has had output.
func (k *continuation) grown() bool {
	return k.continues() && len(k.choices[k.current].tokens) > k.begun
}

// restart drops the output of a first call that is repeated.
func (k *continuation) restart() {
	if k.request != nil && k.current == allChoices {
		k.begin(k.request)
	}
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
	if k.request == nil {
		return 0, false
	}
	for i := range k.choices {
		if !k.choices[i].done {
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
		if turn.HasCall(o.tokens) || len(o.tokens) < k.request.MaxTokens && k.request.Continued(o.tokens) == nil {
			return false
		}
	}
	return written
}

// ended reports whether only the engine's word is missing that a choice has ended.
func (k *continuation) ended(o *output) bool {
	return len(o.tokens) > 0 && k.request.Stops(o.tokens[len(o.tokens)-1])
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
		r.fail(k.cause)
		return
	}
	k.lost++
	r.env.Telemetry.Continued(r.rec, err.Code, r.now)
	r.continueNext(Retry{Number: 1, Excluded: r.call.replica})
}

// continueNext continues the first choice that is not complete. If there is none, the
// step is complete.
func (r *Run) continueNext(retry Retry) {
	k := &r.cont
	for {
		i, ok := k.next()
		if !ok {
			r.advance()
			return
		}
		o := &k.choices[i]
		req := k.request.Continued(o.tokens)
		if req != nil && !k.ended(o) {
			k.current, k.begun = i, len(o.tokens)
			k.calls++
			req.ID = fmt.Sprintf("%s-c%d", k.request.ID, k.calls)
			r.call.id, r.call.repeated = req.ID, false
			r.timers.Clear(TimerHold)
			r.sendCall(req, retry)
			return
		}
		finish := engine.FinishStop
		if !k.ended(o) {
			finish = engine.FinishLength
		}
		o.done = true
		if r.pushToReply(&engine.Chunk{Index: i, Finish: finish}) {
			return
		}
	}
}

// callComplete takes the end of a model call whose output is complete.
func (r *Run) callComplete() {
	if r.cont.continues() {
		r.continueNext(Retry{})
		return
	}
	r.advance()
}

// continuable reports whether the outputs of model calls are kept.
func (r *Run) continuable() bool {
	return r.o.Mode == api.Loop && r.env.Limits.Continuations > 0
}
