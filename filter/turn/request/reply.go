package request

import (
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
)

// Replies names the reply that a turn belongs to, and the one that its prompt is
// compared with.
type Replies struct {
	// The id of the reply; "": its prompt is neither compared nor remembered.
	Own string
	// The id of an earlier reply; "": none is named.
	Compared string
}

// Diagnosis says how the prompt of a reply's first turn continues what the engine has
// been sent before, and whether the engine still had it in its cache.
type Diagnosis struct {
	// Compared with the last prompts of its session.
	Session diagnosis.Finding
	// Compared with the prompt of the reply that the request names.
	Reply diagnosis.Finding
	// Tokens that the engine had in its cache; engine.Unknown if it has not reported them.
	Cached int
	// That has answered; "": unknown.
	Replica string
}

// Missed returns why the engine had less in its cache than it had been sent before:
// None if it had not.
func (d *Diagnosis) Missed() diagnosis.Cause { return d.Session.Missed(d.Cached, d.Replica) }

// Summary is the summary of a reply, for metrics and the log.
type Summary struct {
	// Tokens of the prompt.
	Prompt int
	// Of these, from the engine's prefix cache; engine.Unknown if not reported.
	Cached int
	// Of all choices together.
	Counts item.Counts
	// Of the first choice; FinishNone while it goes on.
	Finish item.Finish
	// Tool calls emitted.
	Calls int
	// ModelCalls is how many model calls the reply has had.
	ModelCalls int
	// Repairs of malformed output by kind; nil if there were none.
	Repairs map[string]int
	// Of the first turn's prompt; nil: there is none.
	Diagnosis *Diagnosis
}

// AddRepairs adds n repairs of a kind.
func (s *Summary) AddRepairs(kind string, n int) {
	if s.Repairs == nil {
		s.Repairs = map[string]int{}
	}
	s.Repairs[kind] += n
}
