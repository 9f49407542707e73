package websocket

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/extproc"
)

// Path is where connections are opened.
const Path = "/v1/responses"

// Limits bound connections. All of them are set.
type Limits struct {
	Connections int
	// Responses are those of a connection that wait or are made.
	Responses int

	MessageBytes int64
	// MessageTime is how long a message may take to arrive.
	MessageTime time.Duration
	// LocalBytes are of the responses that a connection keeps.
	LocalBytes int

	// WriteTime is how long one event may wait for its client to read those before.
	WriteTime time.Duration

	IdleTimeout time.Duration
	MaxAge      time.Duration
	// KeepAlive is the time between two pings, and how long the answer may take; 0: none is sent.
	KeepAlive time.Duration
}

// Memory is what a connection has taken of the memory budget.
type Memory interface {
	// Take takes bytes, or returns them if they are less than 0, which is not refused.
	Take(bytes int) *apierror.Error
	// Receive opens the memory of a message that begins to arrive. drop is called if it has to make
	// room for others, by one of those: it must not wait. The error is for the client.
	Receive(drop func(err *apierror.Error)) Arriving
	// Keep opens the memory of what is kept for later responses. forget is called when so many bytes
	// of it have made room for others, by one of those: it must not wait.
	Keep(forget func(bytes int)) Kept
	// Close returns everything.
	Close()
}

// Arriving is what has been taken for a message that is not whole.
type Arriving interface {
	// Take takes bytes.
	Take(bytes int) *apierror.Error
	// GoesOn notes that bytes have arrived: a message that stalls is the first to make room.
	GoesOn(bytes int)
	// Close returns everything.
	Close()
}

// Kept is what has been taken for what is kept.
type Kept interface {
	// Take takes bytes, or returns them if they are less than 0, which is not refused.
	Take(bytes int) *apierror.Error
	// Use notes that what is kept is of use: what was unused for longest makes room first.
	Use()
	// Close returns everything.
	Close()
}

// Options are what a [Server] is made of.
type Options struct {
	// Drive makes one exchange, by the configuration that is current at its beginning.
	Drive func(d extproc.Driver) error
	// Hold opens the memory of a connection, whose requests have these headers.
	Hold func(headers *extprocv3.ProcessingRequest) Memory
	// Limits are the current ones.
	Limits func() Limits
	// Tenant names the tenant of an upgrade; known is whether tenants are told apart at all. One
	// that is not named is a tenant like others.
	Tenant func(headers http.Header) (name string, known bool)

	Now func() time.Time
	// Go executes work that may wait. The process ends when all such work is done.
	Go    func(work func())
	NewID func(prefix string) string
	// Opened is called for each connection, and what it returns when the connection has ended, with
	// the reason.
	Opened func() (closed func(reason string))
}

// endReason is why a connection ends, or an upgrade is refused. It is a label of metrics.
type endReason string

const (
	reasonClient   endReason = "client"
	reasonIdle     endReason = "idle"
	reasonAge      endReason = "age"
	reasonShutdown endReason = "shutdown"
	reasonSlow     endReason = "slow_reader"
	reasonGone     endReason = "no_pong"
	reasonMessage  endReason = "message"
	reasonRefused  endReason = "refused"
)

// abortTime is how long responses have to end with an error once the time of a drain is over.
const abortTime = time.Second

// Server is the HTTP handler of connections. It is safe for concurrent use.
type Server struct {
	o Options

	mu          sync.Mutex
	connections map[*connection]struct{}
	// ofTenant is how many of the connections each tenant has; empty where they are not told apart.
	ofTenant map[string]int
	draining bool
	// drained is closed when the drain begins, and done waits for the connections.
	drained chan struct{}
	done    sync.WaitGroup
}

// New makes a server.
func New(o Options) *Server {
	return &Server{
		o: o, connections: map[*connection]struct{}{}, ofTenant: map[string]int{}, drained: make(chan struct{}),
	}
}

