package filter

import (
	"context"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// api is an endpoint of OpenAI's that the filter serves: it has decode or
// serve.
type api struct {
	name string
	// decode makes a token request of a body.
	decode func(ctx context.Context, body []byte, scope *turn.Scope) (call, *apierror.Error)
	// serve answers without an engine, with a JSON body. An error that says
	// that what is asked for is not stored here lets a request that names no
	// model pass: it may be the upstream's.
	serve func(ctx context.Context, x *exchange, body []byte) ([]byte, *apierror.Error)
	// stream gives the stored stream that a request of serve asks for, nil
	// if it asks for none. nil: there are none here.
	stream func(ctx context.Context, x *exchange, body []byte) (follower, *apierror.Error)
	// modelless tells that the body names no model: it is ours by its path.
	modelless bool
	// open tells that the answer is the same for all tenants.
	open bool
}

// call is a decoded request of an API.
type call interface {
	// ID is the reply's.
	ID() string
	// Engine is the token request.
	Engine() *engine.Request
	// Affinity is what the engine is chosen by.
	Affinity() turn.Affinity
	// Outline is what else is told to those who choose.
	Outline() turn.Outline
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
	// Step begins the reply's next step, once the one before it is done. A
	// reply of which no step is begun has one model call.
	Step(dst []byte) ([]byte, responses.Step, *apierror.Error)
	// Did takes what came of the i-th job of the step.
	Did(dst []byte, i int, result tools.Result) []byte
	Push(dst []byte, c *engine.Chunk) ([]byte, *apierror.Error)
	Done() bool
	End(dst []byte) []byte
	Fail(dst []byte, err *apierror.Error) []byte
	Summary() turn.Summary
	// Fault is what went wrong without an error for the client, nil if nothing did.
	Fault() error
	// NewCheck checks an answer to the model call being made; nil: there is nothing to be checked.
	NewCheck() *turn.Check
}

// canceller is a reply that wants to know that its client has gone.
type canceller interface{ Cancel() }

// refusable is a reply whose end can show that there is none.
type refusable interface{ Refusal() *apierror.Error }

// codexCall is a call in Codex compatibility mode.
type codexCall interface {
	call
	Continues() bool                                        // a stored response, under its id
	Again() (object []byte, stream follower, answered bool) // of a call that has been answered before
}

// apiOf finds the endpoint of a request, nil if it is not ours.
func (s *Server) apiOf(method, path string) *api {
	switch {
	case method == http.MethodPost && path == chat.Path:
		return &s.apis.chat
	case method == http.MethodPost && path == chat.RenderPath:
		return &s.apis.chatRender
	case method == http.MethodPost && path == responses.Path:
		return &s.apis.responses
	case method == http.MethodPost && path == responses.CompactPath:
		return &s.apis.compact
	case s.servesModels(method, path):
		return &s.apis.models
	case !responses.Serves(method, path):
		return nil
	case path == responses.InputTokensPath, path == responses.RenderPath:
		return &s.apis.ofModel
	}
	return &s.apis.stored
}

// ownPath tells whether an API of ours stands at a path, whatever the method.
func ownPath(path string) bool { return path == chat.Path || path == responses.Path }

// apis are the endpoints the filter serves.
type apis struct{ chat, chatRender, responses, codex, compact, ofModel, stored, models api }

func newAPIs(r *responses.API) apis {
	serve := func(ctx context.Context, x *exchange, body []byte) ([]byte, *apierror.Error) {
		return r.Serve(ctx, x.method, x.path, x.query, body, x.s.scope(x))
	}
	stream := func(ctx context.Context, x *exchange, body []byte) (follower, *apierror.Error) {
		f, err := r.Stream(ctx, x.method, x.path, x.query, body, x.s.scope(x))
		if f == nil {
			return nil, err
		}
		return f, nil
	}
	return apis{
		chat: api{name: "chat", decode: func(ctx context.Context, body []byte, scope *turn.Scope) (call, *apierror.Error) {
			c, err := chat.Decode(ctx, body, scope)
			if err != nil {
				return nil, err
			}
			return chatCall{c}, nil
		}},
		chatRender: api{name: "chat", serve: func(ctx context.Context, x *exchange, body []byte) ([]byte, *apierror.Error) {
			return chat.Render(ctx, body, x.s.scope(x))
		}},
		responses: api{name: "responses", decode: ofResponses(r.Decode)},
		codex:     api{name: "responses", decode: ofResponses(r.DecodeCodex)},
		compact:   api{name: "responses", decode: ofResponses(r.DecodeCompact)},
		ofModel:   api{name: "responses", serve: serve},
		stored:    api{name: "responses", serve: serve, stream: stream, modelless: true},
		models: api{name: "models", modelless: true, open: true, serve: func(ctx context.Context, x *exchange, _ []byte) ([]byte, *apierror.Error) {
			return x.s.serveModels(ctx, x)
		}},
	}
}

// ofResponses fits a way to decode a request of the Responses API to the
// interface.
func ofResponses(decode func(context.Context, []byte, *turn.Scope) (*responses.Call, *apierror.Error)) func(context.Context, []byte, *turn.Scope) (call, *apierror.Error) {
	return func(ctx context.Context, body []byte, scope *turn.Scope) (call, *apierror.Error) {
		c, err := decode(ctx, body, scope)
		if err != nil {
			return nil, err
		}
		return responsesCall{c}, nil
	}
}

// chatCall and responsesCall fit the APIs' calls to the interface.
type (
	chatCall      struct{ *chat.Call }
	responsesCall struct{ *responses.Call }
)

func (c chatCall) NewReply() reply      { return chatReply{c.Call.NewReply()} }
func (c responsesCall) NewReply() reply { return c.Call.NewReply() }

// chatReply fits chat's replies, which need no tools, to the interface.
type chatReply struct{ *chat.Reply }

func (r chatReply) Step(dst []byte) ([]byte, responses.Step, *apierror.Error) {
	request, err := r.Next()
	return dst, responses.Step{Call: request}, err
}

func (chatReply) Did(dst []byte, _ int, _ tools.Result) []byte { return dst }

// Again gives the answer to a call that has been answered before.
func (c responsesCall) Again() (object []byte, stream follower, answered bool) {
	object, replay, answered := c.Call.Again()
	if replay == nil {
		return object, nil, answered
	}
	return nil, replay, answered
}

// Follow gives the stream of a background response.
func (c responsesCall) Follow() follower { return c.Call.Follow() }
