// Package stored answers the requests of the Responses API that need no model:
// it reads, lists, follows, cancels and deletes stored responses, and keeps
// conversations.
//
// A response that is made in the background is live in the store until it ends.
// Its process renews the lease and writes the events of its stream to the
// store's journal, streamed or not; everybody who wants the stream follows it
// there. The first end of a live response that is stored counts:
// its process, a client that cancels it, or a reader who finds that its process
// has died.
package stored

import (
	"context"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Path is where responses are made. Stored responses are below it.
const Path = "/v1/responses"

// ConversationsPath is where conversations are made. Stored conversations are
// below it.
const ConversationsPath = "/v1/conversations"

// Server answers requests about stored responses and conversations. It is safe
// for concurrent use.
type Server struct {
	// nil: nothing is stored.
	Store store.Store
	// ReadBody reads the body of a request about a conversation.
	ReadBody func(ctx context.Context, body []byte, rc *turn.RequestContext) (Body, *apierror.Error)
}

// Body is the body of a request about a conversation.
type Body struct {
	Metadata []byte // JSON object; nil: there is none
	Items    []store.Item
	HasItems bool // the body has the member items
}

const responsePath = Path + "/{id}"

const (
	conversationPath     = ConversationsPath + "/{id}"
	conversationItemPath = conversationPath + "/items/{item}"
)

// Endpoints are the endpoints that the server answers. No body of theirs names a
// model.
func (s *Server) Endpoints() []api.Endpoint {
	list := []api.Endpoint{
		{Method: http.MethodGet, Pattern: responsePath, Handle: s.get},
		{Method: http.MethodDelete, Pattern: responsePath, Handle: answer(s.delete)},
		{Method: http.MethodGet, Pattern: responsePath + "/input_items", Handle: answer(s.listInput)},
		{Method: http.MethodPost, Pattern: responsePath + "/cancel", Handle: answer(s.cancel)},

		{Method: http.MethodPost, Pattern: ConversationsPath, Handle: answer(s.createConversation)},
		{Method: http.MethodGet, Pattern: conversationPath, Handle: answer(s.getConversation)},
		{Method: http.MethodPost, Pattern: conversationPath, Handle: answer(s.updateConversation)},
		{Method: http.MethodDelete, Pattern: conversationPath, Handle: answer(s.deleteConversation)},
		{Method: http.MethodGet, Pattern: conversationPath + "/items", Handle: answer(s.listConversation)},
		{Method: http.MethodPost, Pattern: conversationPath + "/items", Handle: answer(s.extendConversation)},
		{Method: http.MethodGet, Pattern: conversationItemPath, Handle: answer(s.getConversationItem)},
		{Method: http.MethodDelete, Pattern: conversationItemPath, Handle: answer(s.deleteConversationItem)},
	}

	for i := range list {
		list[i].API, list[i].NoModel = "responses", true
	}

	return list
}

// answer makes a handler of a method that answers with JSON.
func answer(handle func(context.Context, *api.HTTPRequest) ([]byte, *apierror.Error)) func(context.Context,
	*api.HTTPRequest) api.Outcome {
	return func(ctx context.Context, r *api.HTTPRequest) api.Outcome {
		object, err := handle(ctx, r)
		if err != nil {
			return failed(err)
		}
		return api.Answered(object, nil)
	}
}

// failed is the outcome for an error. A response or conversation that is not
// stored here may be another service's.
func failed(err *apierror.Error) api.Outcome {
	if err.Status == http.StatusNotFound && err.Code != CodeItemNotFound {
		return api.Elsewhere(err)
	}
	return api.Refused(err)
}
