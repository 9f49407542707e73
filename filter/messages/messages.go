// Package messages implements Anthropic's Messages API, as package api defines it:
// [API.Decode] turns the body of a POST /v1/messages into a token request, and a
// [Reply] turns the engine's chunks into server-sent events or one JSON object.
//
// The formats are those of the types of Anthropic's SDKs. docs/compatibility.md lists
// the fields that are rejected, mapped or ignored. A test compares the list with this
// package.
package messages

import (
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// API is the Messages API of a service.
type API struct {
	Sealer *seal.Sealer // of the signatures of thinking blocks and of search results; nil: they are empty

	// Tools calls the tools of MCP servers; nil: requests can have none.
	Tools *tools.Client
	// Builtins are the labels of the configured servers that implement built-in
	// tools.
	Builtins map[tools.Builtin]string
	// SessionTimeout is how long an unused session of a built-in tool lasts.
	SessionTimeout time.Duration

	servers hosted.Runner // replaces Tools in tests
}

// runner returns what calls tools.
func (a *API) runner() hosted.Runner {
	if a.servers != nil {
		return a.servers
	}
	return a.Tools
}

// Request is a decoded request. It is an [api.Request].
type Request struct {
	api     *API
	turn    *turn.Turn // of the first model call; nil until the preflight is complete
	rc      *turn.RequestContext
	id      string
	model   string // as requested
	ignored []string
	options options

	compared string // the message whose prompt this one is compared with; "": none

	maxTokens int  // as requested, of all model calls together; 0: no limit
	corrects  bool // the model has another turn to correct calls of unknown tools

	preflight   *preflight // nil: the model can be called at once
	hosted      map[hosted.Space]*hosted.Server
	continues   bool   // the reply continues the last message, and has one model call
	maxSearches int    // 0: any number
	container   string // the session in which the built-in tools of the conversation run
}

// options is the fields of the request that concern the reply.
type options struct {
	stream      bool
	thinking    visibility
	diagnostics bool // the message says how its prompt continues the one before
}

// visibility is how a reply shows the model's reasoning.
type visibility uint8

const (
	hidden  visibility = iota // not at all
	omitted                   // as thinking blocks with a signature and without text
	shown                     // as thinking blocks
)

// ID returns the id of the message.
func (r *Request) ID() string { return r.id }

// Engine returns the first model call; nil where a step of the reply comes before it.
func (r *Request) Engine() *engine.Request {
	if r.turn == nil {
		return nil
	}
	return r.turn.Engine
}

// Affinity returns the keys by which the engine's replica is chosen, once there is a
// model call.
func (r *Request) Affinity() turn.Affinity {
	if r.turn == nil {
		return turn.Affinity{}
	}
	return r.turn.Affinity()
}

// RoutingInfo returns the description for endpoint pickers and access logs, once there
// is a model call.
func (r *Request) RoutingInfo() turn.RoutingInfo {
	if r.turn == nil {
		return turn.RoutingInfo{}
	}
	return r.turn.RoutingInfo()
}

// Stream reports whether the client wants server-sent events.
func (r *Request) Stream() bool { return r.options.stream }

// KeepAlive is a ping, which may come anywhere in a stream.
func (r *Request) KeepAlive() string { return ping }

// Kept implements [api.Keeper].
func (r *Request) Kept() int { return r.turn.Kept() }

// Ignored returns the names of the fields that are accepted and have no effect, in
// the order of the request, such as service_tier or tools.web_search_20250305.
func (r *Request) Ignored() []string { return r.ignored }
