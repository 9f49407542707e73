package turn

import (
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
)

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
