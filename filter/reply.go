package filter

import (
	"net/http"
	"slices"
	"strings"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

const (
	// maxErrorBody is how much of an engine's error reply is read.
	maxErrorBody = 64 << 10
	// closingGrace is how long the engine may take from its last choice's
	// end to its closing usage event.
	closingGrace = 2 * time.Second
)

const keepAliveComment = ": keep-alive\n\n"

// replyState is the way out of a Harmony exchange.
type replyState struct {
	reply   reply
	decoder engine.Decoder // nil while the engine has not answered 200
	chunks  []engine.Chunk
	running int // choices that have not finished

	status    int // of an engine reply that is no 200
	header    func(string) string
	errorBody []byte

	received bool   // its headers have come
	sent     bool   // reply headers have been sent
	trailers bool   // the engine's reply ends in trailers
	pending  outbox // bytes for the client, not yet sent
}

func (x *exchange) responseHeaders(h *extprocv3.HttpHeaders) {
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
	headers := h.GetHeaders()
	status := header(headers, ":status")
	x.reply.received = true
	x.timers.clear(timerBody) // Envoy may answer by itself while the body is still coming
	x.reply.header = func(name string) string { return header(headers, name) }
	if status != "200" || x.call == nil {
		x.reply.status = parseStatus(status)
		if h.GetEndOfStream() {
			x.engineRefused()
		}
		return
	}
	if enc := header(headers, "content-encoding"); enc != "" && enc != "identity" {
		x.fail(apierror.New(http.StatusBadGateway, "engine_encoding", "", "the engine's reply is compressed (%s) although that was not accepted: switch compression off between Envoy and the engine", enc))
		return
	}
	x.reply.decoder = x.target.dialect.NewDecoder(x.call.Engine())
	x.reply.reply = x.call.NewReply()
	x.reply.running = x.call.Engine().N
	if h.GetEndOfStream() {
		x.engineEnded()
		return
	}
	if x.call.Stream() {
		x.timers.set(timerHold, x.now, x.s.cfg.Limits.HeaderHold.Duration)
	}
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
		return
	case phaseOver, phaseNew:
		return
	}
	if x.reply.decoder == nil {
		x.reply.errorBody = append(x.reply.errorBody, b.GetBody()[:min(len(b.GetBody()), maxErrorBody-len(x.reply.errorBody))]...)
		if b.GetEndOfStream() {
			x.engineRefused()
		}
		return
	}
	x.engineBytes(b.GetBody(), b.GetEndOfStream())
}

func (x *exchange) responseTrailers() {
	switch x.phase {
	case phaseRelay, phaseAnswered:
		x.out = append(x.out, responseTrailersReply())
	case phaseCollect, phaseEngine:
		x.reply.trailers = true
		if x.reply.decoder == nil {
			x.engineRefused()
			return
		}
		x.engineEnded()
	}
}

// engineRefused answers for an engine reply that is no 200, be it the engine's
// or one that Envoy made itself.
func (x *exchange) engineRefused() {
	r := &x.reply
	if x.call == nil { // Envoy answered before there was a request for the engine
		x.fail(apierror.New(r.status, "", "", "the gateway ended the request: %s", http.StatusText(r.status)))
		return
	}
	x.fail(x.target.dialect.ReadError(r.status, r.header, r.errorBody))
}

// engineBytes reads the next piece of the engine's reply, which may be its
// last.
func (x *exchange) engineBytes(p []byte, end bool) {
	r := &x.reply
	chunks, err := r.decoder.Feed(p, r.chunks[:0])
	r.chunks = chunks
	if x.push(chunks) {
		return
	}
	switch {
	case err != nil:
		x.fail(err)
	case end:
		x.engineEnded()
	case len(chunks) > 0:
		x.flush(false)
	}
}

