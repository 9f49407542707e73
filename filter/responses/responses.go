// Package responses speaks the OpenAI Responses API. [API] has what the operator has
// configured, and [API.Endpoints] answers the requests. The package is the door of some
// rooms, and has no more than the endpoints that lead into them:
//
//	read      reads the body of a request: JSON to a prepared model call
//	request   what reading has come to, and writing begins with
//	write     writes the reply: the model's output to items and events
//	toolset   the tools of a request: definitions, choice, servers, search
//	item      the JSON of items, both ways
//	event     the server-sent events, with their numbers
//	stored    what needs no model: stored responses, conversations
//
// read and write do not know each other. A POST /v1/responses goes through read, and
// becomes a [request.Request]. With the services that its reply uses it is a
// [write.Request], whose reply is a state machine without I/O: its steps are model calls
// and jobs. Servers list their tools, approvals are recorded, tools are called, and before
// the last event the response is stored.
//
// Which fields are refused, mapped or ignored is said in docs/compatibility.md, a
// table that a test of read compares with the readers.
package responses

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/read"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// Chains remembers what the last responses of chains come to. The memory outlives an API:
// one of another configuration gets it too.
type Chains = read.Chains

// NewChains makes a memory of at most limit bytes.
func NewChains(limit int64) *Chains { return read.NewChains(limit) }

// Fields are the described fields of the objects of a request, by their paths.
func Fields() jsontext.Objects { return read.Fields() }

// API is the Responses API. It is safe for concurrent use.
type API struct {
	// nil: nothing is stored.
	Store store.Store
	// Kept is used where nothing is stored, for what connections keep of their own; nil: they
	// keep nothing.
	Kept store.Store
	// Approvals: of tool calls, also where no responses are stored; nil: an approval is valid any number of times.
	Approvals store.Approvals
	// nil: include reasoning.encrypted_content has no effect.
	Sealer *seal.Sealer
	// nil: a chain is read and rendered again at each of its turns.
	Chains *Chains

	// Compactor seals the summaries of compacted conversations; nil: none is
	// compacted.
	Compactor *seal.Sealer

	// UsagePerTurn lists the model calls in every usage, as include
	// usage.per_turn does. Some clients refuse members that they do not know.
	UsagePerTurn bool

	// Tools calls the tools of MCP servers; nil: requests can have none.
	Tools *tools.Client
	// Builtins are the labels of the configured servers that implement built-in
	// tools.
	Builtins map[tools.Builtin]string

	// ToolTimeout is how long a turn waits for the outputs of its tools in Codex
	// compatibility mode.
	ToolTimeout time.Duration

	// Replaces Tools in tests.
	servers hosted.Runner
}

// toolServers returns what calls tools.
func (a *API) toolServers() hosted.Runner {
	if a.servers != nil {
		return a.servers
	}
	return a.Tools
}

// reader reads the requests.
func (a *API) reader() *read.Reader {
	return &read.Reader{
		Store: a.Store, Sealer: a.Sealer, Compactor: a.Compactor, Chains: a.Chains,
		Tools: hosted.Config{Client: a.Tools, Builtins: a.Builtins}, Servers: a.toolServers(),
		UsagePerTurn: a.UsagePerTurn, ToolTimeout: a.ToolTimeout,
	}
}

// services is what the replies use.
func (a *API) services() *write.Services {
	return &write.Services{Store: a.Store, Approvals: a.Approvals, Servers: a.toolServers()}
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
	e := a.endpoints()
	if a.Store == nil && a.Kept != nil {
		kept := *a
		kept.Store = a.Kept
		own := kept.endpoints()
		own.reader.KeptOnly = true
		e.connected = &own
	}
	s := &stored.Server{Store: a.Store, ReadBody: e.reader.ReadConversationBody}
	return append([]api.Endpoint{
		{API: "responses", Method: http.MethodPost, Pattern: Path, Handle: e.create},
		{API: "responses", Method: http.MethodPost, Pattern: CompactPath, Handle: e.compact},
		{API: "responses", Method: http.MethodPost, Pattern: InputTokensPath, NoCall: true, Handle: e.countInput},
		{API: "responses", Method: http.MethodPost, Pattern: RenderPath, NoCall: true, Handle: e.render},
	}, s.Endpoints()...)
}

