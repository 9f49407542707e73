// Package turn implements one turn of the model for all APIs: a conversation,
// tools and sampling parameters become a token request, and the engine's tokens
// become reasoning, text and tool calls.
//
// An API decodes its request into an [Input]: items, tools, choices and limits, all with the
// client's names. [RequestContext.Prepare] makes a [Turn] of it, with the model call in
// Turn.Engine. Of each choice of the engine's output a [Reader] makes [Event]s, which the API
// turns into its own reply. If the reply goes on, because tools were run, [Turn.Continue]
// returns its next turn. See the example.
//
// Beside the Reader two others look at the same tokens: a [Watcher] may interrupt the model before
// the client sees them, and a [Check] decides whether the output is what the request demands,
// for engines that cannot enforce it.
//
// The package knows Harmony, and what gpt-oss was trained to do. It knows no JSON that belongs
// to one API, apart from the fields that all of them have, and no connection: what it reads
// from the store it reads through [Memory], in Prepare alone. A Turn and its readers do no
// I/O.
package turn

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Env holds the dependencies of turns. It is shared by all requests, and safe for
// concurrent use if its members are.
type Env struct {
	Renderer *harmony.Renderer
	Now      func() time.Time
	// Prefix and at least 128 random bits, of [A-Za-z0-9_-].
	NewID func(prefix string) string
	// Nil: nothing is kept between requests.
	Memory Memory
	// What prompts are compared with; nil: none is.
	Prompts Prompts
	Limits  Limits
	// KeptTTL is how long Memory keeps texts; 0: for ever.
	KeptTTL time.Duration
}

// Memory keeps small texts between requests: the reasoning of unfinished tool
// turns, for clients that do not send it back, what the model wrote in them, and the
// date on which a conversation began. It may forget texts. The texts of a tenant are visible to
// that tenant only. If it fails, a turn goes on without it. A store.Store is a
// Memory.
type Memory interface {
	// Texts returns the texts kept under these names, by name.
	Texts(ctx context.Context, tenant string, names []string) (map[string]string, error)
	// PutTexts keeps texts under their names and replaces earlier ones.
	PutTexts(ctx context.Context, tenant string, texts map[string]string) error
	// PutTextIfAbsent keeps text under name unless there is one, and returns the
	// text that is kept.
	PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error)
}

// Prompts remembers the last prompts of sessions. A diagnosis.Prompts is one.
type Prompts interface {
	// Find compares a prompt with those of its session.
	Find(name diagnosis.Session, now *diagnosis.Print) diagnosis.Finding
	// FindReply compares a prompt with the one that a reply was made for.
	FindReply(name diagnosis.Session, id string, now *diagnosis.Print) diagnosis.Finding
	// Keep remembers a prompt that an engine has begun to answer. id is the reply's.
	Keep(name diagnosis.Session, id string, now *diagnosis.Print)
	// Followed takes the output to a prompt in, with the print of both.
	Followed(name diagnosis.Session, now, followed *diagnosis.Print) bool
	// Answered notes which replica has answered a prompt.
	Answered(name diagnosis.Session, now *diagnosis.Print, replica string)
}

// Limits bounds one request.
type Limits struct {
	// Messages, calls and results of a conversation.
	Items int
	// Of the stored items that a request brings in, and of those that a conversation holds.
	Bytes int
	Tools int
	// Of one tool's parameters.
	SchemaBytes int
	SchemaDepth int
	// N.
	Choices int
	// Stop strings, and stop token ids.
	Stops int
	// Of one stop string.
	StopBytes int

	// Model calls of one reply.
	Turns int

	// Of [RoutingInfo].LastUserText; 0: there is none.
	LastUserTextBytes int
}

// DefaultLimits returns limits that hardly any client reaches and that a filter
// can afford.
func DefaultLimits() Limits {
	return Limits{
		Items: 20_000, Bytes: 32 << 20, Tools: 512, SchemaBytes: 256 << 10, SchemaDepth: 64, Choices: 16, Stops: 64,
		StopBytes: 1 << 10, Turns: 32,
	}
}

// The defaults of gpt-oss, which replace empty settings.
const (
	DefaultIdentity        = "You are ChatGPT, a large language model trained by OpenAI."
	DefaultKnowledgeCutoff = "2024-06"
	DefaultContextLength   = 131072
)

// The values of the settings in [Model].
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

	EventsReasoningText = "reasoning_text" // response.reasoning_text.delta and .done
	EventsReasoning     = "reasoning"      // response.reasoning.delta and .done

	UnknownToClient = "client"
	UnknownToModel  = "model"

	ArgumentsRepair = "repair"
	ArgumentsPass   = "pass"
	ArgumentsRetry  = "retry"

	EffortExact      = "exact"
	EffortKeepPrefix = "keep_prefix"
)

