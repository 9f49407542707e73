package harmony

import "strings"

// keptHeaders is how many headers of a conversation are kept.
const keptHeaders = 8

// headers are the last different headers that were encoded in a conversation.
// Most conversations repeat a few.
type headers struct {
	kept [keptHeaders]keptHeader
	// next is an index in kept, modulo its length.
	next int
}

// keptHeader is a header and where its tokens are. It is unused if the role is
// empty.
type keptHeader struct {
	Header
	recipientLast bool
	// The tokens in the conversation are from start to end.
	start int
	end   int
}

// append appends the header of a message, from <|start|> to <|message|>. dst
// contains the messages before it.
func (h *headers) append(dst []Token, m *Message) []Token {
	header := Header{Role: m.Role, Name: m.Name, Channel: m.Channel, Recipient: m.Recipient, ContentType: m.ContentType}

	for i := range h.kept {
		if k := &h.kept[i]; k.Header == header && k.recipientLast == m.RecipientLast {
			// The tokens are in the conversation already, so they are kept nowhere else.
			return append(dst, dst[k.start:k.end]...)
		}
	}

	start := len(dst)
	dst = m.appendHeader(dst)
	h.kept[h.next%keptHeaders] = keptHeader{header, m.RecipientLast, start, len(dst)}
	h.next++
	return dst
}

// appendHeader encodes the header of a message. Like the reference it encodes
// every string separately, because token boundaries depend on it.
func (m *Message) appendHeader(dst []Token) []Token {
	dst = append(dst, TokenStart)
	if m.Role == RoleTool {
		// The name of a tool stands in the place of its role.
		dst = AppendEncode(dst, m.Name)
	} else {
		dst = AppendEncode(dst, string(m.Role))
		if m.Name != "" {
			dst = AppendEncode(dst, ":"+m.Name)
		}
	}

	// The reference writes no recipient for "all", which everybody is.
	addressed := m.Recipient != "" && m.Recipient != "all"
	if addressed && !m.RecipientLast {
		dst = AppendEncode(dst, " to="+m.Recipient)
	}

	if m.Channel != "" {
		dst = append(dst, TokenChannel)
		dst = AppendEncode(dst, m.Channel)
	}
	if addressed && m.RecipientLast {
		dst = AppendEncode(dst, " to="+m.Recipient)
	}

	if m.ContentType != "" {
		dst = appendContentType(dst, m.ContentType)
	}

	return append(dst, TokenMessage)
}

// constrainMarker is the only special token that a field of a message may
// contain, at the start of a content type.
const constrainMarker = "<|constrain|>"

func appendContentType(dst []Token, contentType string) []Token {
	rest, constrained := strings.CutPrefix(contentType, constrainMarker)
	if !constrained {
		return AppendEncode(dst, " "+contentType)
	}

	// Only this prefix becomes a control token. What follows it is text, whatever it spells.
	dst = append(AppendEncode(dst, " "), TokenConstrain)
	return AppendEncode(dst, rest)
}
