package turn

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// The names of the rooms of this package that other packages use.

type (
	// Of a conversation and of a reply, see package item.

	Kind        = item.Kind
	Item        = item.Item
	ToolName    = item.ToolName
	JoinedTools = item.JoinedTools
	Event       = item.Event
	CalledTool  = item.CalledTool
	Finish      = item.Finish
	Counts      = item.Counts
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
	// Of a request, see package request.

	Env             = request.Env
	Memory          = request.Memory
	Prompts         = request.Prompts
	Limits          = request.Limits
	Model           = request.Model
	ReasoningLimits = request.ReasoningLimits
	RequestContext  = request.Context
	Input           = request.Input
	Choice          = request.Choice
	Format          = request.Format
	EffortUpdates   = request.EffortUpdates
	Replies         = request.Replies
	Diagnosis       = request.Diagnosis
	Summary         = request.Summary
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

// WorkError returns the error of a work.Account as the client gets it; nil for nil.
func WorkError(param string, err error) *apierror.Error { return request.WorkError(param, err) }
