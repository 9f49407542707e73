package run

import (
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// Event is an event of a model call: first the headers of the answer, then its
// bytes, then its end or the error that broke it.
type Event struct {
	Status  int
	Header  http.Header // of the first event
	Body    []byte      // valid until the next event is received
	End     bool
	Trailer http.Header // of the end
	Err     error

	// Source has the event, if it is not nil: it may have come since.
	Source Source

	// Of a disaggregated engine:
	Prefilling bool          // the prompt is being computed; there is no answer yet
	Prompt     *engine.Usage // of the first event: counts in place of the answer's own
}

// Source is where an event is that was announced.
type Source interface {
	// Next returns the event; ok is false if there is none any more.
	Next() (e Event, ok bool)
}

// Retry is how a repeated model call finds another replica. The zero value is
// that of a first attempt, and of a repetition to any replica.
type Retry struct {
	Number   int    // of the retry, from 1
	Excluded string // the replica that failed; "": unknown
	// SamePrefill says that of a disaggregated engine the prefill endpoint stays: the
	// other part has failed.
	SamePrefill bool
}

// Target is the engine and the model of a model call.
type Target struct {
	Engine        string // name in the configuration; "": the model is not known
	Model         string // name at the engine
	Dialect       engine.Dialect
	Disaggregated bool // prefill and decode are two calls
	Prices        budget.Prices
}

// Downstream gets the reply of a run: headers once and then bytes, or an error in
// their place.
type Downstream interface {
	// SendHeaders sends the headers of a reply with status 200.
	SendHeaders(header []engine.Header)
	// SendBody sends bytes of the reply; p is valid until the run's next event.
	SendBody(p []byte, end bool)
	// SendError sends an error in place of the reply.
	SendError(err *apierror.Error)
}

// Upstream makes the model calls of a run, one at a time.
type Upstream interface {
	// Call makes a model call, in place of the one being made.
	Call(r *engine.Request, retry Retry) *apierror.Error
	// Events is where the events of the call being made arrive; nil if there is
	// none.
	Events() <-chan Event
	// Cancel ends the call being made.
	Cancel()
}
