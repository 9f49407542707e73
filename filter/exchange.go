package filter

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// phase is how far an exchange has come.
type phase int

const (
	phaseNew      phase = iota // nothing received yet
	phaseRelay                 // not ours: everything is passed on
	phaseCollect               // may be ours: the body is collected, its header reply withheld
	phaseEngine                // the token request is with Envoy; the engine's reply is awaited or read
	phaseFollow                // the client gets a stored stream
	phaseAnswered              // an immediate response was sent; what still passes by is left alone
	phaseOver                  // the reply's end was sent; nothing more is answered
)

// exchange is one HTTP request and its reply: a state machine that takes
// Envoy's messages, ticks of the clock and news of what it has set going, and
// leaves the replies in out. It is used by one goroutine.
type exchange struct {
	s   *Server
	ctx context.Context //nolint:containedctx // the stream's, of the same life
	now time.Time
	out []*extprocv3.ProcessingResponse

	bodies bodyMessages
	phase  phase
	timers timers
	rec    record

	api      *api
	method   string
	path     string
	query    string
	bodyless bool   // the request is headers only
	id       string // the client's reply id and the engine's request id, without the API's prefix
	tenant   string
	session  string // that the request's headers name
	encoding string // content-encoding of the collected body
	body     []byte
	share    *share // of the budget: the body, and what is read of the store
	scan     modelScan
	forced   bool     // the override header made the request ours
	strip    []string // headers of the client that are the filter's and go no further

	target   target           // the model's settings and engine
	run      *run             // nil until the token request is made
	upstream bool             // its reply's headers have come
	trailers bool             // its reply ends in trailers
	untold   call             // of which Envoy has not been told
	local    bool             // the client's reply has no upstream here
	begun    bool             // headers of the client's reply have been sent
	queued   bool             // the response is made in the background
	headers  http.Header      // of the client's request, as far as they go along with model calls through the loopback listener
	jobs     jobs             // of tools, for the run
	remote   loopbackCall     // the model call through the loopback listener
	feed     <-chan feedEvent // the stored stream that the client follows
}

// target is where a Harmony request goes.
type target struct {
	known   bool // the model has been named
	model   Model
	dialect engine.Dialect
}

func newExchange(ctx context.Context, s *Server, now time.Time) *exchange {
	x := &exchange{s: s, ctx: ctx, now: now, share: &share{of: &s.budget}}
	x.rec.started = now
	return x
}

// What Envoy's first message cannot tell: protocol_config has body modes only.
var (
	errRequestHeaders  = errors.New("the first ext_proc message is not request headers: set processing_mode.request_header_mode to SEND")
	errResponseHeaders = errors.New("a response body came without its headers: set processing_mode.response_header_mode to SEND")
)

// receive takes the next message of Envoy. An error ends the stream with it.
func (x *exchange) receive(m *extprocv3.ProcessingRequest, now time.Time) error {
	x.step(now)
	if err := x.misses(m); err != nil {
		return err
	}
	switch r := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		x.requestHeaders(r.RequestHeaders, m.GetProtocolConfig())
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

// misses tells that headers which the filter needs have not been sent to it.
func (x *exchange) misses(m *extprocv3.ProcessingRequest) error {
	switch m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders, *extprocv3.ProcessingRequest_ResponseHeaders:
		return nil
	case *extprocv3.ProcessingRequest_ResponseBody, *extprocv3.ProcessingRequest_ResponseTrailers:
		if !x.upstream && (x.phase == phaseCollect || x.phase == phaseEngine) {
			return errResponseHeaders
		}
	}
	if x.phase == phaseNew {
		return errRequestHeaders
	}
	return nil
}

// step begins the next step: what the last one left in out has been sent.
func (x *exchange) step(now time.Time) {
	x.now = now
	x.out = x.out[:0]
	x.bodies.reuse()
	if x.run != nil {
		x.run.step(now)
	}
}

