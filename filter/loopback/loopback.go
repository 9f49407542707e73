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
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback/h2"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// Connections that take calls, at most one for each CPU: so Envoy's workers share them.
const (
	minConnections = 2
	maxConnections = 16
)

// Client makes calls through the listener. It is safe for concurrent use.
// They share a few HTTP/2 connections.
type Client struct {
	// The listener.
	scheme  string
	host    string // of requests that have none
	secured bool
	pool    *h2.Pool

	// The engines.
	prefills map[string]*prefill // by engine; of the disaggregated ones
	keys     []string            // headers of a call that its replica is chosen by
	replicas *replicas
}

// New makes a client of the listener that the configuration names, host:port,
// https://host:port or unix:///path. dialects are those of its engines, by name; random returns 64
// random bits.
func New(cfg *config.Config, dialects map[string]engine.Dialect, random func() uint64) (*Client, error) {
	address, secured := cfg.LoopbackAddress()
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		network, address = "unix", path
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	c := &Client{scheme: "http", host: address, replicas: &replicas{}}
	dial := func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, network, address) }
	// HTTP/2 requires an authority, and a path is none.
	if network == "unix" {
		c.host = "loopback"
	}

	if secured {
		s, err := newSecured(cfg.LoopbackTLS, dialer)
		if err != nil {
			return nil, err
		}
		c.scheme, c.secured = "https", true
		dial = func(ctx context.Context) (net.Conn, error) { return s.dial(ctx, network, address) }
	}
	c.pool = h2.NewPool(
		min(max(runtime.GOMAXPROCS(0), minConnections), maxConnections), cfg.LoopbackCoalescing.Duration, dial,
	)
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
func (c *Client) Close() { c.pool.Close() }

// Disaggregated implements [run.Dialer].
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

var _ run.Dialer = (*Client)(nil)

// Dial implements [run.Dialer]: it returns [Calls].
func (c *Client) Dial(ctx context.Context, head http.Header, target run.Target) run.Upstream {
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
	// Limits of Envoy count it before the call is made.
	head.Set(header.PromptTokens, strconv.Itoa(len(r.Prompt)))
	c.start(head, wire)
	return nil
}

// start begins a call of one request.
func (c *Calls) start(head http.Header, wire *engine.HTTPRequest) {
	c.Cancel()
	events := make(chan run.Event, 1)
	a := &answer{client: c.client, engine: head.Get(header.Engine)}

	// The channel has room for one event, which stands for all that have come since: the reader
	// of the connection never waits for a run.
	announced := run.Announced(a)
	a.stream = c.client.pool.Prepare(func() {
		select {
		case events <- announced:
		default:
		}
	})
	c.client.pool.Do(c.ctx, a.stream, c.client.request(head, wire))

	unhook := context.AfterFunc(c.ctx, a.stream.Close)
	c.events, c.stop = events, func() {
		unhook()
		a.stream.Close()
	}
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
// and send, which delivers an event and reports whether the call goes on. One goroutine
// sends events with a body. It reads on while the receiver has the last one, so bodies
// are copied, to two places in turns.
func (c *Calls) begin() (ctx context.Context, send func(run.Event) bool) {
	c.Cancel()
	ctx, c.stop = context.WithCancel(c.ctx)
	events := make(chan run.Event)
	c.events = events
	var last, other []byte
	return ctx, func(e run.Event) bool {
		if e.Kind == run.EventBytes {
			last, other = other, last
			last = append(last[:0], e.Body...)
			e.Body = last
		}
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
		send(run.Broken(err))
	}
}

// request is a model call's request.
func (c *Client) request(head http.Header, wire *engine.HTTPRequest) *h2.Request {
	// What the dialect writes is stronger: a gRPC engine has a content type of its own.
	head.Set("content-type", "application/json")
	for _, h := range wire.Header {
		head.Set(h.Name, h.Value)
	}
	return &h2.Request{
		Method:    http.MethodPost,
		Scheme:    c.scheme,
		Authority: c.authority(head),
		Path:      wire.Path,
		Header:    head,
		Body:      wire.Body,
	}
}

// authorityBytes are those of a host and port (RFC 3986), without user information,
// which HTTP/2 does not allow.
const authorityBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:[]%"

// authority is the host of a request with these headers: that of the client's
// request, or the listener's where HTTP/2 cannot carry it.
func (c *Client) authority(head http.Header) string {
	host := head.Get("host")
	if host == "" || strings.Trim(host, authorityBytes) != "" {
		return c.host
	}
	return host
}

// exchange sends a request and delivers the answer.
func (c *Client) exchange(
	ctx context.Context, head http.Header, wire *engine.HTTPRequest, send func(run.Event) bool,
) error {
	a := &answer{client: c, engine: head.Get(header.Engine)}
	return c.receive(ctx, c.request(head, wire), func(st *h2.Stream) (done bool, _ error) {
		a.stream = st
		for e, ok := a.Next(); ok; e, ok = a.Next() {
			if e.Kind == run.EventBroken {
				return true, e.Err
			}
			if !send(e) || e.Kind == run.EventEnded {
				return true, nil
			}
		}
		return false, nil
	})
}

// answer is the answer to a model call.
type answer struct {
	client   *Client
	stream   *h2.Stream
	engine   string
	upstream string // of a good answer, until its first bytes
	begun    bool
}

// Next implements [run.Source].
func (a *answer) Next() (e run.Event, ok bool) {
	p, ok := a.stream.Next()
	if !ok {
		return run.Event{}, false
	}

	switch {
	case p.Err != nil && !a.begun:
		return run.Broken(fmt.Errorf("call the engine: %w", a.client.explain(p.Err))), true
	case p.Err != nil:
		return run.Broken(fmt.Errorf("read the engine's reply: %w", p.Err)), true
	case p.Header != nil:
		a.begun = true
		if p.Status == http.StatusOK {
			a.upstream = p.Header.Get(header.Upstream)
		}
		return run.Answered(p.Status, p.Header, nil), true
	case p.End:
		return run.Ended(p.Trailer), true
	}

	// Headers alone do not prove that a replica works: engines send them long before their
	// first token.
	if a.upstream != "" {
		a.client.replicas.answered(a.engine, a.upstream)
		a.upstream = ""
	}
	return run.Bytes(p.Body), true
}
