package turn

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/output"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/prompt"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// The names of the rooms of this package that other packages use.

type (
	// Kind is the kind of an item, or of a part of a reply.
	Kind = item.Kind
	// Item is an item of a conversation.
	Item = item.Item
	// ToolName is a tool by the client's names.
	ToolName = item.ToolName
	// JoinedTools are tools that join a conversation after its beginning.
	JoinedTools = item.JoinedTools
	// Event reports a step of a part of the reply.
	Event = item.Event
	// CalledTool is a call of the model.
	CalledTool = item.CalledTool
	// Finish is why a choice ended.
	Finish = item.Finish
	// Counts is the numbers of tokens of a choice.
	Counts = item.Counts
)

// The kinds of items, and of the parts of a reply.
const (
	Instructions = item.Instructions
	User         = item.User
	Reasoning    = item.Reasoning
	Preamble     = item.Preamble
	Answer       = item.Answer
	Call         = item.Call
	Result       = item.Result
	Unphased     = item.Unphased
	Tools        = item.Tools
)

// The steps of a part that events report.
const (
	Start = item.Start
	Delta = item.Delta
	End   = item.End
)

// The reasons why a choice ends.
const (
	FinishNone   = item.FinishNone
	FinishStop   = item.FinishStop
	FinishLength = item.FinishLength
	FinishCalls  = item.FinishCalls
)

// FunctionsNamespace is the namespace of plain function tools.
const FunctionsNamespace = item.FunctionsNamespace

// IsOwnCall reports whether the id of a call has the form of those that replies have.
func IsOwnCall(id string) bool { return item.IsOwnCall(id) }

// ModelName returns the name that the model sees for a client's name.
func ModelName(name string) string { return item.ModelName(name) }

type (
	// Env holds the dependencies of turns.
	Env = request.Env
	// Memory keeps small texts between requests.
	Memory = request.Memory
	// Prompts remembers the last prompts of sessions.
	Prompts = request.Prompts
	// Limits bounds one request.
	Limits = request.Limits
	// Model holds the settings of a model.
	Model = request.Model
	// Strictness is what a client says of whether the arguments of a tool must follow its schema.
	Strictness = request.Strictness
	// ReasoningLimits are a model's settings about its reasoning.
	ReasoningLimits = request.ReasoningLimits
	// RequestContext is what a turn needs to know beside the body.
	RequestContext = request.Context
	// Input is the input of one turn.
	Input = request.Input
	// Choice restricts what the model may do with the tools.
	Choice = request.Choice
	// Format is the form that the answer must have.
	Format = request.Format
	// EffortUpdates are the efforts that a conversation sets.
	EffortUpdates = request.EffortUpdates
	// Replies names the reply of a turn, and the one that it is compared with.
	Replies = request.Replies
	// Diagnosis says how a prompt continues earlier ones.
	Diagnosis = request.Diagnosis
	// Summary is the summary of a reply.
	Summary = request.Summary
)

// The defaults of gpt-oss, and the values of the settings in [Model].
const (
	DefaultIdentity        = request.DefaultIdentity
	DefaultKnowledgeCutoff = request.DefaultKnowledgeCutoff
	DefaultContextLength   = request.DefaultContextLength

	ImagesPlaceholder = request.ImagesPlaceholder
	ImagesReject      = request.ImagesReject
	ImagePlaceholder  = request.ImagePlaceholder

	DateUTC  = request.DateUTC
	DateNone = request.DateNone

	MalformedRepair = request.MalformedRepair
	MalformedFail   = request.MalformedFail

	ReasoningBoth    = request.ReasoningBoth
	ReasoningShort   = request.ReasoningShort
	ReasoningContent = request.ReasoningContent

	EventsReasoningText = request.EventsReasoningText
	EventsReasoning     = request.EventsReasoning

	UnknownToClient = request.UnknownToClient
	UnknownToModel  = request.UnknownToModel

	StrictnessNone      = request.StrictnessNone
	StrictnessNames     = request.StrictnessNames
	StrictnessArguments = request.StrictnessArguments
	StrictnessAll       = request.StrictnessAll

	ArgumentsRepair = request.ArgumentsRepair
	ArgumentsPass   = request.ArgumentsPass
	ArgumentsRetry  = request.ArgumentsRetry

	EffortExact      = request.EffortExact
	EffortKeepPrefix = request.EffortKeepPrefix

	HistoryExact     = request.HistoryExact
	HistoryCanonical = request.HistoryCanonical
)

