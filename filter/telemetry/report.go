package telemetry

import (
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Report is what is known of a reply at its end, for Envoy.
type Report struct {
	Outcome       string // a value of the label outcome
	Status        int    // 200, or that of the error that the client got
	Answered      bool   // an engine has begun to answer; else the next three are not known
	Summary       turn.Summary
	FirstToken    time.Duration // from the request's headers to the engine's first tokens; 0: there were none
	Complete      bool          // nothing of the reply is missing
	Retries       int           // model calls that were repeated
	Continuations int           // model calls that were lost, and that others continued
	ToolCalls     int           // made by the filter
	Priced        bool          // the model has prices
	Cost          float64       // of the reply's tokens
}

// Report is what the record and its outcome have to report.
func (r *Record) Report(o *Outcome) Report {
	report := Report{
		Outcome: r.outcome(o), Status: http.StatusOK, Answered: o.Answered, Summary: o.Summary, FirstToken: r.firstToken,
		Complete: o.Complete && r.err == nil, Retries: r.retries, Continuations: r.continuations, ToolCalls: o.ToolCalls, Priced: o.Priced, Cost: o.Cost,
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
