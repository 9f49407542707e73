package harmony

import "encoding/json"

// Role is the role of a message's author.
type Role string

// The roles of the Harmony format.
const (
	RoleSystem    Role = "system"
	RoleDeveloper Role = "developer"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// The channels of assistant messages.
const (
	ChannelAnalysis   = "analysis"   // chain of thought
	ChannelCommentary = "commentary" // tool calls and preambles
	ChannelFinal      = "final"      // the answer
)

// ContentTypeJSON is the content type of a constrained JSON call as the
// reference reads and writes it. A tolerant [Parser] returns "json" instead,
// and calls in the history are rendered with "json".
const ContentTypeJSON = "<|constrain|>json"

// Message is one message of a conversation. An empty string means that a field
// is absent.
type Message struct {
	Role Role
	// Name is the author's; for tools the full name, such as functions.get_weather.
	Name string
	// Recipient is the addressee; "" means everyone.
	Recipient   string
	Channel     string
	ContentType string
	// RecipientLast has the recipient stand after the channel, as models write it. The reference
	// and most messages have it before.
	RecipientLast bool

	Content []Content

	// Written is the whole message as the model wrote it, from <|start|> to the token that ends
	// it. If it is not empty, a [Renderer] copies it, and the other fields only say what the
	// message is. It must be well formed: [ReadWritten] returns it.
	Written []Token
}

// Content is a part of a message: [Text], [*SystemContent] or
// [*DeveloperContent].
type Content interface{ isContent() }

// Text is ordinary text. Text that spells a special token stays ordinary text.
type Text string

// Effort is the reasoning effort requested from the model.
type Effort string

// The efforts as they appear in the system message.
const (
	EffortLow    Effort = "low"
	EffortMedium Effort = "medium"
	EffortHigh   Effort = "high"
)

// SystemContent is the content of the system message. Empty fields are not
// rendered.
type SystemContent struct {
	// Identity is the first line, which says who the model is.
	Identity string
	// KnowledgeCutoff is such as 2024-06.
	KnowledgeCutoff string
	// StartDate is the date of the conversation, such as 2025-06-28.
	StartDate string
	Effort    Effort

	// Channels are the valid channels; if empty, the section is not rendered.
	Channels []string
	// ChannelRequired adds "Channel must be included for every message."
	ChannelRequired bool

	// Tools are the built-in tools, such as browser and python.
	Tools []Namespace
}

// DeveloperContent is the content of a developer message.
type DeveloperContent struct {
	Instructions    string
	Tools           []Namespace
	ResponseFormats []ResponseFormat
}

// Namespace is a group of tools. The recipient of a call is "namespace.tool",
// or only "namespace" if the namespace has no tools (python).
type Namespace struct {
	Name        string
	Description string
	Tools       []Tool
}

// Tool is one function. Parameters is its JSON Schema; if empty, the function
// has no parameters.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage
}

// ResponseFormat describes the format of the final answer in the section "#
// Response Formats".
type ResponseFormat struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

func (Text) isContent()              {}
func (*SystemContent) isContent()    {}
func (*DeveloperContent) isContent() {}
