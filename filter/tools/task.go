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

// stuckTimeout is how long a cancelled request may block its session, such as one
// that a process does not read.
const stuckTimeout = 2 * time.Second

var errDeadline = errors.New("the deadline of the job has passed")

// task is a running job.
type task struct {
	client    *Client
	server    *Server
	tool      string
	arguments json.RawMessage
	timeout   time.Duration
	// Name of the timeout in the configuration.
	key string
}

// run runs the task in its own goroutine, so that it ends in time even if the
// connection blocks.
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
		done <- t.runRecovered(ctx)
	}()

	select {
	case r := <-done:
		return r
	case <-ctx.Done():
	}

	// Both may be true at once. A result that is there counts.
	select {
	case r := <-done:
		return r
	default:
		f := t.contextFailure(ctx)
		return Result{Error: f.text, Cause: f.cause}
	}
}

// contextFailure returns the failure of a task whose context has ended.
func (t *task) contextFailure(ctx context.Context) failure {
	switch {
	case t.client.ctx.Err() != nil:
		return failure{text: "The service is shutting down.", cause: context.Canceled}
	case errors.Is(context.Cause(ctx), errDeadline):
		return failure{
			text:  fmt.Sprintf("The MCP server %q did not answer within %s (%s).", t.server.Label, t.timeout, t.key),
			cause: errDeadline,
		}
	}
	return failure{
		text:  fmt.Sprintf("The request to the MCP server %q was cancelled.", t.server.Label),
		cause: context.Cause(ctx),
	}
}

// runRecovered runs the task and turns a panic into an error.
func (t *task) runRecovered(ctx context.Context) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			result = Result{
				Error: fmt.Sprintf("The answer of the MCP server %q could not be processed.", t.server.Label),
				Cause: t.server.redactError(fmt.Errorf("panic: %v", p)),
			}
		}
	}()

	for first := true; ; first = false {
		result, retry := t.attempt(ctx)
		if !retry || !first || ctx.Err() != nil {
			return result
		}
	}
}

// attempt runs the task in the current session. retry reports that the server has
// not begun it and that a new session may help.
func (t *task) attempt(ctx context.Context) (result Result, retry bool) {
	session, failed := t.client.acquire(ctx, t.server)
	if session == nil {
		if ctx.Err() != nil {
			failed = t.contextFailure(ctx)
		}
		return Result{Error: failed.text, Cause: failed.cause}, false
	}

	defer t.client.release(session)
	finished := make(chan struct{})

	unwatch := context.AfterFunc(ctx, func() {
		select {
		case <-finished:
		case <-time.After(stuckTimeout):
			session.cancel()
		}
	})
	defer unwatch()
	defer close(finished)

	if t.tool == "" {
		result, failed = t.list(ctx, session)
	} else {
		result, failed = t.call(ctx, session)
	}
	if failed.text == "" {
		session.timeouts.Store(0)
		return result, false
	}

	if ctx.Err() != nil {
		failed = t.contextFailure(ctx)
		// A tool may be slow. Only a session that never answers is given up.
		failed.broken = errors.Is(failed.cause, errDeadline) && session.timeouts.Add(1) >= maxTimeouts
	}
	if failed.broken {
		t.client.drop(session)
	}
	return Result{Error: failed.text, Cause: failed.cause}, failed.retry || failed.broken && t.tool == ""
}

// failure is an error in its two forms: for clients and for the log.
type failure struct {
	// For clients and models.
	text string
	// For the log.
	cause error
	// The session cannot be used any more.
	broken bool
	// The server cannot have begun.
	retry bool
}

// explain turns the error of a request into a failure.
func (s *session) explain(ctx context.Context, err error, state requestState) failure {
	explained := failure{cause: s.server.redactError(err, s.id())}

	name := fmt.Sprintf("The MCP server %q", s.server.Label)
	message, outcome := s.serverMessage(err, state), ""
	if state.toolCall {
		outcome = " The call may have been executed."
	}

	var address *addressError
	// The order is from what is known for certain to what is left as a guess.
	switch {
	case ctx.Err() != nil:
		explained.text = fmt.Sprintf("%s did not answer within %s (tools.list_timeout).", name, s.client.o.ListTimeout)
	case state.tooLarge:
		explained.text = fmt.Sprintf(
			"%s sent more than %d bytes (tools.max_message_bytes).%s", name, s.client.o.MaxMessageBytes, outcome)
		explained.broken = state.answer == nil
	case state.busy:
		explained.text = fmt.Sprintf("The answer of the MCP server %q was dropped, because the answers of all servers "+
			"exceed %d bytes at the moment (tools.max_inflight_bytes). Try again later.%s",
			s.server.Label, s.client.o.MaxInflightBytes, outcome)
		explained.broken = state.answer == nil
	case state.answer != nil && state.status < http.StatusBadRequest && message != "":
		explained.text = fmt.Sprintf("%s answered with an error: %s", name, message)
	case state.answer != nil && state.status < http.StatusBadRequest && s.mcp != nil:
		explained.text = name + " sent a result that is not valid in MCP."
	case errors.As(state.err, &address):
		explained.text = name + " has an address that is not allowed: " +
			"the operator can add its network to tools.allowed_networks."
		explained.cause = address
	case errors.Is(state.err, errRedirect):
		explained.text = name + " redirects to another origin: use that URL as its server_url."
	case s.ended(state):
		explained.text, explained.broken, explained.retry = name+" ended the session.", true, true
	case state.status >= http.StatusBadRequest:
		explained.text = name + " " + statusText(state.status)
		if message != "" {
			explained.text += " Its message: " + message
		}
		// This status can mean the session as well.
		explained.broken = s.mcp != nil && state.session && state.status == http.StatusNotFound
	case state.err != nil && !state.httpWritten:
		explained.text = fmt.Sprintf("%s cannot be reached: %s.", name, reason(state.err))
	case s.transport == TransportStdio && s.mcp == nil:
		explained.text = name + " could not be started, or does not speak MCP."
		if line := s.process.lastLog(); line != "" {
			explained.cause = s.server.redactError(fmt.Errorf("%w, last line of stderr: %s", err, line))
		}
	default:
		explained.text = name + " disconnected before it answered, or sent something that is not MCP." + outcome
		explained.broken = true
	}

	return explained
}

