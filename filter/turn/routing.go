package turn

import (
	"unicode"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// RoutingInfo describes a request for endpoint pickers and access logs, beside its
// token request.
type RoutingInfo struct {
	// Messages, calls and results of the conversation.
	Items int
	// That the request declares.
	Tools int
	// Its beginning, of at most [Limits].LastUserTextBytes; white space becomes single spaces.
	LastUserText string
}

// RoutingInfo returns the description of the turn's request.
func (t *Turn) RoutingInfo() RoutingInfo { return t.routing }

func routingOf(rc *request.Context, tools []harmony.Namespace, before *Prefix, items []item.Item) RoutingInfo {
	info := RoutingInfo{Items: before.settled + len(items), LastUserText: lastUserText(rc, before.lastUserText, items)}
	for i := range tools {
		info.Tools += len(tools[i].Tools)
	}
	return info
}

// lastUserText returns the beginning of the last user's text of items; before, if
// they have none.
func lastUserText(rc *request.Context, before string, items []item.Item) string {
	if rc.Limits.LastUserTextBytes <= 0 {
		return ""
	}

	for i := len(items) - 1; i >= 0; i-- {
		if items[i].Kind == item.User && !items[i].Summary {
			return concise(items[i].Text, rc.Limits.LastUserTextBytes)
		}
	}
	return before
}

// concise returns the beginning of text in at most n bytes of whole characters.
// White space becomes single spaces between words. Invalid UTF-8 is replaced.
func concise(text string, n int) string {
	out := make([]byte, 0, min(n, len(text)))
	space := false

	for _, char := range text {
		if unicode.IsSpace(char) {
			space = len(out) > 0
			continue
		}

		need := utf8.RuneLen(char)
		if space {
			need++
		}
		if len(out)+need > n {
			break
		}
		if space {
			out, space = append(out, ' '), false
		}
		out = utf8.AppendRune(out, char)
	}
	return string(out)
}
