package harmony

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// ReadWritten splits messages that the model wrote, and returns each with its fields, its text
// and, in [Message.Written], its tokens, which are those of the argument. It returns false
// unless all of them are well formed, so that a renderer may copy them: messages of the
// assistant, from <|start|> to <|end|> or <|call|>, with a channel that there is, and text that
// is valid UTF-8. A [Parser] in tolerant mode reads the same of them, without a repair.
//
// The forms of a header that the model uses are all accepted: the recipient before or after
// the channel, the content type with or without <|constrain|>.
func ReadWritten(tokens []Token) ([]Message, bool) {
	var msgs []Message
	for len(tokens) > 0 {
		m, ok := readWritten(tokens)
		if !ok {
			return nil, false
		}
		msgs = append(msgs, m)
		tokens = tokens[len(m.Written):]
	}
	return msgs, true
}

// readWritten reads the first message.
func readWritten(tokens []Token) (Message, bool) {
	header, content, ok := cutWrittenHeader(tokens)
	if !ok {
		return Message{}, false
	}

	// Control tokens and ids outside the vocabulary are no text, so the first one is the end.
	length := slices.IndexFunc(content, func(t Token) bool { return t >= ordinaryTokens })
	if length < 0 || content[length] != TokenEnd && content[length] != TokenCall {
		return Message{}, false
	}

	// The ids have been checked. To grow as the text comes would copy it several times.
	text, _ := AppendDecode(make([]byte, 0, (TextBytes+1)*length), content[:length])
	if !utf8.Valid(text) {
		return Message{}, false
	}

	end := len(tokens) - len(content) + length + 1
	return Message{
		Role: RoleAssistant, Recipient: header.Recipient, Channel: header.Channel, ContentType: header.ContentType,
		Content: []Content{Text(text)},
		Written: tokens[:end:end],
	}, true
}

// cutWrittenHeader reads the header that tokens begin with, and returns what follows it.
func cutWrittenHeader(tokens []Token) (h Header, content []Token, ok bool) {
	end := slices.Index(tokens[:min(len(tokens), maxHeaderTokens)], TokenMessage)
	if end < 0 || tokens[0] != TokenStart {
		return h, nil, false
	}

	// The sections: role, channel, and perhaps a constrained content type. Another marker leaves an
	// id in one of them that is no text.
	role, rest, marked := cutToken(tokens[1:end], TokenChannel)
	channel, contentType, constrained := cutToken(rest, TokenConstrain)
	if !marked {
		return h, nil, false
	}

	var text [3]string
	for i, section := range [...][]Token{role, channel, contentType} {
		if slices.ContainsFunc(section, func(t Token) bool { return t >= ordinaryTokens }) {
			return h, nil, false
		}
		decoded, _ := AppendDecode(nil, section)
		text[i] = string(decoded)
	}

	h.Role = RoleAssistant
	fields, isAssistant := strings.CutPrefix(text[0], string(RoleAssistant))
	if !isAssistant || !h.addWritten(fields, false) {
		return h, nil, false
	}

	h.Channel, fields, _ = strings.Cut(text[1], " ")
	if !isOneOf(channelWords, h.Channel) {
		return h, nil, false
	}
	if fields != "" && !h.addWritten(" "+fields, !constrained) {
		return h, nil, false
	}

	// The marker announces a content type, and nothing else.
	if constrained && (!h.addWritten(" "+text[2], true) || h.ContentType == "") {
		return h, nil, false
	}
	return h, tokens[end+1:], true
}

func cutToken(tokens []Token, at Token) (before, after []Token, found bool) {
	if i := slices.Index(tokens, at); i >= 0 {
		return tokens[:i], tokens[i+1:], true
	}
	return tokens, nil, false
}

// addWritten reads the fields of a section, each after a space: a recipient and, where it may
// stand there, a content type.
func (h *Header) addWritten(fields string, typed bool) bool {
	if fields != "" && fields[0] != ' ' {
		return false
	}

	for field := range strings.SplitSeq(fields, " ") {
		recipient, addressed := strings.CutPrefix(field, string(toWord))
		switch {
		case field == "":
		case addressed && h.Recipient == "" && h.ContentType == "" && isWrittenName(recipient):
			h.Recipient = recipient
		case !addressed && typed && h.ContentType == "" && isOneOf(typeWords, field):
			h.ContentType = field
		default:
			return false
		}
	}
	return true
}

// isWrittenName reports whether a recipient is the full name of a tool and nothing else. A
// namespace alone goes on with the next word, as a parser reads it.
func isWrittenName(name string) bool {
	b := []byte(name)
	return len(b) > 0 && utf8.Valid(b) && nameLength(b) == len(b) && !isNamespaceName(b) &&
		b[0] != '.' && b[len(b)-1] != '.'
}

func isOneOf(words [][]byte, word string) bool {
	return slices.ContainsFunc(words, func(known []byte) bool { return bytes.Equal(known, []byte(word)) })
}
