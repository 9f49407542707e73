package turn

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
	Text []byte      // of a Delta: whole characters of UTF-8, valid until the event has been handled
	Call *CalledTool // of a call's events
	// Logprobs are the tokens whose text begins in the Text of an answer's Delta, if
	// the request asks for them. They are valid as long as Text. Repaired text has
	// none.
	Logprobs []Logprob
	Cut      bool // of an End: the engine ended the choice within the part because of its length, or the reasoning was interrupted
}

// CalledTool is a call of the model, with the client's names.
type CalledTool struct {
	Index     int    // among the calls of the choice
	ID        string // "call_" and random letters
	Namespace string // FunctionsNamespace for plain functions, "" for unknown tools
	Name      string // "" if a built-in namespace itself is the tool
	Builtin   bool   // the tool is one of [Input].Builtins
	Refused   bool   // the request does not let the model call the tool
}

// IsCode reports whether the call's text is code and not JSON, because the tool is
// a built-in namespace itself.
func (c *CalledTool) IsCode() bool { return c.Builtin && c.Name == "" }

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
	Output    int // all
	Reasoning int // content of analysis without a recipient
	Call      int // content of tool calls
	Text      int // content of preambles and answers
}

// Summary is the summary of a reply, for metrics and the log.
type Summary struct {
	Prompt int    // tokens of the prompt
	Cached int    // of these, from the engine's prefix cache; engine.Unknown if not reported
	Counts Counts // of all choices together
	Finish Finish // of the first choice; FinishNone while it goes on
	Calls  int    // tool calls emitted
	// ModelCalls is how many model calls the reply has had.
	ModelCalls int
	Repairs    map[string]int // repairs of malformed output by kind; nil if there were none
	Diagnosis  *Diagnosis     // of the first turn's prompt; nil: there is none
}
