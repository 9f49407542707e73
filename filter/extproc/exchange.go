package extproc

import (
	"errors"
	"net/http"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// An exchange ends in one of these ways:
//
//  1. The reply has its end (SendBody with end, SendError, an answer): what still
//     arrives of the engine is dropped. Envoy closes the stream.
//  2. The client leaves, or Envoy resets the stream: the stream's context ends, the
//     run is canceled, what it has made so far is stored.
//  3. Envoy half-closes the stream or the connection to it breaks: Recv fails, and
//     the exchange ends as in 2.
//  4. Envoy answers the client by itself while a reply is being made here, as for a
//     timeout of the route: the run is canceled.
//  5. The engine ends its answer: the run completes the reply, as in 1.
//  6. The engine disconnects or fails: the run repeats the call, or the reply ends
//     with an error, as in 1.
//  7. A deadline expires: an error in place of the reply or at its end, as in 1.
//  8. The process drains: followed streams end with an error, as in 1. When the
//     time of the drain is over, so do all others. Those that hang, or whose client
//     does not read, end when the gRPC server stops, as in 2.
//  9. A panic: the run is abandoned, the stream ends with an internal error, and
//     Envoy resets the client's stream.
//
// TestLifeOfAnExchange has a case for each.

// phase is what an exchange does with the next message of Envoy. Who leaves a phase:
//
//	phase     how it is left                                                    for
//	new       requestHeaders: the checks of the headers                         collect, relay, answered
//	          responseHeaders: Envoy's own reply, made before the request came  relay
//	collect   conclude: the whole body has come                                 handle
//	          conclude: the whole body has come, and it is compressed           inflate
//	          conclude: the model is another one, or the rollout excludes       relay
//	          conclude: too large, too slow, or dropped for other requests      answered, relay
//	          refuse: too large, and not by far                                 late
//	late      requestBody: the body's end, or too much of it; a deadline        answered
//	inflate   conclude: the body is decoded                                     handle
//	          conclude: it is not for the filter, or refused, as in collect     relay, answered
//	handle    takeOutcome: a request                                            run, follow, answered
//	          takeOutcome: a stored stream                                      follow
//	          takeOutcome: an object                                            answered, follow
//	          takeOutcome: what is not stored here                              relay, answered
//	run       SendBody with the end of the reply                                ended
//	          localReply: Envoy has answered the client by itself               ended
//	follow    SendBody with the end of the stream                               ended
//	          giveWay: the client does not read what others need the memory of  ended, answered
//	relay     refuseRelayed: the body names a second model                      answered
//	          responseHeaders: the upstream does not have it either             answered
//	any       SendError, while no headers of a reply have been sent             answered
//
// Nobody leaves answered and ended.
type phase uint8

const (
	phaseNew      phase = iota // nothing has been received
	phaseRelay                 // not the filter's: everything is passed on
	phaseCollect               // may be the filter's: the body is collected, its header reply withheld
	phaseLate                  // it is too large: its rest is dropped, before the error is sent
	phaseInflate               // the body is decoded, on another goroutine
	phaseHandle                // the endpoint handles the request
	phaseRun                   // a run makes the reply
	phaseFollow                // the client gets a stored stream
	phaseAnswered              // an immediate response was sent: what still passes is left alone
	phaseEnded                 // the end of the reply was sent: nothing more is answered
)

// exchange is one HTTP request and its reply: a state machine that takes Envoy's
// messages, expired timers and the events of what it has begun, and leaves its
// messages to Envoy in to. It is used by one goroutine; others send to its inbox.
// Its driver feeds it.
//
// Its collector says what the request is, its downstream how Envoy gets the reply. It is large because
// a request and its reply, and what is passed on of either, are one HTTP exchange for Envoy: what has
// come of the one decides what can be sent of the other.
type exchange struct {
	inbox
	collector  // the request, and the model that it is for
	downstream // the reply

	// What it works with.
	driver    Driver
	telemetry *telemetry.Telemetry
	runner    *run.Runner

	now time.Time

	phase phase
	ended error // with which the stream from Envoy has ended

	kind    telemetry.Kind
	passing bool // the body that was collected is being sent on

	// elsewhere is the error for a request that was passed on because what it asks
	// for is not stored here; nil: it was not. It takes the place of a 404.
	elsewhere *apierror.Error

	stored *storedReply // nil: the reply is not a stored stream
}

// newExchange begins an exchange that a driver feeds.
func newExchange(d Driver, s *Server) *exchange {
	ctx, now := d.Context(), d.Now()
	return &exchange{
		inbox:      newInbox(ctx),
		collector:  collector{s: s},
		downstream: downstream{to: newSender()},
		driver:     d,
		telemetry:  s.telemetry,
		runner:     run.NewRunner(ctx, s.o.Env, now),
		now:        now,
	}
}

// Begin implements [run.Owner].
func (x *exchange) Begin(now time.Time) {
	x.now = now
	x.to.reset()
	if x.passing { // it has been sent
		x.passing = false
		x.request.release()
	}
}

// errGaveWay ends a stream whose reply cannot be ended in good order, so that Envoy resets
// that of the client.
var errGaveWay = errors.New("the answer was read too slowly while other requests needed the memory")

// errStreamEnded is the end of the stream from Envoy.
var errStreamEnded = errors.New("the ext_proc stream has ended")

// Handle implements [run.Owner].
func (x *exchange) Handle(e incoming) (telemetry.MessageKind, error) {
	switch e := e.(type) {
	case envoyMessage:
		return kindOf(e.of), x.receive(e.of)
	case *inflated:
		if x.phase == phaseInflate { // else a deadline, the drain or Envoy has answered since
			x.runner.Timers.Clear(run.TimerHandle)
			x.conclude(x.decoded(e), !x.request.trailers)
		}
		return telemetry.MessageJob, nil
	case *handled:
		x.takeOutcome(e)
		return telemetry.MessageJob, nil
	case *storedEvents:
		if x.phase == phaseFollow { // else the reply has ended
			x.stored.take(e)
		}
		return telemetry.MessageStream, nil
	case streamEnded:
		x.ended = endOf(e.err)
		return telemetry.MessageTick, errStreamEnded
	case dropped:
		return telemetry.MessageTick, x.makeRoom(e.err)
	case aborted:
		x.abort()
	case *interrupted:
		x.interrupt(e.why)
	}
	return telemetry.MessageTick, nil
}

// interrupt ends the reply in good order, because its client does not want more of it. A reply
// that has not begun is canceled in the same way; to be steered, it has to have begun.
func (x *exchange) interrupt(why api.Interruption) {
	switch {
	case x.phase == phaseRun:
		x.runner.Run().Interrupt(why)
	case why == api.Canceled && !x.headersSent && x.phase != phaseAnswered && x.phase != phaseEnded:
		x.SendError(apierror.Invalid("", "The response was canceled before it began."))
	}
}

// makeRoom gives up what the request holds of the memory budget, unless it has been answered
// since. An error ends the stream from Envoy.
func (x *exchange) makeRoom(err *apierror.Error) error {
	switch x.phase {
	case phaseCollect:
		x.conclude(x.incomplete(err), false)
	case phaseFollow:
		return x.stored.giveWay(err)
	}
	return nil
}

// Done implements [run.Owner]: Envoy ends the stream.
func (x *exchange) Done() bool { return false }

// Canceled implements [run.Owner].
func (x *exchange) Canceled(error) (goesOn bool) { return false }

// Expire implements [run.Owner].
func (x *exchange) Expire(name run.Timer) {
	switch {
	case name == run.TimerBody && x.phase == phaseLate:
		x.SendError(x.request.late)
	case name == run.TimerBody:
		err := apierror.New(http.StatusRequestTimeout, "request_timeout", "",
			"The request body did not arrive within %s. Send the request again.", x.s.o.Config.Limits.BodyTimeout)
		x.conclude(x.incomplete(err), false)
	case name == run.TimerHandle && x.phase == phaseRun:
		// An engine that was to answer, in place of the pacing route, waits for a whole body.
		x.runner.Run().Fail(notHandled().With(errNotPaced))
	case name == run.TimerHandle:
		x.SendError(notHandled())
	case x.phase == phaseRun && name == run.TimerTotal && x.s.drain.over():
		// The timer was set by abort: the reply has not been stored in the time for that.
		x.runner.Run().Fail(shutDown())
	case x.phase == phaseRun:
		x.runner.Expire(name)
	case name == run.TimerKeepAlive:
		x.stored.keepAlive()
	}
}

// What Envoy's first message cannot show: protocol_config has body modes only.
var (
	errRequestHeaders = errors.New(
		"the first ext_proc message is not request headers: set processing_mode.request_header_mode to SEND")
	errResponseHeaders = errors.New(
		"a response body came without its headers: set processing_mode.response_header_mode to SEND")
)

// What no Envoy sends. The state of the exchange has no meaning after such a message, so
// the stream ends.
var (
	errRequestHeadersAgain  = errors.New("request headers came twice in one ext_proc stream")
	errRequestHeadersLate   = errors.New("request headers came behind response headers in one ext_proc stream")
	errResponseHeadersAgain = errors.New("response headers came twice in one ext_proc stream")
)

// receive takes the next message of Envoy. An error ends the stream with it.
func (x *exchange) receive(m *extprocv3.ProcessingRequest) error {
	if err := x.checkOrder(m); err != nil {
		return err
	}

	switch r := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		x.requestHeaders(m)
	case *extprocv3.ProcessingRequest_RequestBody:
		x.requestBody(r.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		x.requestTrailers()
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		x.responseHeaders(r.ResponseHeaders)
	case *extprocv3.ProcessingRequest_ResponseBody:
		x.responseBody(r.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		x.responseTrailers(r.ResponseTrailers.GetTrailers())
	}
	return nil
}

// checkOrder returns an error if headers that the filter needs have not been sent to
// it, or come where they cannot. Response headers may be the first message: Envoy's own
// reply, made before the request came here.
func (x *exchange) checkOrder(m *extprocv3.ProcessingRequest) error {
	requested := x.request.share != nil
	switch m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		switch {
		case requested:
			return errRequestHeadersAgain
		case x.upstream != upstreamSilent:
			return errRequestHeadersLate
		}
		return nil
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		if x.upstream != upstreamSilent {
			return errResponseHeadersAgain
		}
		return nil
	case *extprocv3.ProcessingRequest_RequestBody, *extprocv3.ProcessingRequest_RequestTrailers:
		if !requested {
			return errRequestHeaders
		}
	case *extprocv3.ProcessingRequest_ResponseBody, *extprocv3.ProcessingRequest_ResponseTrailers:
		waits := x.phase == phaseCollect || x.phase == phaseLate || x.phase == phaseInflate ||
			x.phase == phaseHandle || x.phase == phaseRun
		if x.upstream == upstreamSilent && waits {
			return errResponseHeaders
		}
	}

	// Any other message is none that a stream can begin with.
	if x.phase == phaseNew {
		return errRequestHeaders
	}
	return nil
}

// beginSpan begins the span of a request that is the filter's. It begins with the
// headers, as the record does.
func (s *Server) beginSpan(x *exchange) {
	r := &x.request
	if r.endpoint == nil || s.telemetry.OTel == nil {
		return
	}

	start := telemetry.Start{
		Parent:    r.parent,
		Kind:      x.kind,
		API:       r.endpoint.API,
		RequestID: r.id,
		Method:    r.method,
		Route:     r.endpoint.Pattern,
		Model:     x.target.Model,
		Engine:    x.target.Engine,
	}
	if x.target.Dialect != nil {
		start.Provider = x.target.Dialect.Kind()
	}
	s.telemetry.Begin(&x.runner.Record, start)
}

// close ends the exchange, whatever it was doing, returns what it has taken, and
// writes its record.
func (x *exchange) close(now time.Time) {
	x.now = now
	x.request.body = collectedBody{}
	if x.request.share != nil {
		x.request.share.close()
	}
	if r := x.runner.Run(); r != nil {
		r.Cancel()
	}
	x.runner.Stop()

	record, o := &x.runner.Record, x.outcome()
	record.Rollout = x.request.rollout.side
	x.request.rollout.count(x.telemetry.Metrics)

	// What the filter has not answered is the upstream's: there is a line of the log for
	// debugging only.
	passed := x.request.endpoint == nil || x.phase == phaseNew || x.phase == phaseRelay
	if passed && record.Err() == nil {
		x.telemetry.PassedThrough(record, x.request.id, x.request.path, now)
		return
	}

	if record.Err() == nil && !o.Complete && x.s.drain.over() {
		record.Failed(shutDown())
	}
	// The span of a request that did not come so far as to be handled.
	x.s.beginSpan(x)
	x.telemetry.Close(record, &o)
}

// outcome is how the exchange has ended, or what it has come to so far.
func (x *exchange) outcome() telemetry.Outcome {
	o := telemetry.Outcome{
		Kind:      x.kind,
		RequestID: x.request.id,
		Tenant:    x.request.tenant,
		Model:     x.target.Model,
		Engine:    x.target.Engine,
		Now:       x.now,
		Complete:  x.phase == phaseEnded || x.phase == phaseAnswered,
	}
	if x.request.endpoint != nil {
		o.API = x.request.endpoint.API
	}
	x.runner.Describe(&o)
	return o
}

// abandon gives up a run that cannot be trusted any more.
func (x *exchange) abandon() {
	if r := x.runner.Run(); r != nil {
		r.Abandon()
	}
}
