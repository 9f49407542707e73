package run

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// verifier holds back the answer of an engine that takes no grammar, until it is
// known whether the answer has the form that the request asks for.
type verifier struct {
	check *turn.Check
	held  []engine.Chunk
}

// newVerifier returns nil if there is nothing to check.
func newVerifier(check *turn.Check) *verifier {
	if check == nil {
		return nil
	}
	return &verifier{check: check}
}

// verify holds chunks back until there is a verdict, and returns all of them then:
// also those of an answer of the wrong form, which the reply ends with. Before
// that the call is made once more, if it can be; repeated reports that it is.
func (r *Run) verify(chunks []engine.Chunk) (verified []engine.Chunk, repeated bool) {
	v := r.call.verifier
	verdict := turn.Undecided
	for i := range chunks {
		v.hold(&chunks[i])
		if verdict == turn.Undecided {
			verdict = v.check.Push(&chunks[i])
		}
	}
	switch {
	case verdict == turn.Unkept && r.o.Mode == api.Loop && !r.call.repeated:
		first := r.call.request
		if r.cont.request != nil {
			first = r.cont.request
		}
		r.cont.current = allChoices
		r.repeat(withOtherSeed(first), Retry{}, "unkept_format")
		return nil, true
	case verdict != turn.Undecided:
		r.call.verifier = nil
		return v.held, false
	case len(chunks) > 0:
		r.resetIdle()
	}
	return nil, false
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
