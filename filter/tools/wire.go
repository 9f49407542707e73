package tools

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxServerRequests bounds the requests of a server that are being rejected at one
// time.
const maxServerRequests = 64

// requestState is what is known about a request to a server.
type requestState struct {
	// JSON-RPC id.
	id jsonrpc.ID
	// It is a tools/call request.
	toolCall bool
	// The transport has accepted it.
	sent bool
	// Part of it may have been sent over HTTP.
	httpWritten bool
	// HTTP status; 0 if there is none, or an error response that ended early.
	status int
	// It carried a session id.
	session bool
	// The answer exceeds Options.MaxMessageBytes.
	tooLarge bool
	// The answer exceeded the bytes in flight.
	busy bool
	// Why there is no HTTP response.
	err error
	// Nil if none has arrived.
	answer *jsonrpc.Response
}

// request is a JSON-RPC request to a server. It is passed in the context and is
// safe for concurrent use.
type request struct {
	// The answer's bytes; ended by the consumer of the result.
	share      share
	mu         sync.Mutex
	state      requestState
	cancelOnce sync.Once
	// Closed once notifications/cancelled has been sent.
	cancelled chan struct{}
}

type requestKey struct{}

func (c *Client) withRequest(ctx context.Context) (context.Context, *request) {
	r := &request{share: share{total: &c.inflight}, cancelled: make(chan struct{})}
	return context.WithValue(ctx, requestKey{}, r), r
}

// requestOf returns the request in ctx, nil if there is none.
func requestOf(ctx context.Context) *request {
	c, _ := ctx.Value(requestKey{}).(*request)
	return c
}

// update changes the state of the request. A nil request is ignored.
func (c *request) update(change func(f *requestState)) {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		change(&c.state)
	}
}

// awaitCancel waits until the server has been notified that the request was
// cancelled with ctx. The SDK sends the notification, unless the session is closed
// first.
func (c *request) awaitCancel(ctx context.Context) {
	if state := c.snapshot(); ctx.Err() == nil || !state.sent || state.answer != nil {
		return
	}

	select {
	case <-c.cancelled:
	case <-time.After(stuckTimeout):
	}
}

// snapshot returns the current state of the request.
func (c *request) snapshot() requestState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// wire is a connection that inspects messages. It keeps raw answers, drops
// notifications, which are not needed, and limits the requests of the server.
type wire struct {
	mcp.Connection
	// Stdio: a request that could not be written was not read.
	pipe bool
	// Bytes outside the answers to HTTP requests.
	stream *share
	// String: the negotiated protocol version.
	version atomic.Value

	mu      sync.Mutex
	waiting map[jsonrpc.ID]*request
	// Of the initialize request.
	initializeID jsonrpc.ID
	// Requests of the server that are not answered yet.
	pending int
}

func newWire(c mcp.Connection, lines bool, stream *share) *wire {
	return &wire{Connection: c, pipe: lines, stream: stream, waiting: map[jsonrpc.ID]*request{}}
}

// Write implements [mcp.Connection].
func (w *wire) Write(ctx context.Context, message jsonrpc.Message) error {
	switch message := message.(type) {
	case *jsonrpc.Request:
		request := requestOf(ctx)
		if request != nil && message.Method == "notifications/cancelled" {
			// Deferred: by then it has been written.
			defer request.cancelOnce.Do(func() { close(request.cancelled) })
		}
		if request == nil || !message.IsCall() {
			break
		}

		w.mu.Lock()
		w.waiting[message.ID] = request
		if message.Method == "initialize" {
			w.initializeID = message.ID
		}
		w.mu.Unlock()

		request.update(func(f *requestState) {
			f.sent, f.id, f.toolCall = true, message.ID, message.Method == "tools/call"
		})
		// Every request of this package ends its context, so that no entry stays.
		context.AfterFunc(ctx, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.waiting, message.ID)
		})
	case *jsonrpc.Response:
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pending--
		}()
	}

	err := w.Connection.Write(ctx, message)
	if err != nil && w.pipe {
		// What a process did not read it did not begin, so that the job may be run again.
		requestOf(ctx).update(func(f *requestState) { f.sent = false })
	}
	return err
}

// Read implements [mcp.Connection].
func (w *wire) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		// The bytes of a stream that has ended are nobody's any more.
		message, err := w.Connection.Read(ctx)
		if err != nil {
			w.failWaiting()
			w.stream.move(nil)
			return nil, err
		}

		// Notifications are not needed. They are read, so that they do not fill the connection.
		switch message := message.(type) {
		case *jsonrpc.Response:
			return w.receive(bounded(message)), nil
		case *jsonrpc.Request:
			w.stream.move(nil)
			if !message.IsCall() {
				continue
			}
			if !w.admit() {
				return nil, errors.New("the server sent too many requests at once")
			}
			return message, nil
		}
	}
}

// admit counts a request of the server. It returns false if too many are open.
func (w *wire) admit() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending++
	return w.pending <= maxServerRequests
}

// failWaiting marks all waiting requests as busy if the connection ended because
// the bytes in flight were exhausted.
func (w *wire) failWaiting() {
	if !w.stream.full() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.waiting {
		c.update(func(f *requestState) { f.busy = true })
	}
}

// receive keeps the raw answer and returns what the SDK gets. For a tool result
// that is an empty one, because the raw answer is parsed here.
func (w *wire) receive(answer *jsonrpc.Response) *jsonrpc.Response {
	var wireError *jsonrpc.Error
	if answer.Error != nil && !errors.As(answer.Error, &wireError) {
		// Made by the SDK: the server has not answered.
		return answer
	}

	w.mu.Lock()
	request := w.waiting[answer.ID]
	delete(w.waiting, answer.ID)
	hello := answer.ID == w.initializeID && answer.ID.IsValid()
	w.mu.Unlock()

	if request != nil {
		w.stream.move(&request.share)
		answer = request.roomFor(answer)
	} else {
		w.stream.move(nil)
	}

	calling := false
	request.update(func(f *requestState) { f.answer, calling = answer, f.toolCall })

	// Later requests name the version that both have agreed on.
	if hello && answer.Error == nil {
		var result struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		if json.Unmarshal(answer.Result, &result) == nil {
			w.version.Store(result.ProtocolVersion)
		}
	}

	if calling && answer.Error == nil {
		return &jsonrpc.Response{ID: answer.ID, Result: json.RawMessage(`{"content":[]}`)}
	}
	return answer
}

// roomFor takes room for what is decoded of an answer, and returns the answer, or an error in
// its place if there is none.
func (c *request) roomFor(answer *jsonrpc.Response) *jsonrpc.Response {
	if answer.Error != nil || !errors.Is(c.share.take(valueBytes*valuesOf(answer.Result)), errBusy) {
		return answer
	}
	c.update(func(f *requestState) { f.busy = true })

	return unread(answer, "more values than there is room for")
}

// rejectRequests rejects the requests of servers (sampling, elicitation, roots).
// Only ping is supported.
func rejectRequests(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == "ping" {
			return next(ctx, method, req)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this client does not support requests"}
	}
}
