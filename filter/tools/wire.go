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

// maxOpen bounds the requests of a server that are being refused at one time.
const maxOpen = 64

// facts are what is known of a request to a server.
type facts struct {
	id       jsonrpc.ID        // of the request
	calling  bool              // it calls a tool
	handed   bool              // the transport has got it
	wrote    bool              // some of it may have gone out over HTTP
	status   int               // the HTTP status it got; 0: none, or an error that breaks off
	session  bool              // it named a session of the server's
	tooLarge bool              // the answer is longer than Options.MaxMessageBytes
	busy     bool              // there was no room for the answer
	err      error             // why there is no HTTP response
	answer   *jsonrpc.Response // nil: none came
}

// call is a request to a server. It travels in the request's context and is safe
// for concurrent use.
type call struct {
	share     share // of the answer's bytes; ended by who has the result
	mu        sync.Mutex
	facts     facts
	told      sync.Once
	cancelled chan struct{} // closed once the server has been told that it was given up
}

type callKey struct{}

func (c *Client) withCall(ctx context.Context) (context.Context, *call) {
	k := &call{share: share{of: &c.inflight}, cancelled: make(chan struct{})}
	return context.WithValue(ctx, callKey{}, k), k
}

// callOf gives the call that ctx is of, nil if it is of none.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// note changes what is known of the call; there may be none.
func (c *call) note(change func(f *facts)) {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		change(&c.facts)
	}
}

// settle waits until the server has been told of a call that was given up with
// ctx. The SDK tells it by itself, as long as the session is not closed.
func (c *call) settle(ctx context.Context) {
	if k := c.known(); ctx.Err() == nil || !k.handed || k.answer != nil {
		return
	}
	select {
	case <-c.cancelled:
	case <-time.After(stuckTimeout):
	}
}

// known is what is known of the call now.
func (c *call) known() facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.facts
}

// wire is a connection whose messages are looked at: answers are kept as they
// came, notifications are dropped (nothing here needs them), and a server cannot
// flood the filter with requests.
type wire struct {
	mcp.Connection
	lines   bool         // a process' pipe: what could not be written was not read
	stream  *share       // of what comes outside the answers to HTTP requests
	version atomic.Value // string: the protocol's version, once the server has said it

	mu      sync.Mutex
	waiting map[jsonrpc.ID]*call
	hello   jsonrpc.ID // of the initialize request
	open    int        // requests of the server that have no answer yet
}

func newWire(c mcp.Connection, lines bool, stream *share) *wire {
	return &wire{Connection: c, lines: lines, stream: stream, waiting: map[jsonrpc.ID]*call{}}
}

// Write implements [mcp.Connection].
func (w *wire) Write(ctx context.Context, m jsonrpc.Message) error {
	switch m := m.(type) {
	case *jsonrpc.Request:
		c := callOf(ctx)
		if c != nil && m.Method == "notifications/cancelled" {
			defer c.told.Do(func() { close(c.cancelled) }) // deferred: written by then
		}
		if c == nil || !m.IsCall() {
			break
		}
		w.mu.Lock()
		w.waiting[m.ID] = c
		if m.Method == "initialize" {
			w.hello = m.ID
		}
		w.mu.Unlock()
		c.note(func(f *facts) { f.handed, f.id, f.calling = true, m.ID, m.Method == "tools/call" })
		context.AfterFunc(ctx, func() { // calls of this package end their context
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.waiting, m.ID)
		})
	case *jsonrpc.Response:
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.open--
		}()
	}
	err := w.Connection.Write(ctx, m)
	if err != nil && w.lines {
		callOf(ctx).note(func(f *facts) { f.handed = false })
	}
	return err
}

// Read implements [mcp.Connection].
func (w *wire) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := w.Connection.Read(ctx)
		if err != nil {
			w.refused()
			w.stream.move(nil)
			return nil, err
		}
		switch m := m.(type) {
		case *jsonrpc.Response:
			return w.answered(m), nil
		case *jsonrpc.Request:
			w.stream.move(nil)
			if !m.IsCall() {
				continue
			}
			if !w.admit() {
				return nil, errors.New("the server has too many requests open")
			}
			return m, nil
		}
	}
}

func (w *wire) admit() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	return w.open <= maxOpen
}

// refused tells those who wait that there was no room for an answer, if that is
// why no more come.
func (w *wire) refused() {
	if !w.stream.full() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.waiting {
		c.note(func(f *facts) { f.busy = true })
	}
}

// answered keeps an answer, and gives what the SDK gets of it: of a tool's result
// nothing, for it is read as it came.
func (w *wire) answered(m *jsonrpc.Response) *jsonrpc.Response {
	var wireError *jsonrpc.Error
	if m.Error != nil && !errors.As(m.Error, &wireError) {
		return m // the SDK's own: the server has not answered
	}
	w.mu.Lock()
	c := w.waiting[m.ID]
	delete(w.waiting, m.ID)
	hello := m.ID == w.hello && m.ID.IsValid()
	w.mu.Unlock()
	calling := false
	c.note(func(f *facts) { f.answer, calling = m, f.calling })
	if c != nil {
		w.stream.move(&c.share)
	} else {
		w.stream.move(nil)
	}
	if hello && m.Error == nil {
		var result struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		if json.Unmarshal(m.Result, &result) == nil {
			w.version.Store(result.ProtocolVersion)
		}
	}
	if calling && m.Error == nil {
		return &jsonrpc.Response{ID: m.ID, Result: json.RawMessage(`{"content":[]}`)}
	}
	return m
}

// refuse answers the requests of servers, for sampling, elicitation, roots and
// whatever else: none of them is offered.
func refuse(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == "ping" {
			return next(ctx, method, req)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this client takes no requests"}
	}
}
