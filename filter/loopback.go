package filter

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

const (
	// loopbackIdle is how many connections to the loopback listener are kept
	// for the next calls.
	loopbackIdle = 1024
	// loopbackPiece is how much of an engine's answer is read at a time.
	loopbackPiece = 8 << 10
)

// loopback makes model calls through Envoy's loopback listener: a listener
// with the routes to the engines and without the filter. Connections are
// HTTP/1.1, so that they spread over Envoy's workers.
type loopback struct {
	host      string
	transport *http.Transport
	prefills  map[string]*prefill // by engine, of those that are disaggregated
	keys      []string            // headers of a call by whose values its replica is chosen
	replicas  replicas
}

// newLoopback makes calls to the listener at address, host:port or
// unix:///path.
func newLoopback(address string) *loopback {
	network, host := "tcp", address
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		network, host, address = "unix", "loopback", path
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &loopback{host: host, transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
		DisableCompression:     true,
		MaxIdleConns:           loopbackIdle,
		MaxIdleConnsPerHost:    loopbackIdle,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 1 << 20,
	}}
}

// engineEvent is news of a model call: first the answer's headers, then its
// bytes, then its end or what broke it.
type engineEvent struct {
	status  int
	header  http.Header // of the first event
	body    []byte      // valid until the next event is received
	end     bool
	trailer http.Header // of the end
	err     error

	// Of a disaggregated engine:
	waiting bool          // the prompt is being computed, before there is an answer
	prompt  *engine.Usage // of the first event: what counts in place of the answer's own
}

// loopbackCall is one way to an engine through the loopback listener, for a model call
// and its repetition. The zero value is none.
type loopbackCall struct {
	l      *loopback
	ctx    context.Context //nolint:containedctx // of what the call is made for, of the same life
	header http.Header
	target target
	events <-chan engineEvent // of the call being made, nil if there is none
	stop   context.CancelFunc
}

// dial prepares model calls to target that carry header and end with ctx.
func (l *loopback) dial(ctx context.Context, header http.Header, t target) loopbackCall {
	return loopbackCall{l: l, ctx: ctx, header: header, target: t}
}

// call makes a model call, in place of the one being made.
func (c *loopbackCall) call(r *engine.Request, d detour) *apierror.Error {
	if p := c.l.prefills[c.target.model.Engine]; p != nil {
		g, err := newLegs(c, p, r, d)
		if err != nil {
			return err
		}
		g.make(c.redial())
		return nil
	}
	wire, err := c.target.dialect.Encode(r)
	if err != nil {
		return err
	}
	c.send(c.toEngine(c.target.model.Engine, d), wire)
	return nil
}

func (c *loopbackCall) send(header http.Header, wire *engine.HTTPRequest) {
	ctx, tell := c.redial()
	go c.l.make(ctx, header, wire, tell)
}