// close ends the exchange, whatever it was doing, and gives back what it held.
func (x *exchange) close(now time.Time) {
	x.now = now
	x.release()
	x.remote.hangUp()
	x.jobs.stop()
	if x.run != nil {
		x.run.cancel()
	}
	if (x.api == nil || x.phase == phaseNew || x.phase == phaseRelay) && x.rec.err == nil {
		x.rec.relayed(x.s, x.id, x.path, now)
		return
	}
	x.rec.close(&subject{
		s: x.s, api: x.api, id: x.id, tenant: x.tenant, target: x.target, run: x.run, now: now,
		over: x.phase == phaseOver || x.phase == phaseAnswered, queued: x.queued,
	})
}

// abandon lets go of a run that cannot be trusted any more.
func (x *exchange) abandon() {
	if x.run != nil {
		x.run.abandon()
	}
}

// tick does what the clock asks for. It is called when the exchange's next
// deadline has come.
func (x *exchange) tick(now time.Time) {
	x.step(now)
	for {
		name, due := x.timers.due(now)
		switch {
		case !due:
			return
		case name == timerBody:
			x.refuse(apierror.New(http.StatusRequestTimeout, "request_timeout", "", "the request body did not arrive within %s", x.s.cfg.Limits.BodyTimeout))
		case x.run != nil:
			x.run.expired(name)
		case name == timerKeepAlive:
			x.write([]byte(keepAliveComment), false)
			x.timers.set(timerKeepAlive, now, x.s.cfg.Limits.KeepAlive.Duration)
		}
	}
}

func (x *exchange) requestHeaders(h *extprocv3.HttpHeaders, mode *extprocv3.ProtocolConfiguration) {
	headers := h.GetHeaders()
	x.method = header(headers, ":method")
	x.path, x.query, _ = strings.Cut(header(headers, ":path"), "?")
	x.bodyless = h.GetEndOfStream()
	x.api = x.s.apiOf(x.method, x.path)
	x.id = header(headers, "x-request-id")
	if x.id == "" {
		x.id = x.s.newID("")
	}
	for _, name := range []string{EngineHeader, x.s.cfg.Routing.PrefixHeader, x.s.cfg.Routing.SessionHeader, x.s.cfg.Routing.SelectionHeader, PrefillHeader, UpstreamHeader, destinationHeader, overrideHeader, codexHeader} {
		if name != "" && header(headers, name) != "" {
			x.strip = append(x.strip, name)
		}
	}
	if err := checkMode(mode); err != nil {
		x.s.log.WithError(err).Error("ext_proc filter is not configured for envoy-harmony")
		x.refuse(err)
		return
	}
	if header(headers, "upgrade") != "" && ownPath(x.path) {
		x.refuse(apierror.New(http.StatusUpgradeRequired, "", "", "%s is served over plain HTTP: send a POST without Upgrade", x.path))
		return
	}
	if x.api == nil || !isJSON(header(headers, "content-type")) {
		x.relayRequest()
		return
	}
	switch x.override(headers) {
	case "off":
		x.relayRequest()
		return
	case "on":
		x.forced = true
	}
	if x.api == &x.s.apis.responses && x.codex(headers) {
		x.api = &x.s.apis.codex
	}
	x.tenant = header(headers, x.s.cfg.TenantHeader)
	x.session = session(headers)
	if x.s.loopback != nil {
		x.headers = passedHeaders(headers)
	}
	x.encoding = strings.ToLower(strings.TrimSpace(header(headers, "content-encoding")))
	x.phase = phaseCollect
	x.timers.set(timerBody, x.now, x.s.cfg.Limits.BodyTimeout.Duration)
	if x.bodyless {
		x.collected(false)
	}
}

// checkMode refuses an ext_proc filter whose body modes would break replies.
func checkMode(m *extprocv3.ProtocolConfiguration) *apierror.Error {
	const want = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	for _, c := range []struct {
		key  string
		mode extprocfilterv3.ProcessingMode_BodySendMode
	}{{"request_body_mode", m.GetRequestBodyMode()}, {"response_body_mode", m.GetResponseBodyMode()}} {
		if c.mode != want {
			return apierror.New(http.StatusInternalServerError, "ext_proc_mode", "",
				"Envoy's ext_proc filter has processing_mode.%s %s: set it to %s, and headers and trailers to SEND, for envoy-harmony", c.key, c.mode, want)
		}
	}
	return nil
}

