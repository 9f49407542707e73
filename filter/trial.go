package filter

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// trial holds back the answer of an engine that cannot be made to keep what the
// request promises, until it is known whether it does.
type trial struct {
	check *turn.Check
	held  []engine.Chunk
}

// newTrial begins the trial of an answer to the call being made, nil where there
// is nothing to be checked.
func (r *run) newTrial() *trial {
	if check := r.reply.NewCheck(); check != nil {
		return &trial{check: check}
	}
	return nil
}

// try holds chunks back and gives, once there is a verdict, all that there are:
// what breaks a promise too, for the reply to end with. But before that the call
// is made once more, if it can be; true tells so.
func (r *run) try(chunks []engine.Chunk) (given []engine.Chunk, again bool) {
	t := r.trial
	verdict := turn.Undecided
	for i := range chunks {
		t.hold(&chunks[i])
		if verdict == turn.Undecided {
			verdict = t.check.Push(&chunks[i])
		}
	}
	switch {
	case verdict == turn.Unkept && r.caller != nil && !r.repeated:
		r.again(differing(r.request), detour{})
		return nil, true
	case verdict != turn.Undecided:
		r.trial = nil
		return t.held, false
	case len(chunks) > 0:
		r.heard()
	}
	return nil, false
}

// hold keeps a chunk. Most are no more than a token or two, which go with those
// that came before.
func (t *trial) hold(c *engine.Chunk) {
	if c.Finish == engine.FinishNone && c.Usage == nil && c.Fingerprint == "" && c.Logprobs == nil {
		for i := range slices.Backward(t.held) {
			if last := &t.held[i]; last.Index == c.Index && last.Logprobs == nil {
				last.Tokens = append(last.Tokens, c.Tokens...)
				return
			} else if last.Index == c.Index {
				break
			}
		}
	}
	t.held = append(t.held, c.Clone())
}

// differing is a call that the engine may answer otherwise.
func differing(r *engine.Request) engine.Request {
	other := *r
	if r.Seed != nil {
		seed := *r.Seed + 1
		other.Seed = &seed
	}
	return other
}
