// Package chat implements the OpenAI Chat Completions API, as package api defines
// it: [Decode] turns the body of a POST /v1/chat/completions into a token request,
// and a [Reply] turns the engine's chunks into server-sent events or one JSON
// object. The caller pushes the chunks until the reply is done, then ends it.
//
// docs/compatibility.md lists the fields that are rejected, mapped or ignored. A
// test compares the list with this package.
package chat

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Request is a decoded request. It is an [api.Request].
type Request struct {
	turn    *turn.Turn
	rc      *turn.RequestContext
	id      string
	model   string // as requested
	ignored []string
	options options

	maxTokens int  // as requested, of all model calls together; 0: no limit
	corrects  bool // the model has another turn to correct calls of unknown tools
}

// options is the fields of the request that concern the reply.
type options struct {
	stream          bool
	includeUsage    bool
	continuousUsage bool
	hideReasoning   bool
	tokenIDs        bool
	logprobs        bool
	legacyCalls     bool            // a call is a function_call
	custom          map[string]bool // the tools whose calls are text
}

// ID returns the id of the chat completion.
func (r *Request) ID() string { return r.id }

// Engine returns the first model call.
func (r *Request) Engine() *engine.Request { return r.turn.Engine }

// Affinity returns the keys by which the engine's replica is chosen.
func (r *Request) Affinity() turn.Affinity { return r.turn.Affinity() }

// RoutingInfo returns the description for endpoint pickers and access logs.
func (r *Request) RoutingInfo() turn.RoutingInfo { return r.turn.RoutingInfo() }

// Stream reports whether the client wants server-sent events.
func (r *Request) Stream() bool { return r.options.stream }

// KeepAlive is a comment line: the API has no event without a meaning.
func (r *Request) KeepAlive() string { return api.KeepAliveComment }

// Kept implements [api.Keeper].
func (r *Request) Kept() int { return r.turn.Kept() }

// Ignored returns the names of the fields that are accepted and have no effect, in
// the order of the request, such as user or messages.name.
func (r *Request) Ignored() []string { return r.ignored }
