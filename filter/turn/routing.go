package turn

import (
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
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

func routingOf(rc *request.Context, conversation *prompt.Conversation) RoutingInfo {
	info := RoutingInfo{Items: conversation.Len(), LastUserText: conversation.LastUserText(rc)}
	for i := range conversation.Input.Tools {
		info.Tools += len(conversation.Input.Tools[i].Tools)
	}
	return info
}
