// Package responses speaks the OpenAI Responses API: [API.Decode] turns the
// body of a POST /v1/responses into a token request for an engine, and a
// [Reply] turns the engine's chunks into server-sent events or one response
// object.
//
//	call, err := api.Decode(ctx, body, scope)
//	…                                    // send call.Engine()
//	reply := call.NewReply()
//	out, err = reply.Push(out, chunk)    // for every chunk, until reply.Done()
//	out = reply.End(out)
//
// Which fields are refused, mapped or ignored stands in docs/compatibility.md,
// a table that a test compares with this package.
package responses

import (
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// API is the Responses API. It is safe for concurrent use.
type API struct {
	Responses store.Responses // nil: nothing is stored
	Sealer    *Sealer         // nil: include reasoning.encrypted_content has no effect
}

// Call is one decoded request.
type Call struct {
	turn    *turn.Turn
	scope   *turn.Scope
	id      string
	model   string // as requested
	ignored []string
	options options
	custom  map[toolName]bool // the tools that take text
	fixed   []byte            // the members of the response object that follow from the request, without the first comma

	previous string                      // the response that this one continues
	input    []store.Item                // of this request
	keep     func(*store.Response) error // nil: the response is not stored
	sealer   *Sealer                     // nil: reasoning has no encrypted_content
}

// options is what the reply needs to know of the request.
type options struct {
	stream        bool
	hideReasoning bool
	summary       bool // reasoning is told as a summary too
}

// toolName is a tool by the client's names.
type toolName struct{ namespace, name string }

// Engine is the model call to make.
func (c *Call) Engine() *engine.Request { return c.turn.Engine }

// ID is the id of the response.
func (c *Call) ID() string { return c.id }

// Model is the model's name as the client wrote it.
func (c *Call) Model() string { return c.model }

// Stream tells whether the client wants server-sent events.
func (c *Call) Stream() bool { return c.options.stream }

// Ignored names the request's fields that are accepted without an effect, in
// the order of the request, such as user or tools.strict.
func (c *Call) Ignored() []string { return c.ignored }
