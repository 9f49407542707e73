package jsontext

import (
	"strings"
	"unicode/utf8"
)

// JSON that the model sees has one spelling. Each HTTP library writes its own: И or \u0418,
// < or \u003c, / or \/, with white space or without. Shown as they are sent, equal requests
// would be different prompts, which share nothing in an engine's cache, and escapes cost
// several tokens for a letter.
//
// So strings are decoded, and only what JSON must escape is escaped: quotes, backslashes and
// control characters, in the shortest form. Half a surrogate pair is U+FFFD, as in
// encoding/json. The order of members and the digits of numbers stay.

// AppendShown appends a JSON value as the model sees it, without the white space between its
// tokens. raw must be valid JSON in UTF-8.
func AppendShown(dst []byte, raw string) []byte {
	for i := 0; i < len(raw); {
		switch c := raw[i]; c {
		case ' ', '\n', '\r', '\t':
			i++
		case '"':
			end := stringEnd(raw, i)
			dst = appendShown(dst, raw[i:end])
			i = end
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// Shown returns a text of JSON as the model sees it, with the white space that the text has.
// A text that is no JSON is returned as it is.
func Shown(text string) string {
	if !hasOtherSpelling(text) || !Valid(text) {
		return text
	}
	return string(appendShown(make([]byte, 0, len(text)), text))
}

// hasOtherSpelling reports whether a text has an escape that is spelled in another way, or may
// be.
func hasOtherSpelling(text string) bool {
	for {
		at := strings.IndexByte(text, '\\')
		if at < 0 || at+1 == len(text) {
			return false
		}

		if c := text[at+1]; c == 'u' || c == '/' {
			return true
		}

		// Both bytes are passed: the second may be a backslash too.
		text = text[at+2:]
	}
}

// appendShown appends valid JSON with its escapes in the one spelling. It never appends more
// than raw has: each escape is at least as long as what it becomes.
func appendShown(dst []byte, raw string) []byte {
	for {
		at := strings.IndexByte(raw, '\\')
		if at < 0 || at+1 == len(raw) {
			return append(dst, raw...)
		}

		// Only escapes have another spelling: what is before one is copied as it is.
		dst = append(dst, raw[:at]...)

		size := 2
		switch c := raw[at+1]; c {
		case 'u':
			var char rune
			char, size = unicodeEscape(raw[at:])
			dst = appendShownChar(dst, char)
		case '/':
			dst = append(dst, c)
		default:
			dst = append(dst, '\\', c)
		}

		raw = raw[at+size:]
	}
}

// appendShownChar appends a character of a JSON string.
func appendShownChar(dst []byte, char rune) []byte {
	// The two short escapes that appendControl does not have.
	switch char {
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	}
	if char < utf8.RuneSelf && !plain[char] {
		return appendControl(dst, byte(char))
	}
	return utf8.AppendRune(dst, char)
}
