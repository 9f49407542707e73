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
	// protocol is the MCP version that is requested first: the newest that has
	// sessions, which stateful tools need.
	protocol = "2025-11-25"
	// closeTimeout is how long a server may take to end a session.
	closeTimeout = 2 * time.Second
	// maxTimeouts is the number of consecutive calls without an answer after which a
	// session counts as broken.
	maxTimeouts = 3
)

// session is a session with a server, from the attempt to open it on.
type session struct {
	client *Client
	server *Server
	key    string
	// Ends with the session and cancels all its requests.
	ctx    context.Context
	cancel context.CancelFunc

	// Closed once the session is open or has failed to open.
	ready chan struct{}
	// Nil if it could not be opened.
	mcp *mcp.ClientSession
	// One of the Transport constants.
	transport string
	// Why it could not be opened.
	failure failure
	// The last one started; nil if none was.
	process *process
	// Tools of Server.Expects that the server does not list.
	missingTools []string
	// Bytes outside the answers to HTTP requests.
	stream share

	// Consecutive calls without an answer in time.
	timeouts atomic.Int32

	// Client.mu guards the fields below.
	users int
	// When the last user released it.
	used time.Time
	// Closes the session; nil while it has users.
	idle *time.Timer
	// New jobs must not use it.
	retired bool
}

// open opens the session. A server that rejects initialize is asked again with the
// newest protocol version, which has no sessions. A server that does not speak
// streamable HTTP is asked over SSE, unless its transport is configured.
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

	state, err := s.connect(ctx, protocol)

	switch {
	case err == nil:
	case lacksInitialize(err):
		state, err = s.connect(ctx, "")
	case s.server.Transport == "" && mayBeSSE(state.status):
		s.transport = TransportSSE
		if _, retried := s.connect(ctx, ""); retried == nil {
			err = nil
		}
	}
	switch {
	case err != nil:
		s.failure = s.explain(ctx, err, state)
	case len(s.server.Expects) > 0:
		s.missingTools = s.findMissing(ctx)
	}
}

// findMissing returns the tools in Server.Expects that the server does not list,
// nil if listing fails. It logs a warning once per server.
func (s *session) findMissing(ctx context.Context) (names []string) {
	listed, f := (&task{client: s.client, server: s.server}).list(ctx, s)
	if f.text != "" {
		return nil
	}

	for _, name := range s.server.Expects {
		if !slices.ContainsFunc(listed.Tools, func(t Tool) bool { return t.Name == name }) {
			names = append(names, name)
		}
	}

	if len(names) > 0 && s.client.firstWarning(s.server.Label) {
		s.client.o.Log.WithField("mcp_server", s.server.Label).Warnf(
			"The MCP server implements a built-in tool, but has no tool %s: calls of it fail. docs/tools.md "+
				"lists the tools that it needs.", strings.Join(names, ", "))
	}
	return names
}

// lacksInitialize reports whether a server rejected the initialize request because
// it speaks only protocol versions without it.
func lacksInitialize(err error) bool {
	var e *jsonrpc.Error
	return errors.As(err, &e) && (e.Code == jsonrpc.CodeMethodNotFound || e.Code == mcp.CodeUnsupportedProtocolVersion)
}

// mayBeSSE reports whether an HTTP status can mean that the server speaks only SSE.
func mayBeSSE(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusMethodNotAllowed
}

// connect connects and runs the MCP handshake.
func (s *session) connect(ctx context.Context, version string) (requestState, error) {
	ctx, opener := s.client.withRequest(ctx)
	defer opener.share.end()
	if s.transport == TransportSSE {
		// The newest version that defines SSE.
		version = protocol
	}

	var err error
	s.mcp, err = s.client.sdk.Connect(ctx, &connector{session: s, opener: opener},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		s.mcp = nil
	}
	return opener.snapshot(), err
}

// connector is the transport of a session.
type connector struct {
	session *session
	opener  *request
}

// Connect implements [mcp.Transport]. The connection lives as long as the session;
// ctx would end with the handshake.
func (l *connector) Connect(context.Context) (mcp.Connection, error) {
	session := l.session
	ctx := context.WithValue(session.ctx, requestKey{}, l.opener)
	if session.transport == TransportStdio {
		conn, err := session.start(ctx)
		if err != nil {
			return nil, err
		}
		return newWire(conn, true, &session.stream), nil
	}

	sender, err := newLimitedSender(session, l.opener)
	if err != nil {
		return nil, err
	}

	// An event is longer than its message.
	maxEvent := session.client.o.MaxMessageBytes + 64<<10
	var t mcp.Transport = &mcp.StreamableClientTransport{
		Endpoint: session.server.URL, HTTPClient: sender.client(), MaxEventSize: maxEvent,
		MaxRetries: 1, DisableStandaloneSSE: true,
	}
	if session.transport == TransportSSE {
		t = &mcp.SSEClientTransport{Endpoint: session.server.URL, HTTPClient: sender.client(), MaxEventSize: maxEvent}
	}

	conn, err := t.Connect(ctx)
	if err != nil {
		return nil, err
	}
	sender.wire = newWire(conn, false, &session.stream)
	return sender.wire, nil
}

// close ends the session, at the server as well, and waits for it.
func (s *session) close() {
	<-s.ready
	timer := time.AfterFunc(closeTimeout, s.cancel)
	defer timer.Stop()
	if s.mcp != nil {
		// The server may have ended.
		_ = s.mcp.Close()
	}
	s.cancel()
}
