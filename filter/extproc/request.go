package extproc

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	grpcmetadata "google.golang.org/grpc/metadata"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// clientRequest is what is known of the client's request.
type clientRequest struct {
	requestLine

	// Who handles it.
	endpoint *api.Endpoint // nil: the path is not the filter's
	ids      [2]string     // in the path
	override override
	options  []string // that the endpoint's header switches on
	codex    bool     // Codex compatibility mode is on
	rollout  rolledOut

	// Whose it is.
	party

	id      string           // x-request-id: of the reply and of the engine's request, without the API's prefix
	session string           // that the headers name
	other   bool             // the model is none of harmony_models, so that the request is not the filter's
	parent  telemetry.Parent // span that the request's belongs to
	asked   string           // by the header that asks for a record

	// Its headers, as they go on.
	forward http.Header // what goes along with model calls through the loopback listener; nil without one
	strip   []string    // headers of the client's that only the filter sets

	// Its body.
	bodyShape

	body  collectedBody
	share *memoryShare // the body, and what is read of the store
	scan  modelScan
}

// party is whose request it is.
type party struct {
	tenant string
	key    string // digest of the client's credentials, where a token quota or a setting needs it
}

// bodyShape is in which form a request's body comes.
type bodyShape struct {
	encoding string // content-encoding
	length   int64  // as the headers have it; 0: they do not

	bodyless bool // there are headers only
	filled   bool // the client has sent headers only, and Envoy has added a body
	trailers bool // the body ends with trailers

	onDemand bool // Envoy sends only what is asked for
	demanded bool // the body comes because it was asked for

	late    *apierror.Error // with which the request is answered at the end of its body
	dropped int64           // bytes of a body that are not kept
}

// requestLine is the first line of a request.
type requestLine struct {
	method string
	path   string // without the query
	query  string
}

// override is what the override header says, where it is allowed.
type override uint8

const (
	overrideNone override = iota
	overrideOn
	overrideOff
)

// readRequest reads a request's headers.
func (s *Server) readRequest(h *corev3.HeaderMap) clientRequest {
	cfg := s.o.Config
	r := clientRequest{
		requestLine: requestLine{method: headerOf(h, ":method")},
		id:          cutID(headerOf(h, "x-request-id")),
		party:       party{tenant: tenantOf(h, cfg.TenantHeader)},
		session:     session(h, cfg.Routing.SessionFrom),
		bodyShape:   bodyShape{encoding: strings.ToLower(strings.TrimSpace(headersOf(h, "content-encoding")))},
		codex:       cfg.Responses.CodexCompatibility,
	}
	r.path, r.query, _ = strings.Cut(headerOf(h, ":path"), "?")
	has := func(name string) bool { return headerOf(h, name) != "" }
	r.endpoint, r.ids = api.MatchWith(s.o.Endpoints, r.method, r.path, has)
	r.options = r.endpoint.OptionsOf(func(name string) string { return headersOf(h, name) })
	if r.id == "" {
		r.id = s.o.NewID("")
	}

	if name := s.telemetry.Recorder.Header(); name != "" {
		r.asked = headerOf(h, name)
	}
	if s.o.Budgets.NeedsKey() || cfg.NeedsKey() {
		r.key = keyOf(h, cfg.KeyHeader)
	}
	if length := headerOf(h, "content-length"); length != "" {
		r.length, _ = strconv.ParseInt(length, 10, 64) // Envoy has checked it
	}
	r.filled = headerOf(h, header.Filled) != ""

	// What clients say in the filter's own headers reaches neither upstreams nor engines.
	for _, name := range s.own {
		if headerOf(h, name) != "" {
			r.strip = append(r.strip, name)
		}
	}
	if s.o.Client != nil && r.endpoint != nil {
		r.forward = forwarded(h)
		if id := r.forward.Get("x-request-id"); id != "" {
			r.forward.Set("x-request-id", cutID(id))
		}
	}

	if cfg.AllowOverride {
		r.readOverrides(h)
	}
	return r
}

// readOverrides reads the headers by which a request decides for itself.
func (r *clientRequest) readOverrides(h *corev3.HeaderMap) {
	switch strings.ToLower(headerOf(h, header.Override)) {
	case "on":
		r.override = overrideOn
	case "off":
		r.override = overrideOff
	}
	switch strings.ToLower(headerOf(h, header.Codex)) {
	case "on":
		r.codex = true
	case "off":
		r.codex = false
	}
}

// parentOf is the span of Envoy for its stream to the filter, else the one that the
// request's headers name: Envoy writes its own span into them after the filter.
func parentOf(ctx context.Context, h *corev3.HeaderMap) telemetry.Parent {
	ofStream := func(name string) string {
		if values := grpcmetadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			return values[0]
		}
		return ""
	}
	return telemetry.ParentOf(ofStream, func(name string) string { return headerOf(h, name) })
}

func (x *exchange) requestBody(b *extprocv3.HttpBody) {
	body := b.GetBody()
	if x.request.filled {
		body = nil
	}
	switch x.phase {
	case phaseRelay:
		x.relay(body, b.GetEndOfStream())
	case phaseCollect:
		x.conclude(x.collect(body, b.GetEndOfStream()), b.GetEndOfStream())
	case phaseLate:
		if x.drop(len(body)) || b.GetEndOfStream() {
			x.SendError(x.request.late)
		}
	}
}

// conclude does what the collector has found; end says that the body is complete without trailers.
func (x *exchange) conclude(v verdict, end bool) {
	if v.kind == verdictNone {
		return
	}

	x.runner.Timers.Clear(run.TimerBody)
	switch v.kind {
	case verdictPass:
		x.passCollected(end)
	case verdictRefuse:
		x.refuse(v.err, end)
	case verdictInflate:
		x.inflate()
	case verdictHandle:
		x.handle(v.body)
	}
}

