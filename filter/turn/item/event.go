package item

import (
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Step is the step of a part that an event reports.
type Step uint8

// The steps. A part begins with Start and ends with End, and no other part of
// the choice begins in between. A text or reasoning part has at least one
// Delta; a call may have none.
const (
	Start Step = iota + 1
	Delta
	End
)

// Event reports a step of a part of the reply: reasoning, a preamble, an answer,
// or a call.
type Event struct {
	Step Step
	Kind Kind
	// Of a Delta: whole characters of UTF-8, valid until the event has been handled.
	Text []byte
	// Of a call's events.
	Call *CalledTool
	// Logprobs are the tokens whose text begins in the Text of an answer's Delta, if
	// the request asks for them. They are valid as long as Text. Repaired text has
	// none.
	Logprobs []Logprob
	// Of an End: the engine ended the choice within the part because of its length, or the
	// reasoning was interrupted.
	Cut bool
}

// CalledTool is a call of the model, with the client's names.
type CalledTool struct {
	// Among the calls of the choice.
	Index int
	// "call_" and random letters.
	ID string
	// FunctionsNamespace for plain functions, "" for unknown tools.
	Namespace string
	// "" if a built-in namespace itself is the tool.
	Name string
	// The tool is one of Input.Builtins.
	Builtin bool
}

// IsCode reports whether the call's text is code and not JSON, because the tool is
// a built-in namespace itself.
func (c *CalledTool) IsCode() bool { return c.Tool().IsCode() }

// Tool returns the tool that is called.
func (c *CalledTool) Tool() ToolName { return ToolName{c.Namespace, c.Name, c.Builtin} }

// Finish is why a choice ended. The values are the finish_reason values of Chat
// Completions, which has none for FinishError.
type Finish string

// The reasons. FinishLength takes precedence over FinishCalls, and FinishCalls
// over FinishStop.
const (
	FinishNone   Finish = ""
	FinishStop   Finish = "stop"
	FinishLength Finish = "length"
	FinishCalls  Finish = "tool_calls"
	FinishError  Finish = "error" // the output is malformed, or violates its spec
)

// Counts is the numbers of tokens of a choice. Content is the tokens between a
// message's header and its end. Output minus the other three is headers and ends.
type Counts struct {
	// All.
	Output int
	// Content of analysis without a recipient.
	Reasoning int
	// Content of tool calls.
	Call int
	// Content of preambles and answers.
	Text int
}

// Logprob is a token of an answer's text with its log probability.
type Logprob struct {
	Token harmony.Token
	engine.Logprob
}