// redial ends the call being made and gives what the next one needs: how long it
// may last, and a way to tell news of it, which is false once nobody listens.
func (c *loopbackCall) redial() (ctx context.Context, tell func(engineEvent) bool) {
	c.hangUp()
	ctx, c.stop = context.WithCancel(c.ctx)
	events := make(chan engineEvent)
	c.events = events
	return ctx, func(e engineEvent) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// toEngine are the headers of a call to the engine of that name.
func (c *loopbackCall) toEngine(name string, d detour) http.Header {
	header := c.header.Clone()
	header.Set(EngineHeader, name)
	c.l.divert(header, d)
	return header
}

// hangUp ends the call: the engine sees that nobody listens any more.
func (c *loopbackCall) hangUp() {
	if c.stop != nil {
		c.stop()
		c.stop, c.events = nil, nil
	}
}

// make makes a model call until ctx ends. Its events end with an end, an error
// or, if ctx ends, with none.
func (l *loopback) make(ctx context.Context, header http.Header, wire *engine.HTTPRequest, tell func(engineEvent) bool) {
	if err := l.read(ctx, header, wire, tell); err != nil && ctx.Err() == nil {
		tell(engineEvent{err: err})
	}
}

// read makes the call and tells what comes of it.
func (l *loopback) read(ctx context.Context, header http.Header, wire *engine.HTTPRequest, tell func(engineEvent) bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.host+wire.Path, &readOnce{rest: wire.Body})
	if err != nil {
		return fmt.Errorf("call the engine: %w", err)
	}
	req.ContentLength = int64(len(wire.Body))
	req.Header = header
	req.Host = header.Get("host")
	req.Header.Set("content-type", "application/json")
	for _, h := range wire.Header {
		req.Header.Set(h.Name, h.Value)
	}
	resp, err := l.transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("call the engine: %w", err)
	}
	defer resp.Body.Close()
	if !tell(engineEvent{status: resp.StatusCode, header: resp.Header}) {
		return nil
	}
	said := resp.StatusCode != http.StatusOK
	// One buffer is being read into while the other is with the receiver.
	var buffers [2][]byte
	for i := 0; ; i = 1 - i {
		if buffers[i] == nil {
			buffers[i] = make([]byte, loopbackPiece)
		}
		n, err := resp.Body.Read(buffers[i])
		if n > 0 && !said {
			said = true
			l.replicas.answered(header.Get(EngineHeader), resp.Header.Get(UpstreamHeader))
		}
		if n > 0 && !tell(engineEvent{body: buffers[i][:n]}) {
			return nil
		}
		if err == io.EOF {
			tell(engineEvent{end: true, trailer: resp.Trailer})
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the engine's reply: %w", err)
		}
	}
}

// close gives up idle connections.
func (l *loopback) close() { l.transport.CloseIdleConnections() }

// readOnce is a request body that is let go as it is read: the transport keeps
// the request for as long as its reply lasts. It cannot be read again, so the
// transport never repeats a call by itself.
type readOnce struct{ rest []byte }

func (r *readOnce) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) == 0 {
		r.rest = nil
	}
	return n, nil
}

func (r *readOnce) Close() error {
	r.rest = nil
	return nil
}

// notPassed are the headers of a client's request that do not go along with a
// model call: they are about its own connection or body.
var notPassed = map[string]bool{
	"connection": true, "keep-alive": true, "proxy-connection": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true, "expect": true,
	"digest": true, "content-digest": true, "repr-digest": true, "content-md5": true, "idempotency-key": true, "x-idempotency-key": true,
	"content-length": true, "content-encoding": true, "content-type": true, "accept-encoding": true,
	overrideHeader: true, codexHeader: true, EngineHeader: true, PrefillHeader: true, UpstreamHeader: true, destinationHeader: true,
}

// meddling are headers that do not go along either, because engines heed them: they
// would end the call, change its encoding, or choose a part of the engine.
var meddling = []string{"grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "x-data-parallel-rank"}

// passedHeaders are the headers of a client's request that go along with the
// model call made for it, as they do where Envoy sends the request on itself.
func passedHeaders(m *corev3.HeaderMap) http.Header {
	passed := http.Header{}
	for _, h := range m.GetHeaders() {
		name := h.GetKey()
		if name == ":authority" {
			name = "host"
		}
		if name == "" || name[0] == ':' || notPassed[name] || slices.Contains(meddling, name) || strings.HasPrefix(name, "x-envoy-") {
			continue
		}
		passed.Add(name, cmp.Or(string(h.GetRawValue()), h.GetValue()))
	}
	if passed.Get("user-agent") == "" {
		passed.Set("user-agent", "") // else Go sends its own
	}
	return passed
}

// outliving are the headers that go along with calls made in the background:
// what traces and counts them. The client's credentials do not outlive its own
// request; the engine's come from Envoy.
var outliving = []string{"host", "user-agent", "x-request-id", "traceparent", "tracestate", "baggage", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-forwarded-for", "x-forwarded-proto"}

// withoutCredentials is what goes along with calls made in the background: a
// few headers, and the one that names the tenant.
func (s *Server) withoutCredentials(h http.Header) http.Header {
	kept := http.Header{}
	for _, name := range append(outliving, s.cfg.TenantHeader) {
		if values := h.Values(name); name != "" && len(values) > 0 {
			kept[http.CanonicalHeaderKey(name)] = values
		}
	}
	return kept
}
