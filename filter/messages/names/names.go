// Package names is what reading and writing a message have to call the same: the ids of
// calls, and the searches for tools.
//
// A call has an id of package turn inside (call_), and one for clients: which prefix it has
// there says who makes the call. A reply shows the id, and the next request sends it back:
//
//	call_x  → [Shown]         toolu_x     of a tool of the client      → [CallID]   → call_x
//	call_x  → [ShownServed]   srvtoolu_x  of a built-in tool           → [ServedID] → call_x
//	                          mcptoolu_x  of a tool of an MCP server
//	call_x  → [ShownSearch]   srvtoolu_x  of a search for tools
//
// A [Page] is what a search result has for the filter alone, sealed by the reply and opened
// by the next request.
//
// The package knows neither requests nor replies.
package names

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// What ids of calls begin with: callPrefix as package turn makes them, toolPrefix as clients
// of Anthropic's API know them. The calls of tools that run here have two more.
const (
	callPrefix    = "call_"
	toolPrefix    = "toolu_"
	builtinPrefix = "srvtoolu_"
	mcpPrefix     = "mcptoolu_"
)

// Shown returns the id of a call of the client's tool, as clients know it.
func Shown(callID string) string { return toolPrefix + strings.TrimPrefix(callID, callPrefix) }

// CallID returns the id of such a call by the one that a client sends, which may have either
// prefix, or none of both.
func CallID(sent string) string {
	if rest, ok := strings.CutPrefix(sent, toolPrefix); ok {
		return callPrefix + rest
	}
	return sent
}

// ShownServed returns the id of a call that the filter makes, as clients know it.
func ShownServed(s *hosted.Server, callID string) string {
	prefix := mcpPrefix
	if s.Builtin != nil {
		prefix = builtinPrefix
	}
	return prefix + strings.TrimPrefix(callID, callPrefix)
}

// ServedID returns the id of such a call by the one that clients know.
func ServedID(shown string) string {
	for _, prefix := range []string{builtinPrefix, mcpPrefix} {
		if rest, ok := strings.CutPrefix(shown, prefix); ok {
			return callPrefix + rest
		}
	}
	return callPrefix + shown
}

// ShownSearch returns the id of a search for tools, as clients know it.
func ShownSearch(callID string) string { return builtinPrefix + strings.TrimPrefix(callID, callPrefix) }

// The searches for tools, by the names that clients know.
const (
	SearchByWords   = "tool_search_tool_bm25"
	SearchByPattern = "tool_search_tool_regex"
)

// SearchOf returns the search of a tool's type or name, with or without a date; "" if it is none.
func SearchOf(kind string) string {
	if at := strings.LastIndexByte(kind, '_'); at >= 0 && IsDate(kind[at+1:]) {
		kind = kind[:at]
	}
	// Not the text of the type: the reply keeps the name, and the body would stay with it.
	switch kind {
	case SearchByWords:
		return SearchByWords
	case SearchByPattern:
		return SearchByPattern
	}
	return ""
}

// IsDate reports whether a text is a date as types of tools end with, such as 20250124.
func IsDate(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return len(text) == len("20250124")
}

// Page is what the encrypted_content of a web_search_result has: with it the model sees the
// call and its result again as they were, without a store.
type Page struct {
	Tool    string `json:"tool"`
	Session string `json:"session"` // of the browser
	Text    string `json:"text"`
}

// maxKind bounds the names of types in the list of ignored fields, in bytes.
const maxKind = 64

// IgnoreKind notes that objects of a type, which the client names, have no effect. at is what
// their path begins with.
func IgnoreKind(ignored *jsontext.Ignored, at, kind string) {
	ignored.Add(at + kind[:min(len(kind), maxKind)])
}
