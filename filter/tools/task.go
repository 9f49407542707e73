package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// stuckTimeout is how long a request that has been given up may still hold its
// session, such as one that a process does not read.
const stuckTimeout = 2 * time.Second

var errDeadline = errors.New("the deadline of the job has passed")

// task is a job that is being done.
type task struct {
	client    *Client
	server    *Server
	tool      string
	arguments json.RawMessage
	timeout   time.Duration
	key       string // of the timeout in the configuration
}

// run does the task in a goroutine of its own, so that it ends in time whatever
// the connection does.
func (t *task) run(ctx context.Context) Result {
	if !t.client.begin() {
		return Result{Error: "The service is shutting down."}
	}
	ctx, end := context.WithTimeoutCause(ctx, t.timeout, errDeadline)
	unbind := context.AfterFunc(t.client.ctx, end)
	done := make(chan Result, 1)
	go func() {
		defer t.client.work.Done()
		defer end()
		defer unbind()
		done <- t.safely(ctx)
	}()
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r
	default:
		f := t.ended(ctx)
		return Result{Error: f.text, Cause: f.cause}
	}
}

// ended is the failure of a task whose context has ended.
func (t *task) ended(ctx context.Context) failure {
	switch {
	case t.client.ctx.Err() != nil:
		return failure{text: "The service is shutting down.", cause: context.Canceled}
	case errors.Is(context.Cause(ctx), errDeadline):
		return failure{text: fmt.Sprintf("The MCP server %q did not answer within %s (%s).", t.server.Label, t.timeout, t.key), cause: errDeadline}
	}
	return failure{text: fmt.Sprintf("The request to the MCP server %q was cancelled.", t.server.Label), cause: context.Cause(ctx)}
}

// safely does the task and never panics.
func (t *task) safely(ctx context.Context) (r Result) {
	defer func() {
		if p := recover(); p != nil {
			r = Result{Error: fmt.Sprintf("The answer of the MCP server %q could not be read.", t.server.Label), Cause: t.server.safe(fmt.Errorf("panic: %v", p))}
		}
	}()
	for first := true; ; first = false {
		r, again := t.try(ctx)
		if !again || !first || ctx.Err() != nil {
			return r
		}
	}
}

// try does the task with the session of the moment. again tells that it has not
// begun, and that a new session may help.
func (t *task) try(ctx context.Context) (r Result, again bool) {
	s, f := t.client.acquire(ctx, t.server)
	if s == nil {
		if ctx.Err() != nil {
			f = t.ended(ctx)
		}
		return Result{Error: f.text, Cause: f.cause}, false
	}
	defer t.client.release(s)
	finished := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		select {
		case <-finished:
		case <-time.After(stuckTimeout):
			s.cancel()
		}
	})
	defer unwatch()
	defer close(finished)

	if t.tool == "" {
		r, f = t.list(ctx, s)
	} else {
		r, f = t.call(ctx, s)
	}
	if f.text == "" {
		s.timeouts.Store(0)
		return r, false
	}
	if ctx.Err() != nil {
		f = t.ended(ctx)
		f.broken = errors.Is(f.cause, errDeadline) && s.timeouts.Add(1) >= maxTimeouts
	}
	if f.broken {
		t.client.drop(s)
	}
	return Result{Error: f.text, Cause: f.cause}, f.again || f.broken && t.tool == ""
}

// failure is why something did not work.
type failure struct {
	text   string // for clients and models
	cause  error  // for the log
	broken bool   // the session is of no more use
	again  bool   // the server cannot have begun
}

// explain says what went wrong with a request.
func (s *session) explain(ctx context.Context, err error, k facts) failure {
	f := failure{cause: s.server.safe(err, s.id())}
	name := fmt.Sprintf("The MCP server %q", s.server.Label)
	says, done := s.says(err, k), ""
	if k.calling {
		done = " What was asked for may have been done."
	}
	var address *addressError
	switch {
	case ctx.Err() != nil:
		f.text = fmt.Sprintf("%s did not answer within %s (tools.list_timeout).", name, s.client.o.ListTimeout)
	case k.tooLarge:
		f.text = fmt.Sprintf("%s has sent more than %d bytes (tools.max_message_bytes).%s", name, s.client.o.MaxMessageBytes, done)
		f.broken = k.answer == nil
	case k.busy:
		f.text = fmt.Sprintf("There is no room for the answer of the MCP server %q: those of all servers have more than %d bytes at the moment (tools.max_inflight_bytes).%s",
			s.server.Label, s.client.o.MaxInflightBytes, done)
		f.broken = k.answer == nil
	case k.answer != nil && k.status < http.StatusBadRequest && says != "":
		f.text = fmt.Sprintf("%s answers with an error: %s", name, says)
	case k.answer != nil && k.status < http.StatusBadRequest && s.mcp != nil:
		f.text = name + " has sent a result that is not one of MCP."
	case errors.As(k.err, &address):
		f.text = name + " is at an address that is not allowed: the operator can add its network to tools.allowed_networks."
		f.cause = address
	case errors.Is(k.err, errRedirect):
		f.text = name + " redirects to another place: write the place itself as its server_url."
	case s.lost(k):
		f.text, f.broken, f.again = name+" has ended the session.", true, true
	case k.status >= http.StatusBadRequest:
		f.text = name + " " + statusText(k.status)
		if says != "" {
			f.text += " It says: " + says
		}
		f.broken = s.mcp != nil && k.session && k.status == http.StatusNotFound // that can mean the session, too
	case k.err != nil && !k.wrote:
		f.text = fmt.Sprintf("%s cannot be reached: %s.", name, reason(k.err))
	case s.transport == TransportStdio && s.mcp == nil:
		f.text = name + " could not be started, or does not speak MCP."
		if line := s.process.lastWords(); line != "" {
			f.cause = s.server.safe(fmt.Errorf("%w, after the process said: %s", err, line))
		}
	default:
		f.text, f.broken = name+" broke off before its answer came, or sent something that is not MCP."+done, true
	}
	return f
}

