// Package turn is one model turn, whatever the API: what goes in (a
// conversation, tools and sampling parameters become a token request) and what
// comes out (the engine's tokens become reasoning, text and tool calls). It
// holds everything that the Chat Completions and the Responses API share and
// no JSON of one alone.
//
// An API decodes its request into an [Input], calls [Scope.Prepare], and turns
// the events of one [Reader] a choice into its own reply.
package turn

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Env is what a turn needs of its surroundings. It is shared by all requests
// and safe for concurrent use when its members are.
type Env struct {
	Renderer *harmony.Renderer
	Now      func() time.Time
	NewID    func(prefix string) string // prefix and at least 128 random bits, of [A-Za-z0-9_-]
	Memory   Memory                     // nil: nothing is kept between requests
	Limits   Limits
}

// Memory keeps small texts between requests: the reasoning of unfinished tool
// turns, for clients that do not send it back, and the date on which a
// conversation began. It may forget. What one tenant keeps, no other can read.
// Where it does not answer, a turn goes on without it. A store.Store is one.
type Memory interface {
	// Texts gives the texts kept under these names, by name.
	Texts(ctx context.Context, tenant string, names []string) (map[string]string, error)
	// PutTexts keeps texts under their names, in place of what was there.
	PutTexts(ctx context.Context, tenant string, texts map[string]string) error
	// FirstText keeps text under name unless there is one, and gives the one
	// that is kept.
	FirstText(ctx context.Context, tenant, name, text string) (string, error)
}

// Limits bounds what one request may ask for.
type Limits struct {
	Items       int // messages, calls and results of a conversation
	Bytes       int // of the stored items that a request brings in, and of those that a conversation holds
	Tools       int
	SchemaBytes int // of one tool's parameters
	SchemaDepth int
	Choices     int // n
	Stops       int // stop strings, and stop token ids
	StopBytes   int // of one stop string

	Turns int // model calls of one reply

	QuestionBytes int // of the user's text in an [Outline]; 0: it has none
}

// DefaultLimits is generous to clients and safe for a filter.
func DefaultLimits() Limits {
	return Limits{Items: 20_000, Bytes: 32 << 20, Tools: 512, SchemaBytes: 256 << 10, SchemaDepth: 64, Choices: 16, Stops: 64, StopBytes: 1 << 10, Turns: 32}
}

// The defaults of gpt-oss, in place of settings that are empty.
const (
	DefaultIdentity        = "You are ChatGPT, a large language model trained by OpenAI."
	DefaultKnowledgeCutoff = "2024-06"
	DefaultContextLength   = 131072
)

// The words of the settings in [Model].
const (
	ImagesPlaceholder = "placeholder"
	ImagesReject      = "reject"

	DateUTC  = "utc"
	DateNone = "none"

	MalformedRepair = "repair"
	MalformedFail   = "fail"

	ReasoningBoth    = "both"
	ReasoningShort   = "reasoning"
	ReasoningContent = "reasoning_content"

	UnknownToClient = "client"
	UnknownToModel  = "model"
)

// Model is the settings of the model that a request is for. The zero value is
// gpt-oss as OpenAI released it.
type Model struct {
	Upstream        string         // its name at the engine; "": as the client wrote it
	Identity        string         // first line of the system message; "": [DefaultIdentity]
	KnowledgeCutoff string         // "": [DefaultKnowledgeCutoff]
	Effort          harmony.Effort // where a request asks for none; "": medium
	ContextLength   int            // tokens of prompt and output together; 0: [DefaultContextLength]
	Images          string         // "" or "placeholder": a short text stands for a picture; "reject": it is a 400
	Date            string         // "" or "utc": the day the conversation began; "none": no date; else the date itself
	OnMalformed     string         // "" or "repair": keep what can be kept; "fail": an error at the first violation of the format
	UnknownTools    string         // what becomes of a chat's calls to tools that there are not: "" or "client": the client gets them; "model": the model is told, and has another turn
	ReasoningFields string         // chat's names for reasoning: "" or "both", "reasoning", "reasoning_content"
}

// ImagePlaceholder stands in a text in place of a picture, on a line of its own.
const ImagePlaceholder = "[An image was here. This model cannot see images.]"

// Scope is the circumstances of one request.
type Scope struct {
	*Env
	Model     *Model
	Tenant    string // "" where there is only one
	RequestID string // Envoy's x-request-id; "": one is made
	Session   string // the session that the request's headers name; "": they name none
	Unbounded bool   // the prompt may be longer than the context: no model will get it
	// Hold takes room for so many bytes that are read of the store, until the
	// request ends. nil: there is room for all.
	Hold    func(bytes int) *apierror.Error
	Checked bool // the model's engine takes no constraint: what the request promises is checked, as [Turn.NewCheck] does
}