// Model holds the settings of the model that a request is for. The zero value is
// gpt-oss as OpenAI released it.
type Model struct {
	// Its name at the engine; "": the client's.
	Upstream string `json:"upstream,omitempty"`
	// First line of the system message; "": [DefaultIdentity].
	Identity string `json:"identity,omitempty"`
	// "": [DefaultKnowledgeCutoff].
	KnowledgeCutoff string `json:"knowledge_cutoff,omitempty"`
	// Of requests without one; "": medium.
	Effort harmony.Effort `json:"reasoning_effort,omitempty"`
	// Efforts that a conversation sets after its beginning: "" or "exact": the prompt's head is
	// rewritten; "keep_prefix": it stays, and a budget of reasoning lowers the effort.
	EffortUpdates string `json:"effort_updates,omitempty"`
	// Tokens of prompt and output together; 0: [DefaultContextLength].
	ContextLength int `json:"context_length,omitempty"`
	// "" or "placeholder": a short text replaces an image; "reject": the request is a 400.
	Images string `json:"images,omitempty"`
	// "" or "utc": the day the conversation began; "none": no date; else the date itself.
	Date string `json:"date,omitempty"`
	// Malformed output: "" or "repair": it is repaired; "fail": it is an error.
	OnMalformed string `json:"on_malformed,omitempty"`
	// Arguments that are no JSON object: "" or "repair": they are repaired where there is only one
	// way; "pass": they are passed on as they are; "retry": what cannot be repaired, or breaks the
	// tool's schema, is asked for again.
	ToolArguments string `json:"tool_arguments,omitempty"`
	// A chat's calls of unknown tools: "" or "client": the client gets them; "model": the model is
	// told, and has another turn.
	UnknownTools string `json:"unknown_tools,omitempty"`
	// The members of the tools' schemas are sorted.
	Canonical bool `json:"canonical_schemas,omitempty"`
	// How the model's own steps are rendered: "exact": as it wrote them, where they still mean the
	// same; "" or "canonical": all in one form.
	History   string          `json:"history,omitempty"`
	Reasoning ReasoningLimits `json:"reasoning,omitzero"`
	// Chat's fields for reasoning: "" or "both", "reasoning", "reasoning_content".
	ReasoningFields string `json:"reasoning_fields,omitempty"`
	// The names of Responses' events of reasoning text: "" or "reasoning_text", those that OpenAI's
	// clients know; "reasoning", those of Open Responses.
	ReasoningEvents string `json:"reasoning_events,omitempty"`
}

// ImagePlaceholder replaces an image in a text, on a line of its own.
const ImagePlaceholder = "[An image was here. This model cannot see images.]"

// RequestContext is what a turn needs to know about the request beside its body.
//
// It is large because each stage of preparing a turn is a method.
type RequestContext struct {
	*Env
	Model *Model
	// "" if there is only one.
	Tenant string
	// Envoy's x-request-id; "": an id is generated.
	RequestID string
	// The session that a header names; "": none does.
	Session string
	// The prompt may be longer than the model's context, because no model gets it.
	Unbounded bool
	// Reserve takes room for so many bytes of memory beside the body, before they are
	// made: items that are read of the store, what is made of them, answers, what the
	// verifying of schemas takes. They are returned when the request ends, or by a number
	// less than 0. nil: there is room for all.
	Reserve func(bytes int) *apierror.Error
	// Work counts what is computed for the request beyond what takes time in proportion to
	// its bytes. It respects the context of who decodes the request; others, such as jobs,
	// respect their own by [RequestContext.Within]. nil: it is not bounded.
	Work *work.Account
	// event is what checks take of Work while an event of the reply is handled; nil: none has
	// yet. See [Turn.BeginEvent].
	event *work.Account
	// The model's engine accepts no constraint: a [Check] verifies its output.
	Checked bool
	// PromptTokens is how many tokens the prompt of a turn had whose output is there
	// already, if its engine had another prompt; 0: as many as the turn's own.
	PromptTokens int
}

// Room is Reserve, which may be nil.
func (rc *RequestContext) Room(bytes int) *apierror.Error {
	if rc.Reserve == nil {
		return nil
	}
	return rc.Reserve(bytes)
}

// ID returns prefix ("chatcmpl-", "resp_") and the request's id. A request id of
// more than 128 bytes, or with other characters than letters, digits and -_.: is
// replaced.
func (rc *RequestContext) ID(prefix string) string {
	if rc.RequestID == "" || len(rc.RequestID) > 128 {
		return rc.NewID(prefix)
	}

	for i := range len(rc.RequestID) {
		if c := rc.RequestID[i]; !item.IsNameByte(c) && c != '.' && c != ':' {
			return rc.NewID(prefix)
		}
	}
	return prefix + rc.RequestID
}

// MaxRendered bounds what is rendered of a prompt, in tokens: several times what any
// model takes.
const MaxRendered = 1 << 20

// renderLimit is how many tokens of a prompt are rendered. A prompt is counted beyond the
// context too: clients take the number in the error, and drop as much as is too much.
func (rc *RequestContext) renderLimit() int { return max(MaxRendered, rc.ContextLength()) }

// ContextLength returns how many tokens prompt and output may have together.
func (rc *RequestContext) ContextLength() int {
	if rc.Model.ContextLength > 0 {
		return rc.Model.ContextLength
	}
	return DefaultContextLength
}