const (
	// MaxRendered bounds what is rendered of a prompt, in tokens.
	MaxRendered = request.MaxRendered
	// Unlimited is the budget of reasoning without a limit.
	Unlimited = request.Unlimited
	// CodeTooCostly is the error code of a request that asks for too much work.
	CodeTooCostly = request.CodeTooCostly
)

// DefaultLimits returns limits that hardly any client reaches and that a filter can afford.
func DefaultLimits() Limits { return request.DefaultLimits() }

// Said is the strictness of a tool that a client has said.
func Said(on bool) Strictness { return request.Said(on) }

// Keep is a job for the store: it writes what later requests need of a choice that ended in tool calls.
type Keep = kept.Keep

// KeepResults returns the job for what tools that ran here have returned, by the ids of their calls; nil if
// there is nothing to keep.
func KeepResults(rc *RequestContext, results map[string]string) *Keep {
	return kept.KeepResults(rc, results)
}

// KeptResults calls take with what is kept of these calls, by their ids, some after the others. It takes
// at most a second, and goes on without what the store does not return by then. The error is that of
// take.
func KeptResults(
	ctx context.Context, rc *RequestContext, calls []string, take func(call, result string) *apierror.Error,
) *apierror.Error {
	return kept.Results(ctx, rc, calls, take)
}

// WorkError returns the error of a work.Account as the client gets it; nil for nil.
func WorkError(param string, err error) *apierror.Error { return request.WorkError(param, err) }

// Prefix is the first items of a conversation, rendered.
type Prefix = prompt.Prefix

// Extend returns the prefix of the items of before followed by items. An error means that no turn with
// these items can be prepared, that they are longer than the model's context, or that the store could not be
// read. The prefix keeps no part of the items' texts.
func Extend(ctx context.Context, rc *RequestContext, before *Prefix, items []Item) (*Prefix, error) {
	return prompt.Extend(ctx, rc, before, items)
}

type (
	// Reader turns the tokens of one choice into events.
	Reader = output.Reader
	// StopMatch is the stop condition of the client that ended a choice.
	StopMatch = output.StopMatch
	// Watcher finds where the model has to be interrupted.
	Watcher = output.Watcher
	// Interruption is why the model is interrupted.
	Interruption = output.Interruption
	// Check verifies the answer to a model call before the client is sent any of it.
	Check = output.Check
	// Verdict is the result of a [Check] so far.
	Verdict = output.Verdict
	// Unwrapper finds the text of a custom tool's call in the call's arguments.
	Unwrapper = output.Unwrapper
)

// The interruptions that are not for reasoning.
const (
	NotInterrupted = output.NotInterrupted
	InvalidCall    = output.InvalidCall
)

// The verdicts of a [Check] that have consequences.
const (
	Undecided = output.Undecided
	Complete  = output.Complete
	Unkept    = output.Unkept
	Unchecked = output.Unchecked
)

// MaxLogprobs is the most log probabilities that are collected for a choice, in bytes of their JSON.
const MaxLogprobs = output.MaxLogprobs

// LogprobsTooLarge returns the error for log probabilities above [MaxLogprobs] in a reply that is one object.
// param is the request field that asks for them, limit the one that limits the output.
func LogprobsTooLarge(param, limit string) *apierror.Error {
	return output.LogprobsTooLarge(param, limit)
}

// AppendLogprobs appends OpenAI's entry for each token, followed by a comma.
func AppendLogprobs(dst []byte, logprobs []item.Logprob) []byte {
	return output.AppendLogprobs(dst, logprobs)
}

// AppendLogprobsArray appends the array of the entries that [AppendLogprobs] made.
func AppendLogprobsArray(dst, entries []byte) []byte { return output.AppendLogprobsArray(dst, entries) }
