// Package responses speaks the OpenAI Responses API: [API.Decode] turns the
// body of a POST /v1/responses into a token request for an engine, and a
// [Reply] turns the engine's chunks into server-sent events or one response
// object. Each chunk is pushed, until the reply is done; then it is ended.
//
// Which fields are refused, mapped or ignored stands in docs/compatibility.md,
// a table that a test compares with this package.
package responses

import (
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// API is the Responses API. It is safe for concurrent use.
type API struct {
	Store  store.Store  // nil: nothing is stored
	Claims store.Claims // of calls that clients approve, also where nothing is stored; nil: each approval counts anew
	Sealer *Sealer      // nil: include reasoning.encrypted_content has no effect
	Chains *Chains      // nil: a chain is read and rendered again at each of its turns

	// Compactor seals the summaries of compacted conversations; nil: none is
	// compacted.
	Compactor *Sealer

	// UsagePerTurn lists the model calls in every usage, as include
	// usage.per_turn does. Some clients refuse members that they do not know.
	UsagePerTurn bool
	// OpenReasoningEvents gives the events of reasoning text the names that
	// Open Responses has, response.reasoning.delta and .done. OpenAI's
	// clients do not know them.
	OpenReasoningEvents bool

	// Tools calls the tools of MCP servers; nil: requests can have none.
	Tools *tools.Client
	// Builtins are the labels of the configured servers that do the work of
	// built-in tools.
	Builtins map[Builtin]string

	// ToolTimeout is how long a turn waits for the outputs of its tools in
	// Codex compatibility mode.
	ToolTimeout time.Duration
}

// Call is one decoded request.
type Call struct {
	api          *API
	turn         *turn.Turn // nil while there is an opening
	opening      *opening   // nil: the model can be called at once
	hosted       map[hostedSpace]*hosted
	scope        *turn.Scope
	id           string
	model        string // as requested
	ignored      []string
	options      options
	custom       map[toolName]bool // the tools that take text
	maxOutput    int               // tokens of all model calls together; 0: no limit of the request's
	maxToolCalls int               // made here; 0: no limit of the request's
	fixed        []byte            // the members of the response object that follow from the request, without the first comma

	store     store.Store
	queued    int                         // events of a background response that are stored before it is made
	created   int64                       // Unix time in seconds
	previous  string                      // the response that this one continues
	input     []store.Item                // of this request
	keep      func(*store.Response) error // nil: the response is not stored
	container string                      // where the tools of this service keep what is the conversation's
	pages     pages                       // that the answer can cite
	sealer    *Sealer                     // nil: reasoning has no encrypted_content

	holder     *holder                                    // nil: no conversation is held
	extend     func([]store.Item) (added bool, err error) // gives the conversation items, and lets it go; nil where none is held
	compaction *compaction                                // nil: the reply is the model's own

	continued usage           // of the requests before this one that have made the same response
	version   int64           // of the response that is made anew; 0: it is a new one
	again     *store.Response // nil: the call has not been answered before
}

// options is what the reply needs to know of the request.
type options struct {
	stream        bool // events are made
	background    bool
	follow        bool // of a background response: the client wants its events
	hideReasoning bool
	summary       bool // reasoning is told as a summary too
	openReasoning bool // the events of reasoning text have Open Responses' names
	usagePerTurn  bool // the usage lists the model calls
	messages      bool // the response has the Harmony messages
	outputs       bool // code interpreter calls have what the code has put out
}

// toolName is a tool by the client's names.
type toolName struct{ namespace, name string }

// Engine is the model call to make; nil where a step of the reply has to come
// before it.
func (c *Call) Engine() *engine.Request {
	if c.turn == nil {
		return nil
	}
	return c.turn.Engine
}

// Affinity is what the call's engine is chosen by, once there is a model call
// to make.
func (c *Call) Affinity() turn.Affinity { return c.turn.Affinity() }

// Outline is what can be told of the call to those who choose where it goes.
func (c *Call) Outline() turn.Outline {
	if c.turn == nil {
		return turn.Outline{}
	}
	return c.turn.Outline()
}

// ID is the id of the response.
func (c *Call) ID() string { return c.id }

// Stream tells whether the reply is server-sent events. That of a background
// response always is.
func (c *Call) Stream() bool { return c.options.stream }

// Follows tells, of a background response, whether its client wants the events
// now.
func (c *Call) Follows() bool { return c.options.follow }

// Ignored names the request's fields that are accepted without an effect, in
// the order of the request, such as user or text.verbosity.
func (c *Call) Ignored() []string { return c.ignored }