// ID is the request's id behind prefix ("chatcmpl-", "resp_"). A request id
// that is not of letters, digits and -_.: or is longer than 128 bytes is
// replaced.
func (s *Scope) ID(prefix string) string {
	if s.RequestID == "" || len(s.RequestID) > 128 {
		return s.NewID(prefix)
	}
	for i := range len(s.RequestID) {
		if c := s.RequestID[i]; !isNameByte(c) && c != '.' && c != ':' {
			return s.NewID(prefix)
		}
	}
	return prefix + s.RequestID
}

// maxRendered bounds the prompts that no model gets, in tokens: several times
// what any model takes.
const maxRendered = 1 << 20

// promptLimit is how many tokens a prompt may have.
func (s *Scope) promptLimit() int {
	if s.Unbounded {
		return max(maxRendered, s.contextLength())
	}
	return s.contextLength()
}

func (s *Scope) contextLength() int {
	if s.Model.ContextLength > 0 {
		return s.Model.ContextLength
	}
	return DefaultContextLength
}

// Kind says what an item of a conversation, or a part of a reply, is.
type Kind uint8

// The kinds. A reply has only [Reasoning], [Preamble], [Answer] and [Call].
const (
	Instructions Kind = iota + 1 // a system's or developer's text
	User                         // a user's text
	Reasoning                    // chain of thought: analysis without a recipient
	Preamble                     // text for the user before tool calls: commentary without a recipient
	Answer                       // text for the user: the final channel
	Call                         // a tool call
	Result                       // a tool's output
	Unphased                     // the assistant's text that may be a Preamble or an Answer: what follows tells
)

// String is the kind's name, for tests and logs.
func (k Kind) String() string {
	return [...]string{"none", "instructions", "user", "reasoning", "preamble", "answer", "call", "result", "unphased"}[k]
}

// Item is one step of a conversation, in the order in which it was generated:
// of one assistant's turn reasoning, preamble, calls, results.
type Item struct {
	Kind      Kind
	Text      string // of a call its arguments, of a result its output
	CallID    string // of calls and results
	Namespace string // of a call; "" is functions
	Name      string // of a call, as the client calls the tool; "" where the namespace itself is the tool
	Builtin   bool   // of a call: the tool is one of a built-in namespace, see [Input].Builtins
	Path      string // where in the request the item stands, for errors
	Hosted    bool   // of a result: it stands right behind its call, also where other calls of the turn follow
	Summary   bool   // a user's text stands for the conversation before it
}

// Input is what one turn is asked to do.
type Input struct {
	// Instructions stand before the items, unless they are "".
	Instructions string
	// Before stands for the items before Items. Whole gives these: where the
	// conversation is truncated, they are needed after all.
	Before *Prefix
	Whole  func() ([]Item, *apierror.Error)

	Items    []Item
	Continue bool                // the last item, an assistant's reasoning or text, is not complete: go on with it
	Tools    []harmony.Namespace // with the client's own names; plain functions stand in FunctionsNamespace
	Builtins []harmony.Namespace // tools of the system message, such as browser, python and container; one without functions is a tool itself, called with code
	NoCalls  bool                // tools are not offered, and calls the model makes all the same are withheld
	OneCall  bool                // the turn is over after one call
	Choice   Choice              // which tools may and must be called
	Strict   map[ToolName]bool   // tools whose arguments keep to their schemas
	Format   *Format             // of the answer; nil: any text
	Effort   harmony.Effort      // "": the model's default
	Stop     []string            // end the answer where its text first has one of these
	KeepStop bool                // the stop string stays in the text
	Session  string              // the client's own name of what belongs together, before [Scope.Session]; "": it gives none
	Truncate bool                // drop the oldest turns where the conversation is longer than the context

	// Engine is the sampling as the client asked for it. Its ID is the
	// request's, as [Scope.ID] gives it; Prepare adds - and 8 random hex
	// digits. It fills in Model and Prompt, MaxTokens where it is 0, and
	// lowers MaxTokens to what the context leaves.
	Engine engine.Request
}

// FunctionsNamespace is the namespace of plain function tools.
const FunctionsNamespace = "functions"

// Turn is a turn that is ready to be sent to the engine.
type Turn struct {
	Engine *engine.Request

	ctx      context.Context // its values are for the end of the reply
	fault    error
	affinity Affinity
	outline  Outline
	scope    Scope
	tools    *toolset
	noCalls  bool
	oneCall  bool
	stops    []stopPattern
	keepStop bool
	kept     kept
	prefix   []harmony.Token // of the message that the reply continues: its header, for the parser

	step  int    // of the reply's turns, from 0
	id    string // of the first turn's engine request
	asked int    // where in the prompt the model's own message begins
	later *bond  // of the turns that follow; nil: the same
}

// Fault is what could not be read of what earlier requests have kept, for the
// log; nil if nothing went wrong. The turn goes on without it.
func (t *Turn) Fault() error { return t.fault }