// push hands chunks to the API's reply; true tells that the exchange is over.
func (x *exchange) push(chunks []engine.Chunk) bool {
	r := &x.reply
	for i := range chunks {
		c := &chunks[i]
		x.rec.chunk(c, x.now)
		x.timers.clear(timerFirst)
		x.timers.set(timerIdle, x.now, x.s.cfg.Limits.IdleTimeout.Duration)
		var err *apierror.Error
		if r.pending.buf, err = r.reply.Push(r.pending.buf, c); err != nil {
			x.fail(err)
			return true
		}
		if r.reply.Done() {
			x.finish()
			return true
		}
		if c.Finish != engine.FinishNone {
			r.running--
			if r.running == 0 {
				x.timers.set(timerGrace, x.now, closingGrace)
			}
		}
	}
	return false
}

// engineEnded reads the end of the engine's reply.
func (x *exchange) engineEnded() {
	r := &x.reply
	chunks, err := r.decoder.End(r.chunks[:0])
	r.chunks = chunks
	if x.push(chunks) {
		return
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.finish()
}

// finish ends the client's reply. Before the engine's own end this makes Envoy
// cancel the engine's request.
func (x *exchange) finish() {
	x.reply.pending.buf = x.reply.reply.End(x.reply.pending.buf)
	x.flush(true)
}

// fail ends the reply with an error: as an HTTP error while the headers are
// still held back, else in band.
func (x *exchange) fail(err *apierror.Error) {
	if !x.reply.sent {
		x.refuse(err)
		return
	}
	x.rec.failed(err)
	x.reply.pending.buf = x.reply.reply.Fail(x.reply.pending.buf, err)
	x.flush(true)
}

// flush sends what the client may have now. A whole reply is sent at its end
// only.
func (x *exchange) flush(end bool) {
	r := &x.reply
	if !end && !x.call.Stream() {
		return
	}
	x.sendReplyHeaders()
	if end {
		x.phase = phaseOver
		x.timers.clearAll()
		x.sendResponseBody(r.pending.take(), !r.trailers)
		if r.trailers {
			x.out = append(x.out, responseTrailersReply(trailerNames...))
		}
	} else if p := r.pending.take(); len(p) > 0 {
		x.sendResponseBody(p, false)
		x.timers.set(timerKeepAlive, x.now, x.s.cfg.Limits.KeepAlive.Duration)
	}
}

// sendReplyHeaders lets the reply's headers go, once.
func (x *exchange) sendReplyHeaders() {
	if x.reply.sent {
		return
	}
	x.reply.sent = true
	x.timers.clear(timerHold)
	x.timers.set(timerKeepAlive, x.now, x.s.cfg.Limits.KeepAlive.Duration)
	var m mutation
	if x.call.Stream() {
		m.set("content-type", "text/event-stream; charset=utf-8")
		m.set("cache-control", "no-cache")
	} else {
		m.set("content-type", "application/json")
	}
	m.set("x-request-id", x.id)
	if ignored := slices.Concat(x.call.Ignored(), x.target.dialect.Ignores(x.call.Engine())); len(ignored) > 0 {
		m.set(IgnoredHeader, strings.Join(ignored, ", "))
	}
	m.remove("content-length")
	x.out = append(x.out, responseHeadersReply(&m))
}

// tick does what the clock asks for. It is called when the exchange's next
// deadline has come.
func (x *exchange) tick(now time.Time) {
	x.begin(now)
	for {
		name, due := x.timers.due(now)
		if !due {
			return
		}
		x.expired(name)
	}
}

func (x *exchange) expired(name timer) {
	limits := &x.s.cfg.Limits
	switch name {
	case timerBody:
		x.fail(apierror.New(http.StatusRequestTimeout, "request_timeout", "", "the request body did not arrive within %s", limits.BodyTimeout))
	case timerFirst:
		x.fail(apierror.New(http.StatusGatewayTimeout, "engine_timeout", "", "the engine did not begin to answer within %s", limits.FirstTokenTimeout))
	case timerIdle:
		x.fail(apierror.New(http.StatusGatewayTimeout, "engine_timeout", "", "the engine was silent for %s", limits.IdleTimeout))
	case timerTotal:
		x.fail(apierror.New(http.StatusGatewayTimeout, "engine_timeout", "", "the reply was not complete within %s", limits.TotalTimeout))
	case timerGrace:
		x.finish()
	case timerHold:
		x.flush(false)
	case timerKeepAlive:
		x.reply.pending.buf = append(x.reply.pending.buf, keepAliveComment...)
		x.flush(false)
	}
}
