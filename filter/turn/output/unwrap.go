package output

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Unwrapper finds the text of a custom tool's call in the call's arguments. The model
// sees such a tool as a function with one string, so it writes {"input":"text"};
// sometimes it writes the string alone, or the bare text. The result does not depend
// on how the arguments are cut into pieces.
type Unwrapper struct {
	state unwrapState
	// What has not been understood yet.
	buffer []byte
	// The string is a member of an object: what follows it is no text.
	object bool
	// The first half of a surrogate pair, 0 if there is none.
	high rune
}

// unwrapState is where in the arguments an [Unwrapper] is:
//
//	start    {"input":" or " → string; anything else, or too much → bare
//	string   the quotation mark after it → after
//	after    text after a string that is in no object → bare
//	bare     nothing
type unwrapState uint8

const (
	unwrapStart  unwrapState = iota // before the text, in whatever form
	unwrapString                    // in a JSON string
	unwrapAfter                     // after it
	unwrapBare                      // in bare text
)

// wrapping is what comes before the text in the function's form. White space may be
// between any two of them.
var wrapping = []string{`{`, `"input"`, `:`, `"`}

// Push takes the next piece of the arguments, whole characters of UTF-8, and
// appends the text in it.
func (u *Unwrapper) Push(dst, p []byte) []byte {
	u.buffer = append(u.buffer, p...)

	if u.state == unwrapStart {
		u.start()
	}

	switch u.state {
	case unwrapString:
		dst = u.unescape(dst)
	case unwrapBare:
		dst = append(dst, u.buffer...)
		u.buffer = u.buffer[:0]
	}

	if u.state == unwrapAfter {
		dst = u.after(dst)
	}
	return dst
}

// Flush ends the arguments: what has not been understood is text as it is.
func (u *Unwrapper) Flush(dst []byte) []byte {
	switch u.state {
	case unwrapStart:
		// A call without arguments has no text.
		if t := bytes.Join(bytes.Fields(u.buffer), nil); string(t) == "{}" {
			break
		}
		dst = append(dst, u.buffer...)
	case unwrapString:
		dst = append(u.lone(dst), u.buffer...)
	}

	u.buffer = nil
	return dst
}

// maxWrapping bounds what may come before the text in the function's form. It is read
// again with each piece, and a model can write white space for ever.
const maxWrapping = 1 << 10

// start decides in which form the text comes, as soon as that is known. Beyond
// maxWrapping it is bare.
func (u *Unwrapper) start() {
	u.begin()
	if u.state == unwrapStart && len(u.buffer) > maxWrapping {
		u.state = unwrapBare
	}
}

func (u *Unwrapper) begin() {
	read := u.buffer[:min(len(u.buffer), maxWrapping)]
	rest := bytes.TrimLeft(read, " \t\r\n")
	if len(rest) > 0 && rest[0] == '"' {
		u.state, u.buffer = unwrapString, u.buffer[len(read)-len(rest)+1:]
		return
	}

	for _, want := range wrapping {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		n := min(len(rest), len(want))
		if string(rest[:n]) != want[:n] {
			// No input at all: it is seen at the end.
			if string(bytes.TrimSpace(rest)) == "}" {
				return
			}
			u.state = unwrapBare
			return
		}
		if rest = rest[n:]; n < len(want) {
			return
		}
	}
	u.state, u.object, u.buffer = unwrapString, true, u.buffer[len(read)-len(rest):]
}

// unescape appends the string as far as it can be read.
func (u *Unwrapper) unescape(dst []byte) []byte {
	rest := u.buffer
	for len(rest) > 0 {
		switch c := rest[0]; {
		case c == '"':
			dst = u.lone(dst)
			u.state, u.buffer = unwrapAfter, rest[1:]
			return dst

		case c != '\\':
			n := bytes.IndexAny(rest, `"\`)
			if n < 0 {
				n = len(rest)
			}
			dst = append(u.lone(dst), rest[:n]...)
			rest = rest[n:]

		default:
			// An escape that is not complete waits for its rest.
			n := escapeLen(rest)
			if n == 0 {
				u.buffer = append(u.buffer[:0], rest...)
				return dst
			}
			dst = u.escape(dst, rest[:n])
			rest = rest[n:]
		}
	}

	u.buffer = u.buffer[:0]
	return dst
}

// escapeLen is how long the escape at the beginning of a text is, 0 if it is not
// complete. What is no escape of JSON is taken for two bytes of text.
func escapeLen(text []byte) int {
	switch {
	case len(text) < 2:
		return 0
	case text[1] != 'u':
		_, size := utf8.DecodeRune(text[1:])
		return 1 + size
	}

	for i := 2; i < 6; i++ {
		switch {
		case i == len(text):
			return 0
		case !bytes.ContainsRune([]byte("0123456789abcdefABCDEF"), rune(text[i])):
			return 2
		}
	}
	return 6
}

// escape appends the character of an escape.
func (u *Unwrapper) escape(dst, text []byte) []byte {
	if len(text) == 6 {
		// escapeLen has seen the digits.
		n, _ := strconv.ParseUint(string(text[2:]), 16, 16)
		r := rune(n)
		if pair := utf16.DecodeRune(u.high, r); u.high != 0 && pair != utf8.RuneError {
			u.high = 0
			return utf8.AppendRune(dst, pair)
		}
		dst = u.lone(dst)

		// The first half waits for the second one.
		if r >= 0xd800 && r < 0xdc00 {
			u.high = r
			return dst
		}
		return utf8.AppendRune(dst, r)
	}

	dst = u.lone(dst)
	switch text[1] {
	case '"', '\\', '/':
		return append(dst, text[1])
	case 'b':
		return append(dst, '\b')
	case 'f':
		return append(dst, '\f')
	case 'n':
		return append(dst, '\n')
	case 'r':
		return append(dst, '\r')
	case 't':
		return append(dst, '\t')
	}
	return append(dst, text...)
}

// lone appends the character for half a surrogate pair without its other half.
func (u *Unwrapper) lone(dst []byte) []byte {
	if u.high == 0 {
		return dst
	}
	u.high = 0
	return utf8.AppendRune(dst, utf8.RuneError)
}

// after takes what follows the string: nothing of it is text in an object;
// after a string alone everything is, unless it is only white space.
func (u *Unwrapper) after(dst []byte) []byte {
	switch {
	case u.object:
		u.buffer = u.buffer[:0]
	case len(bytes.TrimSpace(u.buffer)) > 0:
		dst = append(dst, u.buffer...)
		u.state, u.buffer = unwrapBare, u.buffer[:0]
	}
	return dst
}
