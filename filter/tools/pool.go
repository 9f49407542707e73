package tools

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Client runs jobs at MCP servers and pools the sessions with them. It is safe for
// concurrent use. Make one with [New], and end it with [Client.Close].
type Client struct {
	o Options
	*pool
}

// pool is what the clients of all configurations share.
type pool struct {
	sdk *mcp.Client
	// Ends when Close is called.
	ctx  context.Context
	stop context.CancelFunc
	// Jobs, and sessions that are being opened, watched or closed.
	work sync.WaitGroup

	// To servers of the configuration, and to those of requests.
	trusted, limited *http.Transport
	// That the limited one connects to though they are not public.
	reachable atomic.Pointer[[]netip.Prefix]
	// Semaphore: one element per running process.
	processes chan struct{}
	inflight  inflight

	mu     sync.Mutex
	closed bool
	// By Server.key.
	sessions map[string]*session
	// Labels of servers whose missing tools were logged.
	warned map[string]bool
}

// New returns a Client. It connects to no server before the first job. It logs a
// warning for each configured program that is not installed.
func New(o Options) *Client {
	o.setDefaults()
	client := &Client{o: o, pool: &pool{
		sessions: map[string]*session{}, warned: map[string]bool{},
		processes: make(chan struct{}, o.MaxProcesses), inflight: inflight{limit: o.MaxInflightBytes},
	}}

	client.reachable.Store(&o.AllowedNetworks)
	client.warnOfPrograms()

	// Not the caller's context: the sessions outlive each request and each configuration.
	client.ctx, client.stop = context.WithCancel(context.Background())
	client.trusted, client.limited = client.newTransport(false), client.newTransport(true)

	client.sdk = mcp.NewClient(&mcp.Implementation{Name: clientName, Version: "1"}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	client.sdk.AddReceivingMiddleware(rejectRequests)
	return client
}

// With returns a client of another configuration that shares the sessions of c.
// Requests' servers are reached in its AllowedNetworks from now on, also by c.
// MaxProcesses, MaxInflightBytes, Resolver and TLS stay those of c. Closing one of
// the two closes both. With c nil it is New.
func (c *Client) With(o Options) *Client {
	if c == nil {
		return New(o)
	}
	o.setDefaults()

	next := &Client{o: o, pool: c.pool}
	next.reachable.Store(&o.AllowedNetworks)
	next.warnOfPrograms()
	return next
}

// Close cancels all jobs, closes all sessions and waits for them, a few seconds at
// most. Later jobs fail.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.stop()
	for _, s := range c.sessions {
		c.removeLocked(s)
	}
	c.mu.Unlock()

	// Without the lock: what is waited for takes it.
	c.work.Wait()
	c.trusted.CloseIdleConnections()
	c.limited.CloseIdleConnections()
}

// begin registers work that Close waits for. It returns false if the client is
// closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Add(1)
	}
	return !c.closed
}

func (c *Client) transport(s *Server) *http.Transport {
	if s.Trusted {
		return c.trusted
	}
	return c.limited
}

// acquire returns the open session of a server, and opens one if there is none. The
// caller must release it.
func (c *Client) acquire(ctx context.Context, server *Server) (*session, failure) {
	joined, f := c.join(server)
	if joined == nil {
		return nil, f
	}

	select {
	case <-joined.ready:
	case <-ctx.Done():
		c.release(joined)
		return nil, failure{}
	}

	if joined.mcp == nil {
		c.release(joined)
		return nil, joined.failure
	}
	return joined, failure{}
}

// join adds a user to the session of a server, which may still be opening.
func (c *Client) join(server *Server) (*session, failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, failure{text: "The service is shutting down."}
	}

	key := server.key()
	pooled := c.sessions[key]

	// A session that is in use already keeps its place.
	if pooled == nil || pooled.users == 0 {
		if f := c.admitLocked(server); f.text != "" {
			return nil, f
		}
	}

	if pooled == nil {
		if f := c.makeRoomLocked(server); f.text != "" {
			return nil, f
		}
		pooled = &session{
			client: c, server: server, key: key,
			ready: make(chan struct{}), stream: share{total: &c.inflight},
		}
		pooled.ctx, pooled.cancel = context.WithCancel(context.Background())
		c.sessions[key] = pooled
		c.o.Metrics.Sessions(len(c.sessions))
		c.work.Go(func() { c.runSession(pooled) })
	}

	pooled.users++
	// It would close the session while it is used.
	if pooled.idle != nil {
		pooled.idle.Stop()
		pooled.idle = nil
	}
	return pooled, failure{}
}

// runSession opens a session and waits for its end.
func (c *Client) runSession(s *session) {
	s.open()
	if s.mcp != nil {
		// Its users get the error from their own requests.
		_ = s.mcp.Wait()
	}
	s.stream.end()
	c.drop(s)
}

// firstWarning reports whether this is the first warning about a server.
func (c *Client) firstWarning(label string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.warned[label]
	c.warned[label] = true
	return first
}

// release removes a user from a session. A session without users is closed after
// IdleTimeout.
func (c *Client) release(session *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	session.users--
	session.used = c.o.Now()

	switch {
	case session.users > 0:
	// Nobody gets it any more, so that nothing has to be waited for.
	case session.retired:
		c.closeLocked(session)
	default:
		session.idle = time.AfterFunc(c.o.IdleTimeout, func() { c.expire(session) })
	}
}

func (c *Client) expire(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.users == 0 && !s.retired {
		c.removeLocked(s)
	}
}

// drop retires a session: new jobs use another one.
func (c *Client) drop(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(s)
}

func (c *Client) removeLocked(session *session) {
	if session.retired {
		return
	}

	session.retired = true
	delete(c.sessions, session.key)
	c.o.Metrics.Sessions(len(c.sessions))
	if session.idle != nil {
		session.idle.Stop()
		session.idle = nil
	}

	if session.users == 0 {
		c.closeLocked(session)
	}
}

// closeLocked closes a session without users. Client.Close waits for it: when this
// is called, runSession or a job of the session is still registered.
func (c *Client) closeLocked(s *session) {
	c.work.Go(s.close)
}
