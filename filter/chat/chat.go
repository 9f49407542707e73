// Package chat implements the OpenAI Chat Completions API, as package api defines it.
//
// Reading: [Decode] turns the body of a POST /v1/chat/completions into a [Request], with
// the token request of its first model call. The decoder has a method for each field that
// is not a plain value; fields.go has the table of all of them.
//
// Writing: [Request.NewReply] begins the reply. The machine of package reply makes it; the
// encoder here writes its parts as chat.completion.chunk events or as one chat.completion
// object, and keeps no more than its wire needs. A reply has n choices, each with an event
// of its own for its end.
//
// The package knows nothing of HTTP, engines or tools of servers: all calls are the
// client's, except those of tools that do not exist, of which the machine tells the model.
// The example shows a request and its reply.
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
	turn *turn.Turn
	rc   *turn.RequestContext

	// What the reply repeats of the request, and what has no effect.
	id      string
	model   string
	ignored []string
	options options

	// maxTokens is the limit as requested, of all model calls together; 0: none.
	maxTokens int
	// corrects is that the model has another turn to correct calls of unknown tools.
	corrects bool
}

// options is the fields of the request that concern the reply.
type options struct {
	stream          bool
	includeUsage    bool
	continuousUsage bool
	hideReasoning   bool
	tokenIDs        bool
	logprobs        bool

	legacyCalls bool            // a call is a function_call
	custom      map[string]bool // the tools whose calls are text
}

// Info returns what is known of the request: the API has no locks, and nothing is made in the
// background.
func (r *Request) Info() api.Info {
	// A comment line keeps a stream alive: the API has no event without a meaning.
	return api.Info{ID: r.id, Stream: r.options.stream, KeepAlive: api.KeepAliveComment}
}

// Engine returns the first model call.
func (r *Request) Engine() *engine.Request { return r.turn.Engine }

// Affinity returns the keys by which the engine's replica is chosen.
func (r *Request) Affinity() turn.Affinity { return r.turn.Affinity() }

// RoutingInfo returns the description for endpoint pickers and access logs.
func (r *Request) RoutingInfo() turn.RoutingInfo { return r.turn.RoutingInfo() }

// Bytes is about how many bytes are kept until the reply has ended.
func (r *Request) Bytes() int { return r.turn.Bytes() }

// Ignored returns the names of the fields that are accepted and have no effect, in
// the order of the request, such as user or messages.name.
func (r *Request) Ignored() []string { return r.ignored }
