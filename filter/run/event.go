package run

import (
	"context"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// EventKind is what an event of a model call says. A call has the events in this order, of
// which some may be missing; nothing follows the end, or what broke the call.
type EventKind uint8

// The kinds of events.
const (
	// EventAnnounced: Source has the event. It may have come since.
	EventAnnounced EventKind = iota + 1
	// EventPrefilling: the prompt is being computed; there is no answer yet. Disaggregated
	// engines have it.
	EventPrefilling
	// EventAnswered: the answer begins, with Status and Header. Prompt are the counts in place
	// of the answer's own, of a disaggregated engine; nil: those count.
	EventAnswered
	// EventBytes: Body has the next bytes of the answer.
	EventBytes
	// EventEnded: the answer is complete. Header has its trailers.
	EventEnded
	// EventBroken: Err has broken the call.
	EventBroken
)

// Event is an event of a model call: its kind, with the data of that kind. It is a struct and
// no interface, because one is sent for each token, and allocates nothing. The functions of
// this file make events.
type Event struct {
	Kind   EventKind
	Status int
	Header http.Header
	Body   []byte // valid until the next event is received
	Err    error
	Source Source
	Prompt *engine.Usage
}

// Announced is an event that source has.
func Announced(source Source) Event { return Event{Kind: EventAnnounced, Source: source} }

// Prefilling says that the prompt is being computed.
func Prefilling() Event { return Event{Kind: EventPrefilling} }

// Answered is the beginning of an answer. prompt counts in place of the answer's own counts;
// nil: those count.
func Answered(status int, header http.Header, prompt *engine.Usage) Event {
	return Event{Kind: EventAnswered, Status: status, Header: header, Prompt: prompt}
}

// Bytes are the next bytes of the answer.
func Bytes(p []byte) Event { return Event{Kind: EventBytes, Body: p} }

// Ended is the end of the answer; trailer may be nil.
func Ended(trailer http.Header) Event { return Event{Kind: EventEnded, Header: trailer} }

// Broken is what has broken the call.
func Broken(err error) Event { return Event{Kind: EventBroken, Err: err} }

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

// Dialer prepares the model calls of runs. Package loopback makes them through Envoy's loopback
// listener.
type Dialer interface {
	// Dial prepares the model calls of one run to target, which carry the headers head and end
	// with ctx.
	Dial(ctx context.Context, head http.Header, target Target) Upstream
	// Disaggregated reports whether prefill and decode of an engine are two calls.
	Disaggregated(engine string) bool
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