// endpoints answers the requests whose body is that of a request for a response.
type endpoints struct {
	reader   *read.Reader
	services *write.Services
	// connected answers the requests of connections; nil: they are like others.
	connected *endpoints
}

func (a *API) endpoints() endpoints { return endpoints{reader: a.reader(), services: a.services()} }

// create makes a response.
func (e endpoints) create(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	if e.connected != nil && store.HasLocal(ctx) {
		e = *e.connected
	}
	if !r.Codex {
		q, err := e.reader.Read(ctx, r.Body, r.Context)
		return e.outcome(q, err)
	}

	q, repeated, err := e.reader.ReadCodex(ctx, r.Body, r.Context)
	switch {
	case repeated == nil:
		return e.outcome(q, err)
	// The same request again: its answer comes from the store, and no model is called.
	case repeated.Options.Stream:
		return api.Streamed(&stored.Replay{SSE: write.Replay(repeated.Response, repeated.Options)})
	}

	return api.Answered(stored.AppendObject(nil, repeated.Response), nil)
}

// compact makes a summary of a conversation.
func (e endpoints) compact(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	q, err := e.reader.ReadCompaction(ctx, r.Body, r.Context)
	return e.outcome(q, err)
}

// outcome is that of a request that has been read, or could not be.
func (e endpoints) outcome(q *request.Request, err *apierror.Error) api.Outcome {
	if err != nil {
		return api.Refused(err)
	}
	return api.Decoded(&write.Request{Request: q, Services: e.services})
}

// countInput counts the tokens of the prompt that a request would have.
func (e endpoints) countInput(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	q, err := e.readUnbounded(ctx, r)
	if err != nil {
		return api.Refused(err)
	}
	dst := []byte(`{"object":"response.input_tokens","input_tokens":`)
	return api.Answered(append(strconv.AppendInt(dst, int64(len(q.Engine().Prompt)), 10), '}'), nil)
}

// render shows the prompt that a request would have.
func (e endpoints) render(ctx context.Context, r *api.HTTPRequest) api.Outcome {
	q, err := e.readUnbounded(ctx, r)
	if err != nil {
		return api.Refused(err)
	}
	rendered, err := q.Turn.AppendRendered(nil, "response.render", q.Model, q.IgnoredFields)
	return api.Answered(rendered, err)
}

// readUnbounded reads a request whose prompt no model gets, so that it may be longer than
// the model's context.
func (e endpoints) readUnbounded(ctx context.Context, r *api.HTTPRequest) (*request.Request, *apierror.Error) {
	rc := *r.Context
	rc.Unbounded = true
	return e.reader.Read(ctx, r.Body, &rc)
}

// Stored reports whether a response of a tenant, and a conversation, are stored,
// each if it is not "".
func (a *API) Stored(ctx context.Context, tenant, response, conversation string) (bool, error) {
	if a.Store == nil {
		return false, nil
	}

	var err error
	// The head is enough: the response itself can be large, and the caller asks for its place only.
	if response != "" {
		_, err = a.Store.Head(ctx, tenant, response)
	}

	if conversation != "" && err == nil {
		_, err = a.Store.Conversation(ctx, tenant, conversation)
	}

	// What is not stored here may be the upstream's; a store that fails says nothing about it.
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}

	return err == nil, err
}

var (
	_ api.Request         = (*write.Request)(nil)
	_ api.Background      = (*write.Request)(nil)
	_ api.BackgroundReply = (*write.Reply)(nil)
	_ api.Follower        = (*stored.Follower)(nil)
	_ api.Follower        = (*stored.Replay)(nil)
)
