package inspect

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Messages returns the messages of a prompt or an output, with each of its tokens. begun
// is the role of a message whose header has begun before the tokens; "": none has. Any
// tokens are taken: what is no message is one without a role.
func Messages(tokens []harmony.Token, begun harmony.Role) []Message {
	messages := []Message{}
	for from := 0; from < len(tokens); {
		// Models leave out ends and begins: each of the two ends a message.
		to := from + 1
		for to < len(tokens) && tokens[to] != harmony.TokenStart && !ends(tokens[to-1]) {
			to++
		}
		m := newMessage(tokens[from:to], begun)
		m.Start = from
		messages = append(messages, m)
		from, begun = to, ""
	}

	return messages
}

// ends reports whether a token ends a message.
func ends(t harmony.Token) bool {
	return t == harmony.TokenEnd || t == harmony.TokenReturn || t == harmony.TokenCall
}

func newMessage(tokens []harmony.Token, begun harmony.Role) Message {
	m := Message{Role: string(begun), Pieces: make([]Piece, len(tokens))}
	kind := Content
	if begun != "" || tokens[0] == harmony.TokenStart {
		kind = Header
	}

	header := []harmony.Token{}
	for i, t := range tokens {
		p := Piece{ID: t, Kind: kind}
		if name, ok := harmony.SpecialName(t); ok {
			p.Text, p.Kind = name, Special
		}
		if kind == Header && t == harmony.TokenMessage {
			kind = Content
		} else if kind == Header {
			header = append(header, t)
		}
		m.Pieces[i] = p
	}

	m.setTexts(tokens)
	m.readHeader(header)
	return m
}

// setTexts sets the texts of tokens that are no control tokens. A character whose bytes
// are in several tokens is shown with the last of them.
func (m *Message) setTexts(tokens []harmony.Token) {
	// rest is the beginning of a character, of the tokens before.
	var rest []byte
	for i := range m.Pieces {
		p := &m.Pieces[i]
		if p.Kind == Special {
			rest = nil
			continue
		}
		text, err := harmony.AppendDecode(rest, tokens[i:i+1])
		if err != nil {
			p.Text, rest = fmt.Sprintf("[%d]", p.ID), nil
			continue
		}

		// A character may be cut between tokens: what is not whole waits for the next one.
		whole := len(text)
		for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
			if c := text[len(text)-n]; utf8.RuneStart(c) {
				if !utf8.FullRune(text[len(text)-n:]) {
					whole = len(text) - n
				}
				break
			}
		}
		p.Text, rest = strings.ToValidUTF8(string(text[:whole]), "\ufffd"), append([]byte(nil), text[whole:]...)
	}
}

// readHeader reads role, recipient, channel and content type of a header.
func (m *Message) readHeader(tokens []harmony.Token) {
	text := strings.Builder{}
	for i, t := range tokens {
		if name, ok := harmony.SpecialName(t); ok {
			text.WriteString(name)
			continue
		}
		p, err := harmony.AppendDecode(nil, tokens[i:i+1])
		if err == nil {
			text.Write(p)
		}
	}

	// A recipient may stand before or after the channel.
	before, rest, _ := strings.Cut(text.String(), "<|channel|>")
	channel, kind, _ := strings.Cut(rest, "<|constrain|>")
	role, _ := m.words(strings.TrimPrefix(before, "<|start|>"))
	if role != "" {
		m.Role = role
	}

	// Models write the type without its marker too, as the second word of the channel.
	var plain string
	m.Channel, plain = m.words(channel)
	m.Type = strings.TrimSpace(kind)
	if m.Type == "" {
		m.Type = plain
	}
}

// words returns the first two words of a part of a header that are no recipient.
func (m *Message) words(part string) (first, second string) {
	for word := range strings.FieldsSeq(part) {
		switch recipient, ok := strings.CutPrefix(word, "to="); {
		case ok:
			m.Recipient = recipient
		case first == "":
			first = word
		case second == "":
			second = word
		}
	}
	return first, second
}

// Text returns the content of the message.
func (m *Message) Text() string {
	var b strings.Builder
	for i := range m.Pieces {
		if m.Pieces[i].Kind == Content {
			b.WriteString(m.Pieces[i].Text)
		}
	}
	return b.String()
}

// Repairs returns the kinds of repairs that were made in the message, each once.
func (m *Message) Repairs() []string {
	var kinds []string
	for i := range m.Pieces {
		for _, kind := range m.Pieces[i].Repairs {
			if !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}
