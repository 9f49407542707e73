package extproc

import (
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// The upstream's reply. For a model call that Envoy makes of the client's own
// request it is the engine's answer, and feeds the run. A model call through the
// loopback listener feeds the run from there, and Envoy has no upstream here.

func (x *exchange) responseHeaders(h *extprocv3.HttpHeaders) {
	x.upstream = upstreamHeaders
	switch x.phase {
	// Envoy's own reply, made before the request came here.
	case phaseNew:
		x.phase = phaseRelay
		fallthrough
	case phaseRelay, phaseAnswered:
		if x.elsewhere != nil && x.phase == phaseRelay &&
			parseStatus(headerOf(h.GetHeaders(), ":status")) == http.StatusNotFound {
			// It is not there either: the client gets the error that says so of this API.
			x.SendError(x.elsewhere)
			return
		}
		x.to.add(responseHeadersReply(x.passedMark()))
		return
	case phaseEnded:
		return
	}

	// Envoy may answer by itself while the body is still arriving.
	x.runner.Timers.Clear(run.TimerBody)
	headers := h.GetHeaders()
	status := parseStatus(headerOf(headers, ":status"))
	if x.pace.answered(status) {
		return
	}

	// Nothing was sent upstream, or only marks: the reply is Envoy's own.
	if x.phase != phaseRun || x.local || x.pace.on() {
		x.localReply(status)
		return
	}
	field := func(name string) string { return headerOf(headers, name) }
	x.runner.Run().EngineHeaders(status, field, h.GetEndOfStream())
}

// localReply ends the exchange because Envoy has answered the client by itself. The
// body of that answer is dropped.
func (x *exchange) localReply(status int) {
	var cause error
	if x.pace.strayed(status) {
		status, cause = http.StatusBadGateway, errNotPaced
	}
	err := apierror.New(status, "", "", "The gateway ended the request: %s.", http.StatusText(status)).With(cause)

	if r := x.runner.Run(); r != nil {
		r.Cancel() // which stores what there is of the reply
	}

	if x.headersSent {
		// Nothing can be said in band any more.
		x.runner.Record.Failed(err)
		x.runner.Stop()
		x.runner.Timers.ClearAll()
	} else {
		x.SendError(err)
	}
	x.phase = phaseEnded
}

// parseStatus reads a :status; anything else counts as 502.
func parseStatus(s string) int {
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' || n > 99 {
			return http.StatusBadGateway
		}
		n = n*10 + int(c-'0')
	}
	if n < 100 {
		return http.StatusBadGateway
	}
	return n
}

func (x *exchange) responseBody(b *extprocv3.HttpBody) {
	switch x.phase {
	case phaseRelay, phaseAnswered:
		x.to.responseBody(b.GetBody(), b.GetEndOfStream())
	case phaseRun, phaseFollow:
		if x.pace.on() {
			x.takeMarks(len(b.GetBody()), b.GetEndOfStream())
		} else if !x.local {
			x.upstream = upstreamBody
			x.runner.Run().EngineBytes(b.GetBody(), b.GetEndOfStream())
		}
	}
}

func (x *exchange) responseTrailers(trailers *corev3.HeaderMap) {
	switch x.phase {
	case phaseRelay, phaseAnswered:
		x.to.add(responseTrailersReply())
	case phaseRun, phaseFollow:
		x.upstream = upstreamTrailers
		if !x.local && !x.pace.on() {
			x.runner.Run().EngineTrailers(func(name string) string { return headerOf(trailers, name) })
		}
	}
}

// The exchange is the [run.Downstream] of its run.

// SendHeaders sends the headers of the client's reply: in place of the engine's, or
// as the beginning of a local reply.
func (x *exchange) SendHeaders(header []engine.Header) {
	x.headers(append(header, x.request.idHeader()...))
}

// SendBody sends bytes of the client's reply.
func (x *exchange) SendBody(p []byte, end bool) {
	if !end {
		if x.body(p) {
			x.keepPace()
		}
		return
	}

	x.phase = phaseEnded
	x.runner.Stop()
	x.lastBody(p)
	o := x.outcome()
	x.metadata.end(x.to.last(), &x.runner.Record, &o)
}

// takeMarks takes marks of a paced reply that came back. With the first one, the reply
// begins.
func (x *exchange) takeMarks(n int, end bool) {
	switch begins := x.pace.came(n, end); {
	case !begins:
		x.keepPace()
	case x.phase == phaseFollow:
		x.stored.begin()
	default:
		x.runner.Timers.Clear(run.TimerHandle)
		x.runner.Run().Start()
	}
}

// keepPace sends a mark if one is due, and lets what makes the reply wait while the
// client is behind.
func (x *exchange) keepPace() {
	x.pace.next(&x.to)
	behind := x.pace.behind()
	x.runner.Hold(behind)
	if x.stored != nil && !behind {
		x.stored.goOn()
	}
}

// SendError answers in place of whatever was to come. It is only used while no
// reply headers have been sent.
func (x *exchange) SendError(err *apierror.Error) {
	x.request.release()
	x.runner.Stop()
	x.phase = phaseAnswered
	x.runner.Timers.ClearAll()
	x.runner.Record.Failed(err)

	headers := x.request.idHeader()
	if r := x.runner.Run(); r != nil {
		headers = r.Explain(headers, false)
	} else {
		// The end of a run is in its record already; a refusal before it is not.
		x.runner.Record.Tape.Refused(err)
	}
	if err.Limit != nil {
		headers = append(headers, x.request.endpoint.Limits(err.Limit, x.now)...)
		if !err.Limit.Never {
			// The other case is in what the endpoint writes. Said in both, so that no client has to
			// know what a 429 without the header means.
			headers = append(headers, engine.Header{Name: "x-should-retry", Value: "true"})
		}
	}
	if len(err.Allow) > 0 {
		headers = append(headers, engine.Header{Name: "allow", Value: strings.Join(err.Allow, ", ")})
	}

	status, object := x.request.endpoint.Error(x.withKnownModels(err), x.request.id)
	m, o := immediateResponse(status, object, details(err), err.RetryAfter, headers...), x.outcome()
	x.metadata.end(m, &x.runner.Record, &o)
	x.to.add(m)
}
