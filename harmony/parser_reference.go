package harmony

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// referenceError is an error of a strict mode with the text of the reference.
type referenceError string

func (e referenceError) Error() string { return string(e) }

func referenceErrorf(format string, args ...any) error {
	return referenceError(fmt.Sprintf(format, args...))
}

// The texts of the reference's errors.
const (
	textUnexpected    = "Unexpected token %d while expecting start token %d"
	textEOSInHeader   = "Unexpected EOS while waiting for message header to complete"
	textHeaderDecode  = "could not decode header"
	textEmptyChannel  = "channel marker present but no channel value found in header"
	textNoRole        = "message header did not contain a role"
	textUnknownRole   = "Unknown role: %s"
	textRemaining     = "unexpected tokens remaining in message header: Some(%s)"
	textUnknownID     = "Could not decode tokens: Invalid token error: Invalid token for decoding: %d"
	textIncompleteUTF = "Could not decode tokens: Invalid utf-8 sequence: incomplete utf-8 byte sequence from index %d"
	textInvalidUTF    = "Could not decode tokens: Invalid utf-8 sequence: " +
		"invalid utf-8 sequence of %d bytes from index %d"
)

// isStop reports whether t ends a message for the reference.
func isStop(t Token) bool { return t == TokenEnd || t == TokenReturn || t == TokenCall }

// pushReference corresponds to process of the reference's StreamableParser.
func (p *Parser) pushReference(t Token) error {
	switch p.state {
	case StateExpectStart:
		if t != TokenStart {
			return referenceErrorf(textUnexpected, t, TokenStart)
		}
		p.state = StateHeader
		p.head.reset(true)
	case StateHeader:
		switch {
		case t == TokenMessage:
			// Before the header is read, because after an error the reference expects <|start|>.
			p.state = StateExpectStart
			h, err := p.readHeader()
			if err != nil {
				return err
			}
			p.startMessage(h)
		case p.mode == Permissive && isStop(t):
			return p.stopInHeader(t)
		default:
			// Other special tokens are text here: the reference decodes the header to one string
			// and finds them by their spelling.
			p.head.append(t)
		}
	case StateContent:
		if isStop(t) {
			p.endMessage(t, p.strict.finish(p.text))
			return nil
		}

		p.tokens++
		p.text, _ = p.strict.append(p.text, t)
		p.delta(0)
	}
	return nil
}

// closeReference corresponds to process_eos of the reference's
// StreamableParser.
func (p *Parser) closeReference() error {
	switch p.state {
	case StateHeader:
		return referenceError(textEOSInHeader)
	case StateContent:
		p.endMessage(0, p.strict.finish(p.text))
	case StateExpectStart:
	}
	return nil
}

// stopInHeader returns the message of a header that ends with a stop token.
func (p *Parser) stopInHeader(t Token) error {
	// Without a role from the prompt, the reference drops such a header.
	if p.role != "" && len(p.head.tokens) > 0 {
		if p.head.unknown > 0 {
			return referenceErrorf(textUnknownID, p.head.unknownID)
		}

		if valid, invalid, complete := validPrefix(p.head.text); !complete {
			return referenceErrorf(textIncompleteUTF, valid)
		} else if invalid > 0 {
			return referenceErrorf(textInvalidUTF, invalid, valid)
		}

		h, words, err := p.splitHeader()
		if err != nil {
			return err
		}

		p.startMessage(h)
		p.endMessage(t, bytes.Join(words, []byte{' '}))
	}

	p.state, p.role = StateExpectStart, ""
	return nil
}

