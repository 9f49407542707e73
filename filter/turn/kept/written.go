package kept

import (
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A prompt that goes on with a conversation begins with the tokens that the engine has in its
// cache: the prompt before, and the output of the model as it wrote it. The model spells the
// header of a call in several ways, puts spaces into its arguments, and may cut words into
// other tokens than an encoder does; a client sends back what all of that means. So the tokens
// are kept, and stand in the next prompts as long as what the client sends back means the same.

// Written is what the model wrote in a choice that ended in calls.
type Written struct {
	// The ids of its calls, in its order.
	calls []string
	// With their tokens; nil: not all of them may stand in a prompt as they are.
	messages []harmony.Message
	// Of the calls, if the choice has been read.
	ids map[string]bool
}

// NewWritten returns what the model wrote in a choice that made these calls; nil if it must not stand
// in a prompt as it is. The tokens begin with the <|start|> of the first message, and end before the end of
// the last one. Their array is taken over.
func NewWritten(calls []*item.CalledTool, tokens []harmony.Token) *Written {
	messages, ok := harmony.ReadWritten(append(tokens, harmony.TokenCall))
	if !ok {
		return nil
	}

	choice := &Written{calls: callIDs(calls), messages: messages}
	if !choice.complete() {
		return nil
	}
	next := 0
	for i := range messages {
		if messages[i].Recipient == "" {
			continue
		}
		if !item.Calls(&messages[i], calls[next].Tool()) {
			return nil
		}
		next++
	}
	return choice
}

// complete reports whether the messages have as many calls as the choice, and end with the last
// one. An answer beside calls is shown to clients as something else.
func (c *Written) complete() bool {
	n := 0
	for i := range c.messages {
		m := &c.messages[i]
		if m.Channel == harmony.ChannelFinal {
			return false
		}
		if m.Recipient != "" {
			n++
		}
	}
	return n > 0 && n == len(c.calls) && c.messages[len(c.messages)-1].Recipient != ""
}

// lasts reports whether the engine still has a part of the choice after the turn's answer, which drops
// reasoning.
func (c *Written) lasts() bool {
	return len(c.messages) > 0 && c.messages[0].Channel != harmony.ChannelAnalysis
}

// key returns the name under which the choice is kept.
func (c *Written) key() string {
	if c.lasts() {
		return lastingKey(c.calls[0])
	}
	return writtenKey(c.calls[0])
}

// What the store has is one line of text: a version, the time in seconds, and in base64 the ids
// of the calls and the tokens as varints, which take less room than their text.
const writtenVersion = "1"

// text returns the choice as it is kept, without its messages if they are too long.
func (c *Written) text(now time.Time) string {
	body := binary.AppendUvarint(nil, uint64(len(c.calls)))
	for _, id := range c.calls {
		body = append(binary.AppendUvarint(body, uint64(len(id))), id...)
	}

	head := len(body)
	for i := range c.messages {
		for _, token := range c.messages[i].Written {
			body = binary.AppendUvarint(body, uint64(token))
		}
	}
	if base64.RawStdEncoding.EncodedLen(len(body)) > MaxBytes {
		body = body[:head]
	}

	return writtenVersion + strconv.FormatInt(now.Unix(), 36) + "." + base64.RawStdEncoding.EncodeToString(body)
}

// writtenAt returns a text of the store with another time.
func writtenAt(text string, now time.Time) string {
	_, body, ok := strings.Cut(text, ".")
	if !ok || !strings.HasPrefix(text, writtenVersion) {
		return text
	}
	return writtenVersion + strconv.FormatInt(now.Unix(), 36) + "." + body
}

// readWrittenChoice reads a text of the store. It returns false if it is none of a choice whose
// first call is first: whatever else stands there must not become part of a prompt.
func readWritten(first, text string) (c *Written, at int64, ok bool) {
	text, ok = strings.CutPrefix(text, writtenVersion)
	head, encoded, found := strings.Cut(text, ".")
	at, err := strconv.ParseInt(head, 36, 64)
	if !ok || !found || err != nil || len(encoded) > MaxBytes {
		return nil, 0, false
	}
	body, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, 0, false
	}

	c = &Written{ids: map[string]bool{}}
	count, body, ok := cutUvarint(body)
	for ; ok && count > 0; count-- {
		var length uint64
		if length, body, ok = cutUvarint(body); !ok || length > uint64(min(len(body), item.MaxNameBytes)) {
			return nil, 0, false
		}
		id := string(body[:length])
		c.calls, body = append(c.calls, id), body[length:]
		c.ids[id] = true
	}
	if !ok || len(c.ids) < len(c.calls) || len(c.calls) == 0 || c.calls[0] != first {
		return nil, 0, false
	}

	// Most tokens have two bytes or three.
	tokens := make([]harmony.Token, 0, len(body)/2)
	for i := 0; i < len(body); {
		token, n := binary.Uvarint(body[i:])
		if n <= 0 || token > uint64(harmony.LastToken) {
			return nil, 0, false
		}
		tokens = append(tokens, harmony.Token(token))
		i += n
	}

	if c.messages, ok = harmony.ReadWritten(tokens); !ok || len(tokens) > 0 && !c.complete() {
		return nil, 0, false
	}
	return c, at, true
}

func cutUvarint(b []byte) (value uint64, rest []byte, ok bool) {
	value, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return value, b[n:], true
}
