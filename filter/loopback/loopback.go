// Package loopback makes model calls through Envoy's loopback listener: a
// listener with the routes to the engines, and without the filter. So a call is
// balanced, retried and encrypted as every other request, and an engine that
// disconnects is an error in the reply, not a reset of the client's stream.
//
// A [Client] is shared by all runs. [Client.Dial] prepares the calls of one run:
// each is one HTTP request, or two for an engine that computes prompts and output
// in different processes (disaggregated.go). A call that failed is repeated with
// headers that lead Envoy to another replica (retry.go).
package loopback

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

const (
	// maxIdle is how many connections to the listener are kept for the next
	// calls.
	maxIdle = 1024
	// pieceBytes is how much of an engine's answer is read at a time.
	pieceBytes = 8 << 10
)

// Client makes calls through the listener. It is safe for concurrent use.
// Connections are HTTP/1.1, so that they spread over Envoy's workers.
type Client struct {
	base      string // scheme and host of request URLs
	transport *http.Transport
	prefills  map[string]*prefill // by engine; of the disaggregated ones
	keys      []string            // headers of a call that its replica is chosen by
	replicas  *replicas
}

// New makes a client of the listener that the configuration names, host:port,
// https://host:port or unix:///path. dialects are those of its engines, by name; random returns 64
// random bits.
func New(cfg *config.Config, dialects map[string]engine.Dialect, random func() uint64) (*Client, error) {
	address, secured := cfg.LoopbackAddress()
	network, base := "tcp", "http://"+address
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		network, base, address = "unix", "http://loopback", path
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	c := &Client{
		base:     base,
		replicas: &replicas{},
		transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, address)
			},
			DisableCompression:     true,
			MaxIdleConns:           maxIdle,
			MaxIdleConnsPerHost:    maxIdle,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: 1 << 20,
		},
	}
	if secured {
		s, err := newSecured(cfg.LoopbackTLS, dialer)
		if err != nil {
			return nil, err
		}
		c.base, c.transport.DialTLSContext = "https://"+address, s.dial
	}
	return c.With(cfg, dialects, random)
}

// With returns a client of another configuration with the same listener. Both have
// the same connections, and know the same of replicas. With c nil it is New.
func (c *Client) With(cfg *config.Config, dialects map[string]engine.Dialect, random func() uint64) (*Client, error) {
	if c == nil {
		return New(cfg, dialects, random)
	}
	prefills, err := newPrefills(cfg, dialects, random)
	if err != nil {
		return nil, err
	}
	next := *c
	next.prefills, next.keys = prefills, []string{cfg.Routing.PrefixHeader, cfg.Routing.SessionHeader}
	return &next, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Disaggregated reports whether prefill and decode of an engine are two calls.
func (c *Client) Disaggregated(engineName string) bool { return c.prefills[engineName] != nil }

// Calls makes the model calls of one run, one at a time. It implements
// [run.Upstream].
type Calls struct {
	client *Client
	ctx    context.Context //nolint:containedctx // of the run, of the same life
	header http.Header
	target run.Target
	events <-chan run.Event // of the call being made; nil: there is none
	stop   context.CancelFunc
}

// Dial prepares model calls to target that carry the headers head and end with ctx.
func (c *Client) Dial(ctx context.Context, head http.Header, target run.Target) *Calls {
	return &Calls{client: c, ctx: ctx, header: head, target: target}
}

// Call implements [run.Upstream].
func (c *Calls) Call(r *engine.Request, retry run.Retry) *apierror.Error {
	if p := c.client.prefills[c.target.Engine]; p != nil {
		d, err := newDisaggregated(c, p, r, retry)
		if err != nil {
			return err
		}
		d.make(c.begin())
		return nil
	}
	wire, err := c.target.Dialect.Encode(r)
	if err != nil {
		return err
	}
	head := c.headerFor(c.target.Engine, retry)
	head.Set(header.PromptTokens, strconv.Itoa(len(r.Prompt)))
	ctx, send := c.begin()
	go c.client.make(ctx, head, wire, send)
	return nil
}

// Events implements [run.Upstream].
func (c *Calls) Events() <-chan run.Event { return c.events }

// Cancel implements [run.Upstream]: the engine sees that the connection ends.
func (c *Calls) Cancel() {
	if c.stop != nil {
		c.stop()
		c.stop, c.events = nil, nil
	}
}

// begin ends the call being made and returns what the next one needs: its context,
// and send, which delivers an event and reports whether the call goes on.
func (c *Calls) begin() (ctx context.Context, send func(run.Event) bool) {
	c.Cancel()
	ctx, c.stop = context.WithCancel(c.ctx)
	events := make(chan run.Event)
	c.events = events
	return ctx, func(e run.Event) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// headerFor are the headers of a call to the engine of that name.
func (c *Calls) headerFor(name string, retry run.Retry) http.Header {
	h := c.header.Clone()
	h.Set(header.Engine, name)
	c.client.redirect(h, retry)
	return h
}

// make makes a model call until ctx ends. Its last event has the end or an error;
// if ctx ends, neither.
func (c *Client) make(ctx context.Context, head http.Header, wire *engine.HTTPRequest, send func(run.Event) bool) {
	if err := c.exchange(ctx, head, wire, send); err != nil && ctx.Err() == nil {
		send(run.Event{Err: err})
	}
}

// exchange sends a request and delivers the answer.
func (c *Client) exchange(ctx context.Context, head http.Header, wire *engine.HTTPRequest, send func(run.Event) bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+wire.Path, bodyOf(wire.Body))
	if err != nil {
		return fmt.Errorf("call the engine: %w", err)
	}
	req.ContentLength = int64(len(wire.Body))
	req.Header = head
	req.Host = head.Get("host")
	req.Header.Set("content-type", "application/json")
	for _, h := range wire.Header {
		req.Header.Set(h.Name, h.Value)
	}
	resp, err := c.transport.RoundTrip(req) //nolint:bodyclose // it is closed below; deliver only reads it
	if err != nil {
		return fmt.Errorf("call the engine: %w", c.explain(err))
	}
	defer resp.Body.Close()
	if !send(run.Event{Status: resp.StatusCode, Header: resp.Header}) {
		return nil
	}
	answered := func() { c.replicas.answered(head.Get(header.Engine), resp.Header.Get(header.Upstream)) }
	if resp.StatusCode != http.StatusOK {
		answered = func() {}
	}
	return deliver(resp, send, answered)
}

// deliver reads an answer's body to its end. answered is called at its first
// bytes.
func deliver(resp *http.Response, send func(run.Event) bool, answered func()) error {
	// One buffer is read into while the other is with the receiver.
	var buffers [2][]byte
	for i, first := 0, true; ; i = 1 - i {
		if buffers[i] == nil {
			buffers[i] = make([]byte, pieceBytes)
		}
		n, err := resp.Body.Read(buffers[i])
		if n > 0 && first {
			first = false
			answered()
		}
		if n > 0 && !send(run.Event{Body: buffers[i][:n]}) {
			return nil
		}
		if err == io.EOF {
			send(run.Event{End: true, Trailer: resp.Trailer})
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the engine's reply: %w", err)
		}
	}
}
