package filter

import (
	"context"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// api is an endpoint of OpenAI's that the filter serves: it has decode or
// serve.
type api struct {
	name string
	// decode makes a token request of a body.
	decode func(ctx context.Context, body []byte, scope *turn.Scope) (call, *apierror.Error)
	// serve answers without an engine, with a JSON body. An error that is a
	// 404 lets a request that names no model pass: what it asks for may be
	// the upstream's.
	serve func(x *exchange, body []byte) ([]byte, *apierror.Error)
	// modelless tells that the body names no model: it is ours by its path.
	modelless bool
}

// call is a decoded request of an API.
type call interface {
	// Engine is the token request.
	Engine() *engine.Request
	// Stream tells whether the client wants events.
	Stream() bool
	// Ignored names the parameters that were accepted and not used.
	Ignored() []string
	// NewReply begins the reply.
	NewReply() reply
}

// reply turns an engine's chunks into the bytes the client gets, in one way for
// streamed and whole replies.
type reply interface {
	Push(dst []byte, c *engine.Chunk) ([]byte, *apierror.Error)
	Done() bool
	End(dst []byte) []byte
	Fail(dst []byte, err *apierror.Error) []byte
	Summary() turn.Summary
}

// canceller is a reply that wants to know that its client has gone.
type canceller interface{ Cancel() }

// faulty is a reply that can go wrong without an error for the client.
type faulty interface{ Fault() error }

const chatPath = "/v1/chat/completions"

// apiOf finds the endpoint of a request, nil if it is not ours.
func (s *Server) apiOf(method, path string) *api {
	switch {
	case method == http.MethodPost && path == chatPath:
		return &s.apis.chat
	case method == http.MethodPost && path == responses.Path:
		return &s.apis.responses
	case !responses.Serves(method, path):
		return nil
	case path == responses.InputTokensPath:
		return &s.apis.inputTokens
	}
	return &s.apis.stored
}

// ownPath tells whether an API of ours stands at a path, whatever the method.
func ownPath(path string) bool { return path == chatPath || path == responses.Path }

// apis are the endpoints the filter serves.
type apis struct{ chat, responses, inputTokens, stored api }

func newAPIs(r *responses.API) apis {
	serve := func(x *exchange, body []byte) ([]byte, *apierror.Error) {
		return r.Serve(x.ctx, x.method, x.path, x.query, body, x.s.scope(x))
	}
	return apis{
		chat: api{name: "chat", decode: func(_ context.Context, body []byte, scope *turn.Scope) (call, *apierror.Error) {
			c, err := chat.Decode(body, scope)
			if err != nil {
				return nil, err
			}
			return chatCall{c}, nil
		}},
		responses: api{name: "responses", decode: func(ctx context.Context, body []byte, scope *turn.Scope) (call, *apierror.Error) {
			c, err := r.Decode(ctx, body, scope)
			if err != nil {
				return nil, err
			}
			return responsesCall{c}, nil
		}},
		inputTokens: api{name: "responses", serve: serve},
		stored:      api{name: "responses", serve: serve, modelless: true},
	}
}

// chatCall and responsesCall fit the APIs' calls to the interface.
type (
	chatCall      struct{ *chat.Call }
	responsesCall struct{ *responses.Call }
)

func (c chatCall) NewReply() reply      { return c.Call.NewReply() }
func (c responsesCall) NewReply() reply { return c.Call.NewReply() }