// serverMessage returns the server's own error message, "" if the error is not the
// server's.
func (s *session) serverMessage(err error, state requestState) string {
	var wire *jsonrpc.Error
	switch {
	case state.answer != nil && errors.As(state.answer.Error, &wire):
	case errors.As(err, &wire) && wire.Code != codeRejected:
	default:
		return ""
	}
	return s.quote(wire.Message)
}

// codeRejected is the JSON-RPC code that the SDK uses for HTTP errors.
const codeRejected = -32005

// ended reports whether a request failed because its session had ended, before the
// server could execute it. A JSON-RPC error for the request itself means that the
// server could.
func (s *session) ended(state requestState) bool {
	switch {
	case s.mcp == nil:
		// There was no session.
		return false
	case !state.sent:
		return true
	case s.transport == TransportSSE && state.err != nil && !state.httpWritten:
		// An SSE session ends with its connection.
		return true
	}

	return state.answer == nil && (state.session || s.transport == TransportSSE) &&
		(state.status == http.StatusNotFound || state.status == http.StatusBadRequest)
}

func (s *session) id() string {
	if s.mcp == nil {
		return ""
	}
	return s.mcp.ID()
}

// statusText describes an HTTP error status.
func statusText(status int) string {
	text := fmt.Sprintf("answered with HTTP %d", status)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += ": check authorization and headers"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		text += ": check server_url"
	}
	return text + "."
}

// reason describes why there is no connection.
func reason(err error) string {
	var lookup *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &lookup):
		return "its host name could not be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the connection timed out"
	case strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: "):
		return "the TLS handshake failed"
	}
	return "the connection failed"
}

// list lists the tools of the server.
func (t *task) list(ctx context.Context, session *session) (Result, failure) {
	var listed Result
	var size int
	cursor := ""

	secrets := t.server.mask(minSecretBytesInResults, t.server.queryValues()...)
	for range maxPages {
		tools, next, f := t.page(ctx, session, cursor)
		if f.text != "" {
			return Result{}, f
		}

		for i := range tools {
			size += tools[i].bytes()
		}
		// Before secrets are hidden in it, which takes time for each byte.
		if len(listed.Tools)+len(tools) > t.client.o.MaxListed || size > maxListedBytes {
			break
		}

		for i := range tools {
			// Hiding can take longer than the job has.
			if ctx.Err() != nil {
				return Result{}, t.contextFailure(ctx)
			}
			tools[i].hide(secrets)
		}

		listed.Tools = append(listed.Tools, tools...)
		if cursor = next; cursor == "" {
			return listed, failure{}
		}
	}
	return Result{}, failure{text: fmt.Sprintf("The MCP server %q has too many tools: at most %d (tools.max_listed) "+
		"with %d bytes of descriptions in total are allowed.",
		t.server.Label, t.client.o.MaxListed, maxListedBytes)}
}

// page returns one page of the tool list and the cursor of the next page.
func (t *task) page(ctx context.Context, session *session, cursor string) ([]Tool, string, failure) {
	requestCtx, request := t.client.withRequest(ctx)
	defer request.share.end()
	page, err := session.mcp.ListTools(requestCtx, &mcp.ListToolsParams{Meta: t.meta(ctx), Cursor: cursor})
	if err != nil {
		request.awaitCancel(ctx)
		return nil, "", session.explain(ctx, err, request.snapshot())
	}

	tools, err := parseTools(page, request.snapshot().answer)
	if err != nil {
		return nil, "", session.explain(ctx, err, request.snapshot())
	}
	return tools, page.NextCursor, failure{}
}

// meta is the _meta of a request: what continues the trace; nil if there is none.
func (t *task) meta(ctx context.Context) mcp.Meta {
	var meta mcp.Meta
	if t.server.Trusted {
		t.client.o.Trace.Inject(ctx, func(name, value string) {
			if meta == nil {
				meta = mcp.Meta{}
			}
			meta[name] = value
		})
	}
	return meta
}

// call calls the tool.
func (t *task) call(ctx context.Context, session *session) (Result, failure) {
	// The built-in tool's name means nothing to such a server.
	if slices.Contains(session.missingTools, t.tool) {
		return Result{}, failure{text: fmt.Sprintf("The MCP server %q has no tool %q.", t.server.Label, t.tool)}
	}

	requestCtx, request := t.client.withRequest(ctx)
	defer request.share.end()
	params := &mcp.CallToolParams{Meta: t.meta(ctx), Name: t.tool, Arguments: t.arguments}
	_, err := session.mcp.CallTool(requestCtx, params)
	if err != nil {
		request.awaitCancel(ctx)
		return Result{}, session.explain(ctx, err, request.snapshot())
	}

	result, err := t.result(request.snapshot().answer)
	if err != nil {
		return Result{}, session.explain(ctx, err, request.snapshot())
	}
	return result, failure{}
}
