package filter

import (
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// What the exchange does with the upstream's reply. For a model call that
// Envoy makes in the client's own exchange it is the engine's answer, which
// feeds the run; a model call through the loopback listener feeds it from
// there, and Envoy has no upstream here.

func (x *exchange) responseHeaders(h *extprocv3.HttpHeaders) {
	x.upstream = true
	switch x.phase {
	case phaseNew: // Envoy's own answer, made before the request came here
		x.phase = phaseRelay
		fallthrough
	case phaseRelay, phaseAnswered:
		x.out = append(x.out, responseHeadersReply(nil))
		return
	case phaseOver:
		return
	}
	x.timers.clear(timerBody) // Envoy may answer by itself while the body is still coming
	headers := h.GetHeaders()
	status := parseStatus(header(headers, ":status"))
	if x.run == nil || x.local { // Envoy's own answer: there is no engine's here
		x.gatewayAnswered(status)
		return
	}
	x.run.engineHeaders(status, func(name string) string { return header(headers, name) }, h.GetEndOfStream())
}

// gatewayAnswered ends the exchange because Envoy has answered by itself. The
// body of that answer is dropped.
func (x *exchange) gatewayAnswered(status int) {
	err := apierror.New(status, "", "", "the gateway ended the request: %s", http.StatusText(status))
	if x.run != nil {
		x.run.cancel()
	}
	if x.begun {
		x.rec.failed(err) // nothing can be said in band any more
		x.remote.hangUp()
		x.jobs.stop()
		x.timers.clearAll()
	} else {
		x.refuse(err)
	}
	x.phase = phaseOver
}

// parseStatus reads a :status; what is none counts as 502.
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
		x.sendResponseBody(b.GetBody(), b.GetEndOfStream())
	case phaseEngine:
		x.run.engineBytes(b.GetBody(), b.GetEndOfStream())
	}
}

func (x *exchange) responseTrailers(trailers *corev3.HeaderMap) {
	switch x.phase {
	case phaseRelay, phaseAnswered:
		x.out = append(x.out, responseTrailersReply())
	case phaseEngine:
		x.trailers = true
		x.run.engineTrailers(func(name string) string { return header(trailers, name) })
	}
}

// The exchange is the client of its run.

// begin sends the headers of the client's reply: in place of the engine's, or
// as the beginning of a local reply.
func (x *exchange) begin(header []engine.Header) {
	x.begun = true
	if x.local {
		x.lead(localHeaders(header))
		return
	}
	var m mutation
	for _, h := range header {
		m.set(h.Name, h.Value)
	}
	m.remove(engineReplyNames...)
	x.out = append(x.out, responseHeadersReply(&m))
}

// write sends bytes of the client's reply.
func (x *exchange) write(p []byte, end bool) {
	if end {
		x.phase = phaseOver
		x.remote.hangUp()
		x.jobs.stop()
	}
	if x.local {
		x.pieces(p, end, func(m *bodyMessage) { m.message.Response = &m.local })
		return
	}
	x.sendResponseBody(p, end && !x.trailers)
	if end && x.trailers {
		x.out = append(x.out, responseTrailersReply(trailerNames...))
	}
}

// refuse answers in place of whatever was to come. Only to be used while no
// reply headers have been sent.
func (x *exchange) refuse(err *apierror.Error) {
	x.release()
	x.remote.hangUp()
	x.jobs.stop()
	x.phase = phaseAnswered
	x.timers.clearAll()
	x.rec.failed(err)
	x.lead(immediateResponse(err.Status, err.JSON(), details(err), err.RetryAfter))
}
