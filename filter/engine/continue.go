package engine

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Continued returns the request for what is missing of a choice of r that has an output
// already: the prompt is followed by the output, and the limits are what is left of
// them. It has another seed, because an engine begins its random numbers anew with each
// request. The engine counts only new tokens for frequency_penalty and presence_penalty.
//
// It returns nil if there is no such request: no token is left, or what is left of the
// constraint cannot be stated, or takes more steps than account has.
func (r *Request) Continued(account *work.Account, output []harmony.Token) *Request {
	next := *r
	next.N = 1
	next.Prompt = slices.Concat(r.Prompt, output)
	next.MaxTokens -= len(output)
	next.MinTokens = max(0, next.MinTokens-len(output))
	if next.MaxTokens < 1 {
		return nil
	}

	if r.Seed != nil && len(output) > 0 {
		seed := *r.Seed + 1
		next.Seed = &seed
	}

	// The grammar is of the whole output: what is left of it is another one.
	if r.Constraint != nil {
		rest, ok := constraint.After(account, r.Constraint, output)
		if !ok && !r.Advised {
			return nil
		}
		next.Constraint = rest
	}
	return &next
}

// Stops reports whether the engine ends a choice of r at a token.
func (r *Request) Stops(token harmony.Token) bool {
	return token == harmony.TokenReturn || token == harmony.TokenCall || slices.Contains(r.StopTokens, token)
}
