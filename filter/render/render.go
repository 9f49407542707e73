// Package render is the render service: what turns requests into tokens and tokens
// into replies, and calls no model. [Endpoints] adds to the render endpoints of the
// APIs their counterparts, which derender, and those of the tokenizer.
//
//	/v1/chat/completions/render     a request      ->  the prompt's tokens
//	/v1/chat/completions/derender   output tokens  ->  the reply, events, or one chunk
//	/tokenize, /detokenize          text           <-> tokens
//
// Requests and answers have vLLM's shapes, as far as vLLM has them: docs/render.md.
// A derendered reply is made by the API's own code from the API's own request, so it
// is the reply that the filter makes of the same tokens. Nothing is kept between two
// requests: of a reply that is derendered chunk by chunk the client has the state.
package render

import (
	"net/http"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
)

// The paths of the tokenizer.
const (
	TokenizePath   = "/tokenize"
	DetokenizePath = "/detokenize"
)

// The ends of the paths of an API.
const (
	renderSuffix   = "/render"
	derenderSuffix = "/derender"
)

// Options is what the endpoints are made of.
type Options struct {
	// Stateless has the endpoints of the APIs, without a store and without tools. The
	// derendered replies are those of its requests.
	Stateless []api.Endpoint
	// NeedsModel rejects requests that name no model at their top level: settings of
	// a model depend on it.
	NeedsModel bool
}

// Endpoints returns the endpoints that derender, one for each API that has an endpoint
// with /render, and those of the tokenizer.
func Endpoints(o Options) []api.Endpoint {
	var all []api.Endpoint
	for _, k := range kinds {
		// The requests are decoded by the API's own endpoint, so that both services read them alike.
		create, _ := api.Match(o.Stateless, http.MethodPost, k.path)
		if create == nil {
			continue
		}

		d := &derenderer{kind: k, create: *create, needsModel: o.NeedsModel}
		all = append(all, api.Endpoint{
			API: create.API, Method: http.MethodPost, Pattern: k.path + derenderSuffix,
			Errors: create.Errors, IDHeader: create.IDHeader, NoCall: true, Handle: d.handle,
		})

		// The tokenizer takes Chat Completions' messages.
		if k.merge {
			t := &tokenizer{chat: *create, needsModel: o.NeedsModel}
			all = append(all,
				api.Endpoint{
					API: "tokenize", Method: http.MethodPost, Pattern: TokenizePath, NoCall: true, Handle: t.tokenize,
				},
				api.Endpoint{
					API: "tokenize", Method: http.MethodPost, Pattern: DetokenizePath, NoCall: true,
					Handle: t.detokenize,
				},
			)
		}
	}
	return all
}

// Rendering returns the endpoints among those of the APIs that render.
func Rendering(endpoints []api.Endpoint) []api.Endpoint {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e api.Endpoint) bool {
		return !strings.HasSuffix(e.Pattern, renderSuffix)
	})
}

// kind is what differs between the APIs.
type kind struct {
	path    string // where replies are made
	prefix  string // of the ids of replies
	request string // the field that has the request
	merge   bool   // the events of a chunk are merged into one
}

var kinds = []kind{
	{path: "/v1/chat/completions", prefix: "chatcmpl-", request: "chat_request", merge: true},
	{path: "/v1/responses", prefix: "resp_", request: "responses_request"},
	{path: "/v1/messages", prefix: "msg_", request: "messages_request"},
}
