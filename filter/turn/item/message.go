package item

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// NoArguments are the arguments of a call that has none.
const NoArguments = "{}"

// ShownArguments returns the arguments of a call as the model sees them. Those that are empty
// or null are an empty object: the model would learn that calls need no arguments in JSON.
// JSON has the one spelling; anything else is what the model wrote.
func ShownArguments(call *Item) string {
	if call.Tool().IsCode() {
		return call.Text
	}

	switch strings.TrimSpace(call.Text) {
	case "", "null", `""`:
		return NoArguments
	}
	return jsontext.Shown(call.Text)
}

// KindOf returns the kind of a message without a recipient.
func KindOf(channel string) Kind {
	switch channel {
	case harmony.ChannelAnalysis:
		return Reasoning
	case harmony.ChannelCommentary:
		return Preamble
	}
	return Answer
}

// Callee is the tool of a call, for rendering the call's output.
type Callee struct {
	Recipient string
	Builtin   bool
	// Before the call.
	Answers int
	// The index of the call; it is negative if a prefix has the call.
	At int
	// Of the call.
	Header HeaderForm
}

// CalleeOf returns the tool of a call that stands at an index, after so many answers.
func CalleeOf(call *Item, answers, at int) Callee {
	return Callee{Recipient: Recipient(call.Tool()), Builtin: call.Builtin, Answers: answers, At: at}
}

// form returns the channel of the call and its output, and the content type of the
// call. Built-in tools are part of the reasoning.
func (c Callee) form() (channel, contentType string) {
	if c.Builtin {
		return harmony.ChannelAnalysis, "code"
	}
	return harmony.ChannelCommentary, "json"
}

// Message returns an item in the form that the model was trained on; by is the
// tool of a call or result.
func Message(item Item, by Callee) harmony.Message {
	if item.Written != nil {
		return *item.Written
	}
	text := []harmony.Content{harmony.Text(item.Text)}

	switch item.Kind {
	case Instructions:
		return harmony.Message{
			Role:    harmony.RoleDeveloper,
			Content: []harmony.Content{&harmony.DeveloperContent{Instructions: item.Text}},
		}
	case Reasoning:
		return harmony.Message{Role: harmony.RoleAssistant, Channel: harmony.ChannelAnalysis, Content: text}
	case Preamble:
		return harmony.Message{Role: harmony.RoleAssistant, Channel: harmony.ChannelCommentary, Content: text}
	case Answer:
		return harmony.Message{Role: harmony.RoleAssistant, Channel: harmony.ChannelFinal, Content: text}
	case Call:
		channel, contentType := by.form()
		text[0] = harmony.Text(ShownArguments(&item))
		call := harmony.Message{
			Role: harmony.RoleAssistant, Recipient: by.Recipient, Channel: channel, ContentType: contentType,
			Content: text,
		}
		by.Header.apply(&call)
		return call
	case Result:
		channel, _ := by.form()
		return harmony.Message{
			Role: harmony.RoleTool, Name: by.Recipient, Recipient: string(harmony.RoleAssistant), Channel: channel,
			Content: text,
		}
	}
	return harmony.Message{Role: harmony.RoleUser, Content: text}
}

// Calls reports whether a message is a call of a tool, in the tool's own name and on the
// channel on which such calls are made: from another one it would disappear with an answer.
func Calls(m *harmony.Message, tool ToolName) bool {
	channel, _ := Callee{Builtin: tool.Builtin}.form()
	return m.Recipient == Recipient(tool) && m.Channel == channel
}
