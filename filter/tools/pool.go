package tools

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Client does jobs at MCP servers and keeps the sessions with them. It is safe
// for concurrent use. Make one with [New].
type Client struct {
	o    Options
	sdk  *mcp.Client
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup // jobs, and sessions that are being opened, watched or closed

	trusted, guarded *http.Transport
	processes        chan struct{} // has an element for each that runs
	inflight         inflight

	mu       sync.Mutex
	closed   bool
	sessions map[string]*session // by the server's key
	warned   map[string]bool     // labels of servers that lack tools
}

// New makes a Client. It connects to nothing before the first job, but warns of
// programs that are missing.
func New(o Options) *Client {
	o.setDefaults()
	c := &Client{
		o: o, sessions: map[string]*session{}, warned: map[string]bool{},
		processes: make(chan struct{}, o.MaxProcesses), inflight: inflight{limit: o.MaxInflightBytes},
	}
	c.warnOfPrograms()
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.trusted, c.guarded = c.newTransport(false), c.newTransport(true)
	c.sdk = mcp.NewClient(&mcp.Implementation{Name: clientName, Version: "1"}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	c.sdk.AddReceivingMiddleware(refuse)
	return c
}

// Close ends all jobs and sessions and waits for them, a few seconds at most.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.stop()
	for _, s := range c.sessions {
		c.removeLocked(s)
	}
	c.mu.Unlock()
	c.work.Wait()
	c.trusted.CloseIdleConnections()
	c.guarded.CloseIdleConnections()
}

// begin counts work that Close waits for; it tells false once that is too late.
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
	return c.guarded
}

// acquire gives the open session of a server, and opens it if there is none. The
// caller has to release it.
func (c *Client) acquire(ctx context.Context, server *Server) (*session, failure) {
	s, f := c.join(server)
	if s == nil {
		return nil, f
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		c.release(s)
		return nil, failure{}
	}
	if s.mcp == nil {
		c.release(s)
		return nil, s.failure
	}
	return s, failure{}
}

// join counts a user of a session, which may still be opening.
func (c *Client) join(server *Server) (*session, failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, failure{text: "The service is shutting down."}
	}
	key := server.key()
	s := c.sessions[key]
	if s == nil {
		if f := c.makeRoomLocked(server); f.text != "" {
			return nil, f
		}
		s = &session{client: c, server: server, key: key, ready: make(chan struct{}), stream: share{of: &c.inflight}}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		c.sessions[key] = s
		c.o.Metrics.Sessions(len(c.sessions))
		c.work.Go(func() { c.live(s) })
	}
	s.users++
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	return s, failure{}
}

// live opens a session and waits for its end.
func (c *Client) live(s *session) {
	s.open()
	if s.mcp != nil {
		_ = s.mcp.Wait() // those who use it are told of errors
	}
	s.stream.end()
	c.drop(s)
}

// warnsFirst tells whether this is the first warning of a server.
func (c *Client) warnsFirst(label string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.warned[label]
	c.warned[label] = true
	return first
}

// release ends a use of a session. One that nobody uses is closed after a while.
func (c *Client) release(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.users--
	s.used = c.o.Now()
	switch {
	case s.users > 0:
	case s.gone:
		c.closeLocked(s)
	default:
		s.idle = time.AfterFunc(c.o.IdleTimeout, func() { c.expire(s) })
	}
}

func (c *Client) expire(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.users == 0 && !s.gone {
		c.removeLocked(s)
	}
}

// drop gives a session no more users.
func (c *Client) drop(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(s)
}

// makeRoomLocked makes room for a session with a server.
func (c *Client) makeRoomLocked(server *Server) failure {
	processes := 0
	for _, s := range c.sessions {
		if s.server.isProcess() {
			processes++
		}
	}
	switch {
	case server.isProcess() && processes >= c.o.MaxProcesses && !c.evictLocked((*Server).isProcess):
		return failure{text: "Too many processes of MCP servers are in use (tools.max_processes). Try again later."}
	case len(c.sessions) >= c.o.MaxSessions && !c.evictLocked(func(*Server) bool { return true }):
		return failure{text: "Too many sessions with MCP servers are in use (tools.max_sessions). Try again later."}
	}
	return failure{}
}

// evictLocked makes room for a session: of the sessions of such servers that
// nobody uses, those of the tenant with the most sessions go first, and of these
// the one that was used longest ago.
func (c *Client) evictLocked(of func(*Server) bool) bool {
	held := map[string]int{}
	for _, s := range c.sessions {
		if of(s.server) {
			held[s.server.Tenant]++
		}
	}
	var first *session
	for _, s := range c.sessions {
		if s.users > 0 || !of(s.server) {
			continue
		}
		if first == nil || cmp.Or(held[s.server.Tenant]-held[first.server.Tenant], first.used.Compare(s.used)) > 0 {
			first = s
		}
	}
	if first != nil {
		c.removeLocked(first)
	}
	return first != nil
}

func (c *Client) removeLocked(s *session) {
	if s.gone {
		return
	}
	s.gone = true
	delete(c.sessions, s.key)
	c.o.Metrics.Sessions(len(c.sessions))
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	if s.users == 0 {
		c.closeLocked(s)
	}
}

// closeLocked closes a session that nobody uses or will use. Close waits for it:
// the session's live, or a job, is still counted when this is called.
func (c *Client) closeLocked(s *session) {
	c.work.Go(s.close)
}
