package harmony

import "encoding/json"

// Role says who a message is from.
type Role string

// The roles of the Harmony format.
const (
	RoleSystem    Role = "system"
	RoleDeveloper Role = "developer"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// The channels an assistant message may stand on.
const (
	ChannelAnalysis   = "analysis"   // chain of thought
	ChannelCommentary = "commentary" // tool calls and preambles
	ChannelFinal      = "final"      // the answer
)

// ContentTypeJSON is the content type of a constrained JSON call in the form
// the reference reads and writes it. A tolerant [Parser] gives it as json, and
// json is what a call in history is rendered with.
const ContentTypeJSON = "<|constrain|>json"

// Message is one message of a conversation. Empty strings mean absent.
type Message struct {
	Role        Role
	Name        string // of the author; a tool's full name, such as functions.get_weather
	Recipient   string // whom the message addresses; "" is everybody
	Channel     string
	ContentType string
	Content     []Content
}

// Content is a part of a message: [Text], [*SystemContent] or
// [*DeveloperContent].
type Content interface{ isContent() }

// Text is ordinary text. Text that spells a special token stays text.
type Text string

// Effort is how long the model is asked to reason.
type Effort string

// The efforts as the system message spells them.
const (
	EffortLow    Effort = "low"
	EffortMedium Effort = "medium"
	EffortHigh   Effort = "high"
)

// SystemContent is the content of the system message. Empty fields are left
// out of the rendered text.
type SystemContent struct {
	Identity        string // first line: who the model is
	KnowledgeCutoff string // such as 2024-06
	StartDate       string // the conversation's date, such as 2025-06-28
	Effort          Effort
	Channels        []string    // valid channels; empty: the section is left out
	ChannelRequired bool        // adds "Channel must be included for every message."
	Tools           []Namespace // built-in tools: browser, python and others
}

// DeveloperContent is the content of a developer message.
type DeveloperContent struct {
	Instructions    string
	Tools           []Namespace
	ResponseFormats []ResponseFormat
}

// Namespace groups tools; a tool's recipient is namespace.tool, or the
// namespace alone where it has no tools (python).
type Namespace struct {
	Name        string
	Description string
	Tools       []Tool
}

// Tool is one function. Parameters is its JSON Schema; empty means the
// function takes nothing.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage
}

// ResponseFormat announces the form of the final answer under
// "# Response Formats".
type ResponseFormat struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

func (Text) isContent()              {}
func (*SystemContent) isContent()    {}
func (*DeveloperContent) isContent() {}
