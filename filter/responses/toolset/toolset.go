// Package toolset is the tools of a request for a response: functions and custom tools of
// the client, tools whose calls are items of their own, MCP servers, built-in tools, and the
// search for tools that are not offered yet.
//
// A [Reader] reads the definitions and tool_choice, those of the request and those of items
// that bring tools, and offers them in the turn's input. What a reply needs of them is
// [Called]: which calls are made here, which items calls become, and what a search finds. A
// [Server] is an MCP server or a built-in tool with what the request says about it.
//
// The package does no I/O: servers list their tools as jobs of the reply. It knows neither
// the rest of a request nor replies.
package toolset

import (
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Config is what the configuration says about tools.
type Config struct {
	// Client calls the tools of MCP servers; nil: requests can have none.
	Client *tools.Client
	// Builtins are the labels of the configured servers that implement built-in
	// tools.
	Builtins map[tools.Builtin]string
}

// Called are the tools of a request that are called here, and what their
// calls need.
type Called struct {
	// Hosted are the servers and built-in tools, whose calls are made here. MaxCalls bounds
	// them; 0: the request sets no limit.
	Hosted   map[hosted.Space]*Server
	MaxCalls int
	// Container is the session in which the built-in tools of the conversation run, and Pages
	// are those that an answer can cite.
	Container string
	Pages     item.Pages

	// What calls of the client's tools become: Custom tools take text, Actions are items of
	// their own, and Named are functions of a namespace that the client calls functions.
	Custom  map[turn.ToolName]bool
	Actions map[turn.ToolName]item.Kind
	Named   map[string]bool

	// Search is nil where there is no tool search. It finds Deferred tools; Loaded are those
	// that the model has already.
	Search   *Search
	Deferred []Deferred
	Loaded   map[turn.ToolName]bool

	rc *turn.RequestContext
}

// Called are the tools of the request, once all of it is read.
func (r *Reader) Called(maxCalls int, container string, pages item.Pages, loaded map[turn.ToolName]bool) Called {
	return Called{
		Hosted: r.hostedSpaces(), Custom: r.custom, Actions: r.actions, MaxCalls: maxCalls,
		Container: r.containerID(container), Pages: pages,
		Named: r.named, Search: r.search, Deferred: r.Deferred, Loaded: maps.Clone(loaded), rc: r.rc,
	}
}