// ServeHTTP opens a connection, and returns when it has ended.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limits := s.o.Limits()
	c := newConnection(s, limits)

	// net/http reads the body before it answers, for as long as the client lets it wait: the place
	// would be held, and the process would not end.
	if r.ContentLength != 0 {
		w.Header().Set("connection", "close")
		s.refuse(w, apierror.Invalid("", "An upgrade has no body. Send events over the connection."))
		return
	}
	if err := s.admit(c, r, limits); err != nil {
		s.refuse(w, err)
		return
	}
	defer s.leave(c)

	// The origin of a browser has to be the host that it has asked: a page of another site could
	// use the cookies by which Envoy may know a user. Accept answers what it refuses. Nothing is
	// compressed: a frame of a few bytes could become a message of gigabytes.
	metered := meteredUpgrade{w, c}
	ws, err := websocket.Accept(metered, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		s.o.Opened()(string(reasonRefused))
		return
	}

	closed := s.o.Opened()
	defer func() { closed(string(c.ended())) }()
	c.serve(ws, r)
}

// admit takes a place for a connection.
func (s *Server) admit(c *connection, r *http.Request, limits Limits) *apierror.Error {
	if r.URL.Path != Path {
		return apierror.New(http.StatusNotFound, "", "", "Only %s is served over WebSocket.", Path)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	tenant, known := s.o.Tenant(r.Header)
	switch {
	case s.draining:
		return shutDown()
	// A place costs a client nothing, and is held for hours: one tenant must leave some to others.
	case len(s.connections) >= limits.Connections, known && s.ofTenant[tenant] >= (limits.Connections+1)/2:
		err := apierror.New(http.StatusServiceUnavailable, "overloaded", "",
			"There are too many WebSocket connections. Try again shortly, or send a POST.")
		err.RetryAfter = time.Second
		return err
	}

	s.connections[c] = struct{}{}
	s.done.Add(1)
	if known {
		c.tenant = &tenant
		s.ofTenant[tenant]++
	}
	return nil
}

func (s *Server) leave(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	s.done.Done()

	if c.tenant == nil {
		return
	}
	s.ofTenant[*c.tenant]--
	// Names that nobody uses any more are not kept: clients may have made them up.
	if s.ofTenant[*c.tenant] == 0 {
		delete(s.ofTenant, *c.tenant)
	}
}

// refuse answers an upgrade with an error.
func (s *Server) refuse(w http.ResponseWriter, err *apierror.Error) {
	s.o.Opened()(string(reasonRefused))
	w.Header().Set("content-type", "application/json")
	if err.RetryAfter > 0 {
		w.Header().Set("retry-after", "1")
	}
	w.WriteHeader(err.Status)
	_, _ = w.Write(err.JSON())
}

// Drain has connections take no more responses, and end when those that they have are done.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		close(s.drained)
	}
}

// Close drains, and waits for the connections until ctx ends. Then it ends them.
func (s *Server) Close(ctx context.Context) {
	s.Drain()
	ended := make(chan struct{})
	go func() {
		s.done.Wait()
		close(ended)
	}()

	select {
	case <-ended:
		return
	case <-ctx.Done():
	}

	// Who drains ends all exchanges with an error at this time. A connection closes in good order
	// when the last of its responses has sent that.
	timer := time.NewTimer(abortTime)
	defer timer.Stop()
	select {
	case <-ended:
		return
	case <-timer.C:
	}

	s.mu.Lock()
	for c := range s.connections {
		c.end(reasonShutdown)
	}
	s.mu.Unlock()
	<-ended
}

func shutDown() *apierror.Error {
	return apierror.New(http.StatusServiceUnavailable, apierror.CodeShutdown, "",
		"The service is restarting. Open a new connection, and send the request again.")
}

// errorEvent is the event of an error that belongs to no response, or to one that has no events.
func errorEvent(lane string, status int, fields json.RawMessage, headers map[string]string) []byte {
	// Neither a text nor a raw object of ours can fail to be written.
	p, _ := json.Marshal(struct {
		Type    string            `json:"type"`
		Lane    string            `json:"stream_id,omitempty"`
		Status  int               `json:"status"`
		Error   json.RawMessage   `json:"error"`
		Headers map[string]string `json:"headers,omitempty"`
	}{"error", lane, status, fields, headers})
	return p
}

// eventOf is the event of an error.
func eventOf(lane string, err *apierror.Error) []byte {
	return errorEvent(lane, err.Status, fieldsOf(err.JSON()), nil)
}

// fieldsOf returns the error in the object of an error reply.
func fieldsOf(object []byte) json.RawMessage {
	var reply struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(object, &reply) != nil || len(reply.Error) == 0 {
		return json.RawMessage(`{"type":"server_error","code":null,"message":"Internal error.","param":null}`)
	}
	return reply.Error
}
