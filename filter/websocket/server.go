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

	Now func() time.Time
	// Go executes work that may wait. The process ends when all such work is done.
	Go    func(work func())
	NewID func(prefix string) string
	// Opened is called for each connection, and what it returns when the connection has ended, with
	// the reason: one of Reasons.
	Opened func() (closed func(reason string))
}

// The reasons why connections end, and why an upgrade is refused.
const (
	reasonClient   = "client"
	reasonIdle     = "idle"
	reasonAge      = "age"
	reasonShutdown = "shutdown"
	reasonSlow     = "slow_reader"
	reasonGone     = "no_pong"
	reasonMessage  = "message"
	reasonRefused  = "refused"
)

// Server is the HTTP handler of connections. It is safe for concurrent use.
type Server struct {
	o Options

	mu          sync.Mutex
	connections map[*connection]struct{}
	draining    bool
	// drained is closed when the drain begins, and done waits for the connections.
	drained chan struct{}
	done    sync.WaitGroup
}

// New makes a server.
func New(o Options) *Server {
	return &Server{o: o, connections: map[*connection]struct{}{}, drained: make(chan struct{})}
}

// ServeHTTP opens a connection, and returns when it has ended.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limits := s.o.Limits()
	c := newConnection(s, limits)
	if err := s.admit(c, r, limits); err != nil {
		s.o.Opened()(reasonRefused)
		refuse(w, err)
		return
	}
	defer s.leave(c)

	// The origin of a browser has to be the host that it has asked: a page of another site could
	// use the cookies by which Envoy may know a user. Accept answers what it refuses.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		s.o.Opened()(reasonRefused)
		return
	}

	closed := s.o.Opened()
	defer func() { closed(c.reason) }()
	c.serve(ws, r)
}

// admit takes a place for a connection.
func (s *Server) admit(c *connection, r *http.Request, limits Limits) *apierror.Error {
	if r.URL.Path != Path {
		return apierror.New(http.StatusNotFound, "", "", "Only %s is served over WebSocket.", Path)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return shutDown()
	case len(s.connections) >= limits.Connections:
		err := apierror.New(http.StatusServiceUnavailable, "overloaded", "",
			"There are too many WebSocket connections. Try again shortly, or send a POST.")
		err.RetryAfter = time.Second
		return err
	}
	s.connections[c] = struct{}{}
	s.done.Add(1)
	return nil
}

func (s *Server) leave(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	s.done.Done()
}

// refuse answers an upgrade with an error.
func refuse(w http.ResponseWriter, err *apierror.Error) {
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
	s.mu.Lock()
	for c := range s.connections {
		c.cancel()
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
