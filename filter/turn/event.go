package turn

// Step says which point of a part an event tells of.
type Step uint8

// The steps. A part begins with Start and ends with End, and no other part of
// the choice begins in between. A text or reasoning part has at least one
// Delta; a call may have none.
const (
	Start Step = iota + 1
	Delta
	End
)

// Event is news of a part of the reply: reasoning, a preamble, an answer, or a
// call.
type Event struct {
	Step Step
	Kind Kind
	Text []byte      // of a Delta: whole characters of UTF-8, valid until the event has been handled
	Call *CalledTool // of a call's events
	// Logprobs are, of an answer's Delta, the tokens whose text begins in Text, if
	// the request asks for them; valid as Text is. Text that was mended has none.
	Logprobs []Logprob
	Cut      bool // of an End: the engine ended the choice, for its length, within the part
}

// CalledTool is a call of the model, by the client's names.
type CalledTool struct {
	Index     int    // among the calls of the choice
	ID        string // "call_" and random letters
	Namespace string // FunctionsNamespace for plain functions, "" where the request has no such tool
	Name      string // "" where a built-in namespace itself is the tool
	Builtin   bool   // the tool is one of [Input].Builtins
	Refused   bool   // the request does not let the model call the tool
}

// IsCode tells whether the call's text is code and not JSON: that of a built-in
// namespace that itself is the tool.
func (c *CalledTool) IsCode() bool { return c.Builtin && c.Name == "" }

// Finish is why a choice ended, in the words of chat, which has no word for
// the last.
type Finish string

// The reasons. Length wins over calls, calls over stop.
const (
	FinishNone   Finish = ""
	FinishStop   Finish = "stop"
	FinishLength Finish = "length"
	FinishCalls  Finish = "tool_calls"
	FinishError  Finish = "error" // the output broke the format and the model's setting is MalformedFail
)

// Counts is the tokens of a choice. Content is what stands between a
// message's header and its end; Output less the three is headers and ends.
type Counts struct {
	Output    int // all
	Reasoning int // content of analysis without a recipient
	Call      int // content of tool calls
	Text      int // content of preambles and answers
}

// Summary is what a reply has come to, for metrics and the log.
type Summary struct {
	Prompt int    // tokens of the prompt
	Cached int    // of these, from the engine's prefix cache; engine.Unknown if it did not tell
	Counts Counts // of all choices together
	Finish Finish // of the first choice; FinishNone while it goes on
	Calls  int    // tool calls handed out
	// ModelCalls is how many model calls the reply has had.
	ModelCalls int
	Repairs    map[string]int // repairs of malformed output by kind; nil if there were none
}