// override reads the override header where it is allowed.
func (x *exchange) override(h *corev3.HeaderMap) string {
	if !x.s.cfg.AllowOverride {
		return ""
	}
	return strings.ToLower(header(h, overrideHeader))
}

// codex tells whether a response is to be made in Codex compatibility mode.
func (x *exchange) codex(h *corev3.HeaderMap) bool {
	if x.s.cfg.AllowOverride {
		switch strings.ToLower(header(h, codexHeader)) {
		case "on":
			return true
		case "off":
			return false
		}
	}
	return x.s.cfg.Responses.CodexCompatibility
}

func (x *exchange) requestBody(b *extprocv3.HttpBody) {
	switch x.phase {
	case phaseRelay:
		x.sendRequestBody(b.GetBody(), b.GetEndOfStream())
	case phaseCollect:
		x.collect(b.GetBody(), b.GetEndOfStream())
	}
}

func (x *exchange) requestTrailers() {
	switch x.phase {
	case phaseRelay:
		x.out = append(x.out, requestTrailersReply())
	case phaseCollect:
		x.collected(true)
	}
}

// collect keeps a piece of a body that may be ours.
func (x *exchange) collect(p []byte, end bool) {
	if int64(len(x.body)+len(p)) > x.s.cfg.Limits.MaxBodyBytes {
		x.refuse(x.tooLarge())
		return
	}
	if !x.share.take(len(p)) {
		x.refuse(overloaded())
		return
	}
	x.body = append(x.body, p...)
	if x.encoding == "" {
		x.scan.feed(p)
		if x.foreign() {
			x.giveAway(end, false)
			return
		}
	}
	if end {
		x.collected(false)
	}
}

func overloaded() *apierror.Error {
	err := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "too many requests are being received at once: try again shortly")
	err.RetryAfter = time.Second
	return err
}

func (x *exchange) tooLarge() *apierror.Error {
	return apierror.New(http.StatusRequestEntityTooLarge, "request_too_large", "",
		"the request body is larger than %d bytes: send less history or smaller attachments", x.s.cfg.Limits.MaxBodyBytes)
}

// foreign tells whether the body seen so far names a model that is not
// Harmony's. A Harmony model's settings are remembered.
func (x *exchange) foreign() bool {
	if x.target.known || !x.scan.done || x.scan.other {
		return false
	}
	m, harmony := x.s.cfg.Model(x.scan.model)
	if !harmony && !x.forced {
		return true
	}
	x.target = target{true, m, x.s.dialects[m.Engine]}
	return false
}

// giveAway turns a collected request over to whom it belongs to: it is sent on
// as it came, and its reply is relayed.
func (x *exchange) giveAway(end, trailers bool) {
	body := x.body
	x.release()
	x.relayRequest()
	if x.bodyless {
		return
	}
	x.sendRequestBody(body, end)
	if trailers {
		x.out = append(x.out, requestTrailersReply())
	}
}

// release gives up the collected body.
func (x *exchange) release() {
	x.share.release()
	x.body = nil
}

// relayRequest lets the request pass. Headers that only the filter may set are
// taken out, and the route is chosen anew if there were any.
func (x *exchange) relayRequest() {
	x.phase = phaseRelay
	x.timers.clearAll()
	var m mutation
	m.remove(x.strip...)
	x.out = append(x.out, requestHeadersReply(&m, slices.Contains(x.strip, EngineHeader)))
}

// collected has the whole body: it becomes a token request.
func (x *exchange) collected(trailers bool) {
	x.timers.clear(timerBody)
	body, err := inflate(x.encoding, x.body, x.s.cfg.Limits.MaxBodyBytes, x.share.take)
	if err != nil {
		x.refuse(err)
		return
	}
	if x.encoding != "" {
		x.scan.feed(body)
		if x.foreign() {
			x.giveAway(!trailers, trailers)
			return
		}
	}
	if err = x.check(); err == nil {
		if x.api.serve != nil {
			x.serve(body, trailers)
			return
		}
		err = x.dispatch(body, trailers)
	}
	if err != nil {
		x.refuse(err)
	}
}
