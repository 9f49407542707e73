// Package responses speaks the OpenAI Responses API: [API.Decode] turns the
// body of a POST /v1/responses into a token request for an engine, and a
// [Reply] turns the engine's chunks into server-sent events or one response
// object.
//
//	call, err := api.Decode(ctx, body, scope)
//	…                                    // send call.Engine()
//	reply := call.NewReply()
//	out, err = reply.Push(out, chunk)    // for every chunk, until reply.Done()
//	out = reply.End(out)
//
// Which fields are refused, mapped or ignored stands in docs/compatibility.md,
// a table that a test compares with this package.
package responses

import (
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// API is the Responses API. It is safe for concurrent use.
type API struct {
	Store  store.Store // nil: nothing is stored
	Sealer *Sealer     // nil: include reasoning.encrypted_content has no effect
	Chains *Chains     // nil: a chain is read and rendered again at each of its turns

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

	// ToolTimeout is how long a turn waits for the outputs of its tools in
	// Codex compatibility mode.
	ToolTimeout time.Duration
}

// Call is one decoded request.
type Call struct {
	turn    *turn.Turn
	scope   *turn.Scope
	id      string
	model   string // as requested
	ignored []string
	options options
	custom  map[toolName]bool // the tools that take text
	fixed   []byte            // the members of the response object that follow from the request, without the first comma

	store    store.Store
	queued   int                         // events of a background response that are stored before it is made
	created  int64                       // Unix time in seconds
	previous string                      // the response that this one continues
	input    []store.Item                // of this request
	keep     func(*store.Response) error // nil: the response is not stored
	sealer   *Sealer                     // nil: reasoning has no encrypted_content

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
}

// toolName is a tool by the client's names.
type toolName struct{ namespace, name string }

// Engine is the model call to make.
func (c *Call) Engine() *engine.Request { return c.turn.Engine }

// Affinity is what the call's engine is chosen by.
func (c *Call) Affinity() turn.Affinity { return c.turn.Affinity() }

// ID is the id of the response.
func (c *Call) ID() string { return c.id }

// Model is the model's name as the client wrote it.
func (c *Call) Model() string { return c.model }

// Stream tells whether the reply is server-sent events. That of a background
// response always is.
func (c *Call) Stream() bool { return c.options.stream }

// Follows tells, of a background response, whether its client wants the events
// now.
func (c *Call) Follows() bool { return c.options.follow }

// Ignored names the request's fields that are accepted without an effect, in
// the order of the request, such as user or text.verbosity.
func (c *Call) Ignored() []string { return c.ignored }
