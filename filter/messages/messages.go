// Package messages implements Anthropic's Messages API, as package api defines it.
//
// Reading: [API.Decode] turns the body of a POST /v1/messages into a [Request]. If its
// servers have to list their tools first, the request has no model call yet: its reply
// begins with a preflight, which makes the prompt.
//
// Writing: [Request.NewReply] begins the reply. The machine of package reply makes it; the
// encoder here writes each part as a content block, as events or in one message object. It
// keeps no more than its wire needs: the open block, and how many there are.
//
// Tools are the client's, or run here: web_search and code_execution by configured MCP
// servers, and those of mcp_servers. Package hosted knows the servers; served.go has how
// clients see calls and results, and reads them back.
//
// The formats are those of the types of Anthropic's SDKs. docs/compatibility.md lists
// the fields that are rejected, mapped or ignored. A test compares the list with this
// package.
package messages

import (
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// API is the Messages API of a service.
type API struct {
	// Sealer seals the signatures of thinking blocks, and search results; nil: they are
	// empty.
	Sealer *seal.Sealer

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
	api *API
	rc  *turn.RequestContext

	// turn is the first turn; nil until the preflight is complete. preflight is nil where the
	// model can be called at once.
	turn      *turn.Turn
	preflight *preflight

	// What the reply repeats of the request, and what has no effect.
	id      string
	model   string
	ignored []string
	options options
	// compared is the message whose prompt this one is compared with; "": none.
	compared string

	// maxTokens is the limit as requested, of all model calls together; 0: none. corrects is
	// that the model has another turn to correct calls of unknown tools, begunMessage that
	// the reply goes on with the last message, and has one model call.
	maxTokens    int
	corrects     bool
	begunMessage bool

	// The tools that the filter runs: the most searches, 0: any number; and the session in
	// which the built-in tools of the conversation run.
	hosted      map[hosted.Space]*hosted.Server
	maxSearches int
	container   string
	// search is the searches for tools; nil: there are none, or tools are not listed yet.
	search *toolSearch
	// withdrawn are the tools that the conversation has withdrawn; nil: there are none, or tools
	// are not listed yet.
	withdrawn map[turn.ToolName]bool

	// compacts is that the reply is a compaction, toolChanges what the conversation has changed
	// of the tools: blocks, separated by commas.
	compacts    bool
	toolChanges []byte
	// prepares is that the message is empty: the model call is for the engine's cache alone.
	prepares bool
}

// options is the fields of the request that concern the reply.
type options struct {
	stream      bool
	thinking    visibility
	diagnostics bool // the message says how its prompt extends the one before
}

// visibility is how a reply shows the model's reasoning.
type visibility uint8

const (
	hidden  visibility = iota // not at all
	omitted                   // as thinking blocks with a signature and without text
	shown                     // as thinking blocks
)

// Info returns what is known of the request: the API has no locks, and nothing is made in the
// background.
func (r *Request) Info() api.Info {
	// A ping may come anywhere in a stream.
	return api.Info{ID: r.id, Stream: r.options.stream, KeepAlive: ping}
}

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

// Kept is about how many bytes are kept until the reply has ended.
func (r *Request) Kept() int { return r.turn.Kept() + r.search.bytes() + len(r.toolChanges) }

// Ignored returns the names of the fields that are accepted and have no effect, in
// the order of the request, such as service_tier or tools.web_search_20250305.
func (r *Request) Ignored() []string { return r.ignored }
