package run

import (
	"context"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// verifierPhase is how far a verifier has come. Who leaves a phase:
//
//	phase     how it is left                                              for
//	holds     take: the answer has its form, or has not                   decided
//	          take: it is whole, and whether it has its form takes long   deciding
//	deciding  decide: a job says it                                       decided
//	decided   by nobody: the run passes on what was held back, or drops it with the call
type verifierPhase uint8

const (
	verifierHolds verifierPhase = iota
	verifierDeciding
	verifierDecided
)

// verifier holds back the answer of an engine that takes no grammar, until it is
// known whether the answer has the form that the request asks for.
type verifier struct {
	check   *turn.Check
	phase   verifierPhase
	verdict turn.Verdict
	held    []engine.Chunk

	// pending is what the engine's call comes to while a job decides: its end, or how it broke.
	pending outcome
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

// take holds chunks back. If the answer is whole with them, it is decided, or is to be decided
// by a [decision].
func (v *verifier) take(chunks []engine.Chunk) {
	for i := range chunks {
		v.hold(&chunks[i])
		if v.verdict == turn.Undecided {
			v.verdict = v.check.Push(&chunks[i])
		}
	}
	if v.phase != verifierHolds || v.verdict == turn.Undecided {
		return
	}

	v.phase = verifierDecided
	if v.verdict != turn.Complete {
		return
	}
	// Most answers are decided in less time than a job takes to begin.
	if v.verdict = v.check.DecideSoon(); v.verdict == turn.Complete {
		v.phase = verifierDeciding
	}
}

// decide takes a decision about the whole answer. It returns what the model call has come to
// meanwhile.
func (v *verifier) decide(verdict turn.Verdict) outcome {
	v.phase, v.verdict = verifierDecided, verdict
	return v.pending
}

// wait keeps what the call has come to until the answer is decided. What has broken the call
// counts in place of its end, and the first such thing.
func (v *verifier) wait(o outcome) {
	switch {
	case v.pending.over == overLost:
	case o.over == overLost:
		v.pending = lostBy(o.err)
	default:
		v.pending = outcome{over: overComplete}
	}
}

// settle says that the verdict holds, and returns what was held back, whatever the verdict: an
// answer of the wrong form, that no other takes the place of, is what the reply ends with.
func (v *verifier) settle() []engine.Chunk {
	v.check.Settle(v.verdict)
	return v.held
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