func (x *exchange) requestTrailers() {
	switch x.phase {
	case phaseRelay:
		x.to.add(requestTrailersReply())
	case phaseCollect:
		x.request.trailers = true
		x.conclude(x.whole(), false)
	case phaseLate:
		x.SendError(x.request.late)
	}
}

// passesLarge reports whether a body that is larger than the limit may be for another model
// or for the other side of a rollout, and so has to be read until its model is known. Which
// upstreams there are behind an Envoy of somebody else's is not known here; ours has none
// unless the operator has named one. The model of a compressed body is known at its end only.
func (s *Server) passesLarge(r *clientRequest) bool {
	cfg := s.o.Config
	others := !s.o.OwnEnvoy || cfg.Responses.RelayUnknown || len(cfg.Rollout) > 0
	return others && !r.endpoint.NoModel && r.encoding == "" && r.override != overrideOn
}

func bodyTooLarge(limit int64) *apierror.Error {
	return apierror.New(http.StatusRequestEntityTooLarge, "request_too_large", "",
		"The request body is larger than %d bytes. Send less history or smaller attachments.", limit)
}

// check rejects what no endpoint can answer.
func (s *Server) check(r *clientRequest, target *run.Target) *apierror.Error {
	if err := s.checkTenant(r); err != nil {
		return err
	}
	switch {
	case target.Engine == "" && !r.endpoint.NoModel:
		return nil // the endpoint says what is wrong: no object, no model, not a string
	case target.Dialect == nil && !r.endpoint.NoModel:
		return apierror.New(http.StatusServiceUnavailable, "engine_missing", "model",
			"No engine is configured for this model.")
	}
	return nil
}

// passThrough lets the request pass. Headers that only the filter may set are
// removed, and the route is chosen anew if it could have depended on them.
func (x *exchange) passThrough() {
	x.phase = phaseRelay
	x.runner.Timers.ClearAll()

	var m mutation
	m.remove(x.request.strip...)
	if x.request.filled { // the upstream does not get the body that Envoy has added
		m.set(engine.Header{Name: "content-length", Value: "0"})
	}

	// Where bodies come on demand, the rest of the body is not asked for. The reply's headers are, if
	// the upstream may not have either what is not stored here; not to say that the request was passed
	// on, since who chose this mode wants other models' replies to cost nothing here.
	reply := requestHeadersReply(&m, slices.Contains(x.request.strip, header.Engine))
	if x.request.demanded || x.request.onDemand && x.elsewhere != nil {
		reply.ModeOverride = demandedMode(false)
	}
	if reply.ModeOverride != nil && x.elsewhere != nil {
		reply.ModeOverride.ResponseHeaderMode = extprocfilterv3.ProcessingMode_SEND
	}
	x.to.add(reply)
}

// passCollected passes on a request as it came, as far as its body was collected;
// end says that the body is complete without trailers.
func (x *exchange) passCollected(end bool) {
	pieces := x.request.body.pieces
	x.request.body = collectedBody{}
	x.request.scan.relayed = x.request.encoding == ""
	x.passThrough()
	x.passing = true
	if x.request.bodyless {
		return
	}

	// The pieces are not joined: the body of a request for another model may be large, and
	// Envoy takes it as slowly as its upstream does.
	for i, p := range pieces {
		x.to.requestBody(p, end && i == len(pieces)-1)
	}
	if len(pieces) == 0 {
		x.to.requestBody(nil, end)
	}
	if x.request.trailers {
		x.to.add(requestTrailersReply())
	}
}

// release drops the collected body, and returns what was taken of the memory budget.
func (r *clientRequest) release() { _ = r.keep(0) }

// keep is release, but n bytes stay taken, of which some may not have been.
func (r *clientRequest) keep(n int64) (missing int64) {
	r.body = collectedBody{}
	if r.share == nil {
		return n
	}
	return r.share.keep(n)
}

// droppedHeaders are the headers of a client's request that are not forwarded with
// a model call: they are about its own connection or body.
var droppedHeaders = func() map[string]bool {
	dropped := map[string]bool{}
	for _, name := range slices.Concat(header.Own(), engineControlHeaders, []string{
		"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect",
		"digest", "content-digest", "repr-digest", "content-md5", "idempotency-key", "x-idempotency-key",
		"content-length", "content-encoding", "content-type", "accept-encoding",
	}) {
		dropped[name] = true
	}
	return dropped
}()

// engineControlHeaders are not forwarded because engines obey them: they would end
// the call, change its encoding, or choose a part of the engine.
var engineControlHeaders = []string{"grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "x-data-parallel-rank"}

// forwarded are the headers of a client's request that go along with the model
// calls made for it.
func forwarded(m *corev3.HeaderMap) http.Header {
	kept := http.Header{}
	for _, h := range m.GetHeaders() {
		name := h.GetKey()
		if name == ":authority" {
			name = "host"
		}
		if name == "" || name[0] == ':' || droppedHeaders[name] || strings.HasPrefix(name, "x-envoy-") {
			continue
		}
		kept.Add(name, cmp.Or(string(h.GetRawValue()), h.GetValue()))
	}

	if kept.Get("user-agent") == "" {
		kept.Set("user-agent", "") // else Go sends its own
	}
	return kept
}

// session is the session that a request's headers name, the first of names that it
// has; "" if it has none.
func session(h *corev3.HeaderMap, names []string) string {
	for _, name := range names {
		if id := headerOf(h, name); id != "" {
			return id
		}
	}
	return ""
}
