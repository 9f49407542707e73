package tools

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// protocol is the version that servers are asked for first: the newest that
	// has sessions, which stateful tools need.
	protocol = "2025-11-25"
	// closeTimeout is how long a server may take to take note of a session's end.
	closeTimeout = 2 * time.Second
	// maxTimeouts is how many calls in a row may end without an answer before a
	// session counts as broken.
	maxTimeouts = 3
)

// session is a session with a server, or the attempt to open one.
type session struct {
	client *Client
	server *Server
	key    string
	ctx    context.Context // ends with the session, and everything in it with it
	cancel context.CancelFunc

	ready     chan struct{}      // closed once it is open, or is not
	mcp       *mcp.ClientSession // nil: it could not be opened
	transport string             // one of the Transport constants
	failure   failure            // why it could not be opened
	process   *process           // the one that was started last; nil: none
	lacks     []string           // of the tools that the server should have
	stream    share              // of what comes outside the answers to HTTP requests

	timeouts atomic.Int32 // calls in a row that got no answer in time

	// The client's mutex guards what follows.
	users int
	used  time.Time   // when the last user left
	idle  *time.Timer // closes it; nil while it has users
	gone  bool        // it gets no more users
}

// open opens the session. Servers that know no version with sessions are asked
// for the newest; those that do not know streamable HTTP are asked by SSE, if the
// transport may be chosen.
func (s *session) open() {
	defer close(s.ready)
	ctx, end := context.WithTimeout(s.ctx, s.client.o.ListTimeout)
	defer end()
	unbind := context.AfterFunc(ctx, s.cancel)
	defer unbind()

	s.transport = s.server.Transport
	switch {
	case s.server.URL == "":
		s.transport = TransportStdio
	case s.transport == "":
		s.transport = TransportHTTP
	}
	known, err := s.connect(ctx, protocol)
	switch {
	case err == nil:
	case newer(err):
		known, err = s.connect(ctx, "")
	case s.server.Transport == "" && older(known.status):
		s.transport = TransportSSE
		if _, retried := s.connect(ctx, ""); retried == nil {
			err = nil
		}
	}
	switch {
	case err != nil:
		s.failure = s.explain(ctx, err, known)
	case len(s.server.Expects) > 0:
		s.lacks = s.missing(ctx)
	}
}

// missing is the tools that the server should have and has not, as far as it lists
// them. The log is told once.
func (s *session) missing(ctx context.Context) (names []string) {
	listed, f := (&task{client: s.client, server: s.server}).list(ctx, s)
	if f.text != "" {
		return nil
	}
	for _, name := range s.server.Expects {
		if !slices.ContainsFunc(listed.Tools, func(t Tool) bool { return t.Name == name }) {
			names = append(names, name)
		}
	}
	if len(names) > 0 && s.client.warnsFirst(s.server.Label) {
		s.client.o.Log.WithField("mcp_server", s.server.Label).Warnf("The MCP server does the work of a built-in tool, and has no tool %s: calls of it fail. docs/responses.md has the tools that it needs.", strings.Join(names, ", "))
	}
	return names
}

// newer tells whether a server has refused the initialize request because it
// knows only versions without it.
func newer(err error) bool {
	var e *jsonrpc.Error
	return errors.As(err, &e) && (e.Code == jsonrpc.CodeMethodNotFound || e.Code == mcp.CodeUnsupportedProtocolVersion)
}

// older tells whether an HTTP status means that a server may speak SSE only.
func older(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusMethodNotAllowed
}

// connect connects and shakes hands.
func (s *session) connect(ctx context.Context, version string) (facts, error) {
	ctx, opening := s.client.withCall(ctx)
	defer opening.share.end()
	if s.transport == TransportSSE {
		version = protocol // the newest that SSE is defined for
	}
	var err error
	s.mcp, err = s.client.sdk.Connect(ctx, &link{session: s, opening: opening}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		s.mcp = nil
	}
	return opening.known(), err
}

// link is the transport of a session.
type link struct {
	session *session
	opening *call
}

// Connect implements [mcp.Transport]. The connection lives as long as the
// session; ctx is only the handshake's.
func (l *link) Connect(context.Context) (mcp.Connection, error) {
	s := l.session
	ctx := context.WithValue(s.ctx, callKey{}, l.opening)
	if s.transport == TransportStdio {
		conn, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		return newWire(conn, true, &s.stream), nil
	}
	g, err := newGuard(s, l.opening)
	if err != nil {
		return nil, err
	}
	most := s.client.o.MaxMessageBytes + 64<<10 // an event has more than its message
	var t mcp.Transport = &mcp.StreamableClientTransport{
		Endpoint: s.server.URL, HTTPClient: g.client(), MaxRetries: 1, DisableStandaloneSSE: true, MaxEventSize: most,
	}
	if s.transport == TransportSSE {
		t = &mcp.SSEClientTransport{Endpoint: s.server.URL, HTTPClient: g.client(), MaxEventSize: most}
	}
	conn, err := t.Connect(ctx)
	if err != nil {
		return nil, err
	}
	g.wire = newWire(conn, false, &s.stream)
	return g.wire, nil
}

// close ends the session at the server, too, and waits for it.
func (s *session) close() {
	<-s.ready
	timer := time.AfterFunc(closeTimeout, s.cancel)
	defer timer.Stop()
	if s.mcp != nil {
		_ = s.mcp.Close() // the server may be gone already
	}
	s.cancel()
}
