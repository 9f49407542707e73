package turn

import "github.com/envoy-harmony/envoy-harmony/filter/turn/item"

// The names of the rooms of this package that other packages use.

// Of a conversation and of a reply, see package item.
type (
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
