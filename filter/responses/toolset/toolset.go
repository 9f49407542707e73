// Package toolset is the tools of a request for a response: functions and custom tools of
// the client, tools whose calls are items of their own, MCP servers, built-in tools, and the
// search for tools that are not offered yet.
//
// A [Reader] reads the definitions and tool_choice, those of the request and those of items
// that bring tools, and offers them in the turn's input. Servers and searches go into a
// [hosted.Offer], which is the same in all APIs. What a reply needs of the tools is [Called]:
// which calls are made here, which items calls become, and what a search finds.
//
// The package does no I/O: servers list their tools as jobs of the reply. It knows neither
// the rest of a request nor replies.
package toolset

import (
	"cmp"
	"maps"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Called are the tools of a request that are called here, and what their
// calls need.
type Called struct {
	// MaxCalls bounds the calls that are made here; 0: the request sets no limit.
	hosted.Called
	MaxCalls int
	// Pages are those that an answer can cite.
	Pages item.Pages

	// What calls of the client's tools become: Custom tools take text, Actions are items of
	// their own, and Named are functions of a namespace that the client calls functions.
	Custom  map[turn.ToolName]bool
	Actions map[turn.ToolName]item.Kind
	Named   map[string]bool
}

// Called are the tools of the request, once all of it is read. container is the session of the
// conversation, and loaded are the tools that it has found.
func (r *Reader) Called(maxCalls int, container string, pages item.Pages, loaded map[turn.ToolName]bool) Called {
	c := Called{
		Called: r.offer.Called(cmp.Or(r.container, container)), MaxCalls: maxCalls, Pages: pages,
		Custom: r.custom, Actions: r.actions, Named: r.named,
	}
	c.Search = r.offer.Search(maps.Clone(loaded))
	return c
}

// Settle adds what only Offer has shown.
func (r *Reader) Settle(c *Called) {
	if c.Search != nil {
		c.Search.Deferred = r.offer.Deferred
	}
}
