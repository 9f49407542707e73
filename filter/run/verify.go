package run

import (
	"context"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// verifier holds back the answer of an engine that takes no grammar, until it is
// known whether the answer has the form that the request asks for.
type verifier struct {
	check   *turn.Check
	verdict turn.Verdict
	held    []engine.Chunk

	// deciding says that a job decides whether the whole answer has its form. What the
	// engine's call comes to meanwhile waits for the decision: its end, or how it broke.
	deciding bool
	ended    bool
	broken   error
}

// newVerifier returns nil if there is nothing to check.
func newVerifier(check *turn.Check) *verifier {
	if check == nil {
		return nil
	}
	return &verifier{check: check}
}

// decision is the [api.Job] that decides whether an answer has its form. Its result is a
// [turn.Verdict].
type decision struct{ check *turn.Check }

// Do implements [api.Job].
func (d decision) Do(ctx context.Context) (any, error) { return d.check.Decide(ctx), nil }

// deciding reports whether the answer is whole, and a job decides whether it has its form.
func (r *Run) deciding() bool { return r.call.verifier != nil && r.call.verifier.deciding }

// waits reports whether the end of the model call waits for a decision about its answer.
// cause is what has broken the call; nil: it is complete.
func (r *Run) waits(cause error) bool {
	if !r.deciding() {
		return false
	}
	v := r.call.verifier
	v.ended = v.ended || cause == nil
	if v.broken == nil {
		v.broken = cause
	}
	return true
}

// verify holds chunks back until there is a verdict, and returns all of them then:
// also those of an answer of the wrong form, which the reply ends with. Before
// that the call is made once more, if it can be; repeated reports that it is.
func (r *Run) verify(chunks []engine.Chunk) (verified []engine.Chunk, repeated bool) {
	v := r.call.verifier
	for i := range chunks {
		v.hold(&chunks[i])
		if v.verdict == turn.Undecided {
			v.verdict = v.check.Push(&chunks[i])
		}
	}

	switch {
	case v.deciding:
		return nil, false
	case v.verdict == turn.Undecided:
		if len(chunks) > 0 {
			r.resetIdle()
		}
		return nil, false
	case v.verdict == turn.Complete:
		// Most answers are decided in less time than a job takes to begin.
		v.verdict = v.check.DecideSoon()
	}
	if v.verdict != turn.Complete {
		return r.release()
	}

	// The decision takes long: the run has to receive from its client and its timers meanwhile.
	// The engine owes nothing any more except its counts.
	r.timers.Clear(TimerFirst)
	r.timers.Clear(TimerIdle)
	v.deciding = true
	r.o.Executor.Beside(decision{v.check})
	return nil, false
}

// takeDecision takes a decision about the whole answer.
func (v *verifier) takeDecision(verdict turn.Verdict) { v.deciding, v.verdict = false, verdict }

// release returns what was held back, whatever the verdict. Before an answer of the wrong
// form the call is made once more, if it can be; repeated reports that it is.
func (r *Run) release() (verified []engine.Chunk, repeated bool) {
	v := r.call.verifier
	if v.verdict == turn.Unkept && r.o.Mode == api.Loop && !r.call.repeated {
		// From the beginning, also where other calls have continued the first one: what they
		// have made of it is a part of the wrong answer.
		first := r.call.request
		if r.continuation.request != nil {
			first = r.continuation.request
		}
		r.continuation.current = allChoices
		r.repeat(withOtherSeed(first), Retry{}, "unkept_format")
		return nil, true
	}

	v.check.Settle(v.verdict)
	r.call.verifier = nil
	return v.held, false
}

// decided takes the verdict of a job about the whole answer, and then what the model call
// came to while the job was done.
func (r *Run) decided(verdict turn.Verdict) {
	v := r.call.verifier
	v.takeDecision(verdict)
	chunks, repeated := r.release()
	if repeated || r.pushAll(chunks) {
		return
	}

	switch {
	case v.broken != nil:
		r.callFailed(v.broken)
	case v.ended:
		r.callComplete()
	default:
		r.flush(false)
	}
}

// hold keeps a chunk. Most chunks are a token or two: these join the chunk before.
func (v *verifier) hold(c *engine.Chunk) {
	if c.Finish == engine.FinishNone && c.Usage == nil && c.Fingerprint == "" && c.Logprobs == nil {
		for i := range slices.Backward(v.held) {
			if last := &v.held[i]; last.Index == c.Index && last.Logprobs == nil {
				last.Tokens = append(last.Tokens, c.Tokens...)
				return
			} else if last.Index == c.Index {
				break
			}
		}
	}
	v.held = append(v.held, c.Clone())
}

// withOtherSeed is a request that the engine may answer otherwise.
func withOtherSeed(r *engine.Request) engine.Request {
	other := *r
	if r.Seed != nil {
		seed := *r.Seed + 1
		other.Seed = &seed
	}
	return other
}