func isWritten(i item.Item) bool { return i.Written != nil }

// Input is the input of one turn.
//
// It is large because it has what all APIs can say about one.
type Input struct {
	// The conversation.

	// Instructions precede the items; "": there are none.
	Instructions string
	// Before replaces the items before Items. Whole returns these items; it is
	// called if the conversation has to be truncated.
	Before *Prefix
	Whole  func() ([]item.Item, *apierror.Error)
	Items  []item.Item
	// The last item, an assistant's reasoning or text, is incomplete: the model continues it.
	Continue bool
	// Drop the oldest turns if the conversation is longer than the context.
	Truncate bool
	// ShownID returns the id by which the client knows a call, for errors; nil: they are the same.
	ShownID func(callID string) string
	// The session that the body names, which precedes [RequestContext].Session; "": it names none.
	Session string
	// The reply, and the one that it is compared with.
	Replies Replies

	// The tools that are offered, and what may be done with them.

	// With the client's names; plain functions are in FunctionsNamespace.
	Tools []harmony.Namespace
	// Tools of the system message, such as browser, python and container; a namespace without
	// functions is a tool itself, called with code.
	Builtins []harmony.Namespace
	// Tools that may join by [Turn.Continue], see [JoinedTools]; they are not rendered, but calls
	// of them are known.
	Deferred []harmony.Namespace
	// Withdrawn are tools that stay in the prompt, whose prefix engines have cached, and that must
	// not be called any more. Who makes the reply answers calls of them.
	Withdrawn map[item.ToolName]bool
	// Tools are not offered, and calls are withheld.
	NoCalls bool
	// The turn ends after one call.
	OneCall bool
	// Which tools may and must be called.
	Choice Choice
	// Tools whose arguments are not repaired: they need not be JSON.
	AsIs map[item.ToolName]bool
	// Tools whose arguments must follow their schemas.
	Strict map[item.ToolName]bool
	// Of the arguments of tools, which an engine's grammar enforces; of own tools only.
	Grammars map[item.ToolName]constraint.Grammar

	// What the model writes, and what of it the client gets.

	// Of the answer; nil: any text.
	Format *Format
	// "": the model's default. NoEffort is that it is none, which is low, and hides the reasoning.
	Effort   harmony.Effort
	NoEffort bool
	// EffortUpdates are the efforts that the conversation sets, which precede the request's own.
	EffortUpdates EffortUpdates
	// OptedOut is that the request switches reasoning off: the effort is low, whatever else
	// says what it is, and the reply has nothing of the reasoning.
	OptedOut bool
	// HideReasoning is that the reply has nothing of the reasoning.
	HideReasoning bool
	// Most tokens of reasoning in a turn; nil, [Unlimited]: the request has no limit.
	Budget *int
	// verbosity is what the model is told of the answer's length.
	verbosity string
	// The answer ends where its text first contains one of these.
	Stop []string
	// The stop string stays in the text.
	KeepStop bool
	// IgnoreEOS makes the output as long as its limit of tokens; see [Input.FinishLength].
	IgnoreEOS bool

	// Engine holds the sampling parameters of the request. Of its ID the Request is the result
	// of [RequestContext.ID]; Prepare sets the rest.
	// Prepare sets Model and Prompt. It sets MaxTokens if it is 0, and limits it to
	// what the context leaves.
	Engine engine.Request
}

// Turn is a prepared turn. It is used by one goroutine.
//
// It is large because what Prepare finds out is kept for readers, checks and later turns.
type Turn struct {
	// Engine is the turn's model call.
	Engine *engine.Request

	// Of the request.
	rc       RequestContext
	fault    error
	affinity Affinity
	routing  RoutingInfo

	constraintParam string

	// What the output is read with.

	tools    *toolset
	noCalls  bool
	oneCall  bool
	stops    stops
	keepStop bool
	verifier verifier
	watching watchRules
	// Of the following turns; nil: they have the same spec.
	later *laterSpec
	// The header of the message that the reply continues, for the parser, and all of the message
	// that the prompt has.
	prefix []harmony.Token
	begun  []harmony.Token

	// What the turn is within its reply.

	// Of the turn in its reply, from 0.
	number int
	// Where in the prompt the model's own message begins.
	completionStart int
	// What the turn's choice keeps; nil while it goes on, and if it keeps nothing.
	kept *Keep
	// What earlier choices have kept, and is due to be kept on; the prefix that has some of them.
	due    []keptChoice
	before *Prefix
	// The oldest turns of the conversation are left out.
	truncated bool
	// How the prompt is compared with earlier ones.
	diagnosed diagnosed
}

// PromptTokens returns how many tokens the prompt has, for the usage of a reply.
func (t *Turn) PromptTokens() int {
	if n := t.rc.PromptTokens; n > 0 {
		return n
	}
	return len(t.Engine.Prompt)
}

// Fault returns why texts of earlier requests could not be read, for the log; nil
// if nothing went wrong. The turn goes on without them.
func (t *Turn) Fault() error { return t.fault }
