// Package responses speaks the OpenAI Responses API. [API.Endpoints] answers its
// requests: a POST /v1/responses becomes a [Request], a token request for an
// engine, and a [Reply] turns the engine's chunks into server-sent events or one
// response object.
//
// A reply is a state machine without I/O. Its steps are model calls and jobs:
// servers list their tools, approvals are recorded, tools are called, and before
// the last event the response is stored. Package item has the JSON of the items,
// package event writes the events, and package stored answers what needs no model;
// none of them knows this package.
//
// Which fields are refused, mapped or ignored is said in docs/compatibility.md, a
// table that a test compares with this package.
package responses

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// API is the Responses API. It is safe for concurrent use.
type API struct {
	Store     store.Store     // nil: nothing is stored
	Approvals store.Approvals // of tool calls, also where no responses are stored; nil: an approval is valid any number of times
	Sealer    *seal.Sealer    // nil: include reasoning.encrypted_content has no effect
	Chains    *Chains         // nil: a chain is read and rendered again at each of its turns

	// Compactor seals the summaries of compacted conversations; nil: none is
	// compacted.
	Compactor *seal.Sealer

	// UsagePerTurn lists the model calls in every usage, as include
	// usage.per_turn does. Some clients refuse members that they do not know.
	UsagePerTurn bool
	// OpenReasoningEvents uses Open Responses' names of the events of reasoning
	// text, response.reasoning.delta and .done. OpenAI's clients do not know them.
	OpenReasoningEvents bool

	// Tools calls the tools of MCP servers; nil: requests can have none.
	Tools *tools.Client
	// Builtins are the labels of the configured servers that implement built-in
	// tools.
	Builtins map[tools.Builtin]string

	// ToolTimeout is how long a turn waits for the outputs of its tools in Codex
	// compatibility mode.
	ToolTimeout time.Duration

	servers hosted.Runner // replaces Tools in tests
}

// toolServers returns what calls tools.
func (a *API) toolServers() hosted.Runner {
	if a.servers != nil {
		return a.servers
	}
	return a.Tools
}

// Path is where responses are made.
const Path = stored.Path

// The paths whose body is the body of a request for a response. The latter two
// make no model call, and their prompts may be longer than the model's context.
const (
	CompactPath     = Path + "/compact"      // compacts a conversation
	InputTokensPath = Path + "/input_tokens" // counts the prompt's tokens
	RenderPath      = Path + "/render"       // shows the prompt
)

// Endpoints are the endpoints of the API.
func (a *API) Endpoints() []api.Endpoint {
	s := &stored.Server{Store: a.Store, ReadBody: a.readConversationBody}
	return append([]api.Endpoint{
		{API: "responses", Method: http.MethodPost, Pattern: Path, Handle: a.create},
		{API: "responses", Method: http.MethodPost, Pattern: CompactPath, Handle: a.compact},
		{API: "responses", Method: http.MethodPost, Pattern: InputTokensPath, Handle: a.countInput},
		{API: "responses", Method: http.MethodPost, Pattern: RenderPath, Handle: a.render},
	}, s.Endpoints()...)
}

// create makes a response.
func (a *API) create(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	d := a.newDecoder(r.Context)
	if r.Codex {
		d.codex = &codexTurn{}
	}
	return d.decode(ctx, r.Body)
}

// compact makes a summary of a conversation. The reply is one object, and nothing
// is stored.
func (a *API) compact(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	d := a.newDecoder(r.Context)
	d.items.compacting.standalone = true
	return d.decode(ctx, r.Body)
}

// countInput counts the tokens of the prompt that a request would have.
func (a *API) countInput(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	request, err := a.decodeUnbounded(ctx, r)
	if err != nil {
		return api.Refused(err)
	}
	dst := []byte(`{"object":"response.input_tokens","input_tokens":`)
	return api.Answered(append(strconv.AppendInt(dst, int64(len(request.Engine().Prompt)), 10), '}'), nil)
}

// render shows the prompt that a request would have.
func (a *API) render(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	request, err := a.decodeUnbounded(ctx, r)
	if err != nil {
		return api.Refused(err)
	}
	rendered, err := request.turn.AppendRendered(nil, "response.render", request.model, request.ignored)
	return api.Answered(rendered, err)
}

// decodeUnbounded decodes a request whose prompt no model gets.
func (a *API) decodeUnbounded(ctx context.Context, r *api.HTTPRequest) (*Request, *apierror.Error) {
	rc := *r.Context
	rc.Unbounded = true
	return a.newDecoder(&rc).request(ctx, r.Body)
}

var (
	_ api.BackgroundRequest = (*Request)(nil)
	_ api.Locker            = (*Request)(nil)
	_ api.BackgroundReply   = (*Reply)(nil)
	_ api.Follower          = (*stored.Follower)(nil)
	_ api.Follower          = (*stored.Replay)(nil)
)
