// Package chat speaks the OpenAI Chat Completions API: [Decode] turns the body
// of a POST /v1/chat/completions into a token request for an engine, and a
// [Reply] turns the engine's chunks into server-sent events or one JSON object.
// Each chunk is pushed, until the reply is done; then it is ended.
//
// Which fields are refused, mapped or ignored stands in docs/compatibility.md,
// a table that a test compares with this package.
package chat

import (
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Call is one decoded request.
type Call struct {
	turn    *turn.Turn
	scope   *turn.Scope
	id      string
	model   string // as requested
	ignored []string
	options options

	maxTokens int  // as requested, of all model calls together; 0: no limit
	corrects  bool // the model is told of calls to tools that there are not
}

// options is what the reply needs to know of the request.
type options struct {
	stream          bool
	includeUsage    bool
	continuousUsage bool
	hideReasoning   bool
	tokenIDs        bool
	logprobs        bool
}

// ID is the id of the chat completion.
func (c *Call) ID() string { return c.id }

// Engine is the model call to make.
func (c *Call) Engine() *engine.Request { return c.turn.Engine }

// Affinity is what the call's engine is chosen by.
func (c *Call) Affinity() turn.Affinity { return c.turn.Affinity() }

// Outline is what can be told of the call to those who choose where it goes.
func (c *Call) Outline() turn.Outline { return c.turn.Outline() }

// Stream tells whether the client wants server-sent events.
func (c *Call) Stream() bool { return c.options.stream }

// Ignored names the request's fields that are accepted without an effect, in
// the order of the request, such as user or messages.name.
func (c *Call) Ignored() []string { return c.ignored }