// says is what the server itself says of an error, "" if the error is not its own.
func (s *session) says(err error, k facts) string {
	var wire *jsonrpc.Error
	switch {
	case k.answer != nil && errors.As(k.answer.Error, &wire):
	case errors.As(err, &wire) && wire.Code != codeRejected:
	default:
		return ""
	}
	return s.quote(wire.Message)
}

// codeRejected is the code of errors that the SDK makes of HTTP errors.
const codeRejected = -32005

// lost tells whether a request failed because its session is gone, before it
// could be executed. An error that the server gives as the request's own answer
// says that it could.
func (s *session) lost(k facts) bool {
	switch {
	case s.mcp == nil:
		return false // there was none
	case !k.handed:
		return true
	case s.transport == TransportSSE && k.err != nil && !k.wrote:
		return true // an SSE session does not survive that
	}
	return k.answer == nil && (k.session || s.transport == TransportSSE) && (k.status == http.StatusNotFound || k.status == http.StatusBadRequest)
}

func (s *session) id() string {
	if s.mcp == nil {
		return ""
	}
	return s.mcp.ID()
}

// statusText says what an HTTP status means.
func statusText(status int) string {
	text := fmt.Sprintf("answers with HTTP %d", status)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += ": check authorization and headers"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		text += ": check server_url"
	}
	return text + "."
}

// reason says why there is no connection.
func reason(err error) string {
	var lookup *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &lookup):
		return "its host name could not be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection is refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the connection takes too long"
	case strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: "):
		return "there is no secure connection to it"
	}
	return "there is no connection"
}

// list lists the tools.
func (t *task) list(ctx context.Context, s *session) (Result, failure) {
	var r Result
	var size int
	cursor := ""
	for range maxPages {
		tools, next, f := t.page(ctx, s, cursor)
		if f.text != "" {
			return Result{}, f
		}
		for _, tool := range tools {
			size += len(tool.Name) + len(tool.Title) + len(tool.Description) + len(tool.InputSchema) + len(tool.Annotations)
		}
		r.Tools = append(r.Tools, tools...)
		if len(r.Tools) > t.client.o.MaxListed || size > maxListedBytes {
			break
		}
		if cursor = next; cursor == "" {
			return r, failure{}
		}
	}
	return Result{}, failure{text: fmt.Sprintf("The MCP server %q has more tools than are allowed: at most %d (tools.max_listed) with %d bytes of descriptions together.",
		t.server.Label, t.client.o.MaxListed, maxListedBytes)}
}

// page lists the tools from a cursor on, and gives the cursor of the next ones.
func (t *task) page(ctx context.Context, s *session, cursor string) ([]Tool, string, failure) {
	within, c := t.client.withCall(ctx)
	defer c.share.end()
	page, err := s.mcp.ListTools(within, &mcp.ListToolsParams{Cursor: cursor})
	if err != nil {
		c.settle(ctx)
		return nil, "", s.explain(ctx, err, c.known())
	}
	tools, err := toolsOf(page, c.known().answer, t.server.secrets(leastGiven))
	if err != nil {
		return nil, "", s.explain(ctx, err, c.known())
	}
	return tools, page.NextCursor, failure{}
}

// call calls the tool.
func (t *task) call(ctx context.Context, s *session) (Result, failure) {
	if slices.Contains(s.lacks, t.tool) {
		return Result{}, failure{text: fmt.Sprintf("The MCP server %q has no tool %q.", t.server.Label, t.tool)}
	}
	within, c := t.client.withCall(ctx)
	defer c.share.end()
	_, err := s.mcp.CallTool(within, &mcp.CallToolParams{Name: t.tool, Arguments: t.arguments})
	if err != nil {
		c.settle(ctx)
		return Result{}, s.explain(ctx, err, c.known())
	}
	r, err := t.result(c.known().answer)
	if err != nil {
		return Result{}, s.explain(ctx, err, c.known())
	}
	return r, failure{}
}
