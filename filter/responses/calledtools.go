package responses

import (
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// toolConfig is what the configuration says about tools.
type toolConfig struct {
	// Client calls the tools of MCP servers; nil: requests can have none.
	Client *tools.Client
	// Builtins are the labels of the configured servers that implement built-in
	// tools.
	Builtins map[tools.Builtin]string
}

// toolName is a tool by the client's names.
type toolName struct{ namespace, name string }

// calledTools are the tools of a request that are called here, and what their
// calls need.
type calledTools struct {
	hosted    map[hosted.Space]*hostedServer
	custom    map[toolName]bool      // the client's own tools that take text
	actions   map[toolName]item.Kind // the items that calls of the client's other tools become
	maxCalls  int                    // made here; 0: the request sets no limit
	container string                 // the session in which the built-in tools of the conversation run
	pages     item.Pages             // that an answer can cite

	named    map[string]bool // functions of a namespace that the client calls functions
	search   *toolSearch     // nil: there is no tool search
	deferred []deferredTool
	loaded   map[toolName]bool // tools that a search has found
}

// called are the tools of the request, once all of it is read.
func (r *toolReader) called(maxCalls int, container string, pages item.Pages, loaded map[toolName]bool) calledTools {
	return calledTools{
		hosted: r.hostedSpaces(), custom: r.custom, actions: r.actions, maxCalls: maxCalls,
		container: r.containerID(container), pages: pages,
		named: r.named, search: r.search, deferred: r.deferred, loaded: maps.Clone(loaded),
	}
}
