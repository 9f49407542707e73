package write

import (
	"bytes"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// messages are the Harmony messages of a response, for a request with
// enable_response_messages. They are read from the tokens themselves: what the
// model got and what it wrote.
type messages struct {
	input  []harmony.Message // of the first model call
	later  []harmony.Message // what the prompts of later ones have beyond it
	tokens []harmony.Token   // the output of the model call being made
}

// begin begins a model call with a prompt.
func (m *messages) begin(prompt []harmony.Token) {
	m.tokens = m.tokens[:0]
	prompted := promptMessages(prompt)
	if m.input == nil {
		m.input = prompted
		return
	}
	// A later prompt begins with the first one, except where the conversation was cut.
	m.later = prompted[min(len(m.input), len(prompted)):]
}

// promptMessages are the complete messages of a prompt.
func promptMessages(prompt []harmony.Token) []harmony.Message {
	// The prompt ends within the message that the model is to write.
	for i, token := range slices.Backward(prompt) {
		if token == harmony.TokenStart {
			prompt = prompt[:i]
			break
		}
	}
	// A rendering of our own is never malformed.
	msgs, _ := harmony.Parse(harmony.Strict, "", prompt)
	return msgs
}

// append appends the members of a response object.
func (m *messages) append(dst []byte) []byte {
	// The tolerant parser never fails.
	written, _ := harmony.Parse(harmony.Tolerant, harmony.RoleAssistant, m.tokens)
	dst = appendMessages(append(dst, `,"input_messages":`...), m.input)
	return appendMessages(append(dst, `,"output_messages":`...), slices.Concat(m.later, written))
}

// appendMessages appends the list that openai-harmony makes of messages.
func appendMessages(dst []byte, msgs []harmony.Message) []byte {
	text, err := harmony.MarshalConversation(msgs)
	list, _ := bytes.CutPrefix(text, []byte(`{"messages":`))
	// Texts always marshal.
	if err != nil || len(list) == 0 {
		return append(dst, `[]`...)
	}
	return jsontext.AppendCompact(dst, string(list[:len(list)-1]))
}