// readHeader parses a header that ends with <|message|>.
func (p *Parser) readHeader() (Header, error) {
	if p.head.unknown > 0 || !utf8.Valid(p.head.text) {
		return Header{}, referenceError(textHeaderDecode)
	}

	h, words, err := p.splitHeader()
	if err != nil {
		return h, err
	}

	// The reference reads from the end: the last word is the recipient if it has to= or is alone,
	// else it is the content type, and the word before it the recipient.
	if n := len(words); n > 0 {
		last := words[n-1]
		words = words[:n-1]
		recipient, addressed := bytes.CutPrefix(last, []byte("to="))
		switch {
		case addressed || n == 1:
			h.Recipient = p.name(recipient)
		default:
			h.ContentType = p.name(last)
			recipient, _ = bytes.CutPrefix(words[n-2], []byte("to="))
			h.Recipient = p.name(recipient)
			words = words[:n-2]
		}
	}

	if len(words) > 0 {
		return h, referenceErrorf(textRemaining, rustQuote(string(bytes.Join(words, []byte{' '}))))
	}

	return h, nil
}

// splitHeader parses the role and channel of the collected header and returns
// the other words.
func (p *Parser) splitHeader() (Header, [][]byte, error) {
	h := Header{Role: p.role}
	rest, err := p.cutChannel(&h)
	if err != nil {
		return h, nil, err
	}

	words := p.splitWords(rest)
	name := ""

	if h.Role == "" {
		if len(words) == 0 {
			return h, nil, referenceError(textNoRole)
		}
		name = p.name(words[0])
		h.Role = Role(name)
		if !h.Role.known() {
			// A word that is no role is the name of a tool if anything follows it.
			if len(words) == 1 && !bytes.HasPrefix(words[0], []byte("to=")) {
				return h, nil, referenceErrorf(textUnknownRole, name)
			}

			h.Role = RoleTool
			words = words[1:]
		}
	}

	// The model may repeat the role that the prompt has begun.
	if len(words) > 0 && string(words[0]) == string(h.Role) {
		words = words[1:]
	}

	if h.Role == RoleTool {
		h.Name = name
	}
	return h, words, nil
}

// cutChannel parses the first channel of the header and returns the header
// without it.
func (p *Parser) cutChannel(h *Header) ([]byte, error) {
	before, after, found := bytes.Cut(p.head.text, []byte("<|channel|>"))
	if !found {
		return before, nil
	}

	end := bytes.IndexFunc(after, func(r rune) bool { return r == '<' || unicode.IsSpace(r) })
	if end < 0 {
		end = len(after)
	}

	if end == 0 {
		return nil, referenceError(textEmptyChannel)
	}

	h.Channel = p.name(after[:end])
	p.scratch = append(append(p.scratch[:0], before...), after[end:]...)
	return p.scratch, nil
}

// splitWords splits b at ASCII white space and before each <|constrain|>.
func (p *Parser) splitWords(b []byte) [][]byte {
	p.words = p.words[:0]
	b = bytes.TrimSpace(b)

	for len(b) > 0 {
		// <|constrain|> begins a word without a space before it: json<|constrain|> has two.
		end := 1
		for end < len(b) && !isASCIISpace(b[end]) &&
			(b[end] != '<' || !bytes.HasPrefix(b[end:], []byte(constrainMarker))) {
			end++
		}

		if !isASCIISpace(b[0]) {
			p.words = append(p.words, b[:end])
		} else {
			end = 1
		}
		b = b[end:]
	}
	return p.words
}

// isASCIISpace corresponds to Rust's u8::is_ascii_whitespace.
func isASCIISpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r'
}

// rustQuote quotes s like Rust's {:?}.
func rustQuote(s string) string {
	b := []byte{'"'}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\n':
			b = append(b, `\n`...)
		case r == 0:
			b = append(b, `\0`...)
		case rustPrints(r):
			b = utf8.AppendRune(b, r)
		default:
			b = fmt.Appendf(b, `\u{%x}`, r)
		}
	}
	return string(append(b, '"'))
}

// rustPrints reports whether Rust's {:?} prints r unchanged: it is printable
// and not a mark that extends the character before it.
func rustPrints(r rune) bool {
	if unicode.Is(rustPrinted, r) {
		return true
	}
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Mn, unicode.Me, unicode.Other_Grapheme_Extend, rustQuoted)
}
