package inspect

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// leastShared is how many tokens the prompts of two turns of one conversation share at
// least: the system message alone has more than 40.
const leastShared = 64

// before returns the id of the exchange whose prompt shares most with that of a record,
// of those of the same tenant and model that began before it; "": there is none.
func before(r *record.Record, records []*record.Record) (id string) {
	// The last one of those that share most: a conversation that was continued twice has two.
	prompt := firstPrompt(r)
	most := leastShared - 1
	for _, other := range slices.Backward(records) {
		if other == r || other.Tenant != r.Tenant || other.Target.Model != r.Target.Model ||
			!other.Started.Before(r.Started) {
			continue
		}
		if n := sharedTokens(prompt, firstPrompt(other)); n > most {
			id, most = other.ID, n
		}
	}

	return id
}

// firstPrompt is the prompt of a record's first model call; nil if it has none.
func firstPrompt(r *record.Record) []harmony.Token {
	for i := range r.Events {
		if c := r.Events[i].Call; c != nil {
			return c.Prompt
		}
	}
	return nil
}

func sharedTokens(a, b []harmony.Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
