package telemetry

import (
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Report is what is known of a reply at its end, for Envoy.
type Report struct {
	// Outcome is a value of the label outcome.
	Outcome string
	// Status is 200, or that of the error that the client got.
	Status int
	// Answered: an engine has begun to answer. Else the next three are not known.
	Answered bool
	Summary  turn.Summary
	// FirstToken is the time from the request's headers to the engine's first tokens; 0: there were none.
	FirstToken time.Duration
	// Complete: nothing of the reply is missing.
	Complete bool
	// Retries are model calls that were repeated.
	Retries int
	// Continuations are model calls that were lost, and that others continued.
	Continuations int
	// ToolCalls are those made by the filter.
	ToolCalls int
	// Priced: the model has prices.
	Priced bool
	// Cost is that of the reply's tokens.
	Cost float64
}

// Report is what the record and its outcome have to report.
func (r *Record) Report(o *Outcome) Report {
	report := Report{
		Outcome: r.outcome(o), Status: http.StatusOK, Answered: o.Answered, Summary: o.Summary,
		FirstToken: r.firstToken,
		Complete:   o.Complete && r.err == nil, Retries: r.retries, Continuations: r.continuations,
		ToolCalls: o.ToolCalls, Priced: o.Priced, Cost: o.Cost,
	}
	if r.err != nil {
		report.Status = r.err.Status
	}
	return report
}

// PromptTokens is the tokens of the prompts of all model calls so far.
func (r *Record) PromptTokens() int { return r.promptTokens }

// Retries is how many model calls have been repeated so far.
func (r *Record) Retries() int { return r.retries }
