package telemetry

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// maxContent bounds the text of one attribute with content, in bytes. Of a prompt
// the latest messages are kept.
const maxContent = 64 << 10

// message is a message as the conventions write it in gen_ai.input.messages and
// gen_ai.output.messages.
type message struct {
	Role  harmony.Role `json:"role"`
	Name  string       `json:"name,omitempty"`
	Parts []part       `json:"parts"`
}

// part is a part of a message: text, reasoning, a tool call or its response.
type part struct {
	Type      string `json:"type"`
	Content   string `json:"content,omitempty"`
	Name      string `json:"name,omitempty"`      // of a tool call
	Arguments string `json:"arguments,omitempty"` // of a tool call, as the model wrote them
	Response  string `json:"response,omitempty"`  // of a tool
}

// inputMessages is a prompt as JSON. It ends with the header of the reply, which is
// no message.
func inputMessages(prompt []harmony.Token) string {
	all := messages(prompt, "")
	if n := len(all); n > 0 && all[n-1].empty() {
		all = all[:n-1]
	}
	// The latest messages are the ones that explain the output.
	size := 0
	for i := range slices.Backward(all) {
		if size += all[i].size(); size > maxContent {
			return jsonOf(all[i+1:])
		}
	}
	return jsonOf(all)
}

// outputMessages is the output of all choices as JSON.
func outputMessages(output map[int][]harmony.Token) string {
	var all []message
	size := 0
	for _, choice := range slices.Sorted(maps.Keys(output)) {
		for _, m := range messages(output[choice], harmony.RoleAssistant) {
			if size += m.size(); size > maxContent {
				return jsonOf(all)
			}
			all = append(all, m)
		}
	}
	return jsonOf(all)
}

func jsonOf(list []message) string {
	// Readers of the attribute expect a list, and not null.
	if list == nil {
		list = []message{}
	}
	// It has strings only, and cannot fail.
	b, _ := json.Marshal(list)
	return string(b)
}

// messages are the messages of tokens. first is the role of a message whose header
// has begun before them; "": they begin with a header.
func messages(ids []harmony.Token, first harmony.Role) []message {
	var list []message
	var head harmony.Header
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			list = append(list, messageOf(head, text.String()))
		}
		text.Reset()
	}

	take := func(events []harmony.Event) {
		for _, e := range events {
			switch e.Kind {
			case harmony.MessageStart:
				flush()
				head = *e.Header
			case harmony.Delta:
				text.Write(e.Text)
			case harmony.MessageEnd:
				flush()
			}
		}
	}

	// What the model wrote is shown as it would be read, malformed or not.
	parser := harmony.NewParser(harmony.Tolerant, first)
	for _, id := range ids {
		// The parser is tolerant: it returns no errors.
		events, _ := parser.Push(id)
		take(events)
	}

	events, _ := parser.Close()
	take(events)
	flush()
	return list
}

func messageOf(h harmony.Header, text string) message {
	m := message{Role: h.Role, Name: h.Name}
	switch {
	case h.Role == harmony.RoleTool:
		m.Parts = []part{{Type: "tool_call_response", Response: text}}
	case h.Recipient != "":
		m.Parts = []part{{Type: "tool_call", Name: h.Recipient, Arguments: text}}
	case h.Channel == harmony.ChannelAnalysis:
		m.Parts = []part{{Type: "reasoning", Content: text}}
	default:
		m.Parts = []part{{Type: "text", Content: text}}
	}

	return m
}

func (m *message) empty() bool { return m.size() == 0 }

// size is the bytes of the message's text.
func (m *message) size() int {
	n := 0
	for _, p := range m.Parts {
		n += len(p.Content) + len(p.Arguments) + len(p.Response)
	}
	return n
}
