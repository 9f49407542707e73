package arguments

import (
	"bytes"
	"encoding/json"
	"unicode"
	"unicode/utf8"
)

// reading reads a text that is no JSON, from any state of the [Repairer] on, and writes it
// as JSON. It fails on what can be read in two ways. Its work grows with the text's length
// alone.
type reading struct {
	text  []byte
	at    int
	state state
	shape shape

	// The names of the members so far, of each open object.
	known []map[string]bool
	// A string is in double quotes.
	double bool
	// One in single quotes has double quotes in it. With both, a string may have begun with the
	// wrong quote.
	doubleInside bool

	// The tool's only parameter, and whether the object has it.
	parameter string
	fits      bool

	out  []byte
	made Repairs
}

// know takes the names of the members that were passed on.
func (r *reading) know(n *names) (ok bool) {
	r.known, ok = n.of(r.shape.levels)
	return ok
}

// object reads up to the end of the object, or of the text if nothing but the last bracket is
// missing.
func (r *reading) object() bool {
	if r.state == inString && !r.string('"', false) {
		return false
	}
	for r.state != done {
		r.space()
		if r.at == len(r.text) {
			return r.end()
		}
		if !r.token() {
			return false
		}
	}
	return r.isSure()
}

// isSure reports whether an object that was read to its end has no other reading.
func (r *reading) isSure() bool {
	// Two faults of brackets and commas may be one of quotes: of 'a',}' the last one.
	faults := 0
	for _, kind := range []Kind{TrailingComma, ExtraBracket, MissingBracket} {
		if r.made[kind] {
			faults++
		}
	}
	// What is missing at the end of a text in single quotes may be a part of its last string.
	if r.made[MissingBracket] && r.made[SingleQuotes] {
		return false
	}
	// Any object may be the text itself of a tool that takes a text, such as code. One
	// that has the tool's parameter is its arguments.
	return faults < 2 && (!r.double || !r.doubleInside) && (r.parameter == "" || r.fits)
}

// end adds the bracket that is missing at the end, if the last member is complete. A number
// is not: more digits may be missing.
func (r *reading) end() bool {
	isNumber := len(r.text) > 0 && isDigit(r.text[len(r.text)-1])
	if isNumber || r.state != after || !r.shape.lacksLast() || r.shape.text.mayHaveBracket() {
		return false
	}
	r.out = append(r.out, '}')
	r.made[MissingBracket] = true
	r.state = done
	return r.isSure()
}

// space passes white space on.
func (r *reading) space() {
	for r.at < len(r.text) && isSpace(r.text[r.at]) {
		r.out = append(r.out, r.text[r.at])
		r.at++
	}
}

// token reads a token.
func (r *reading) token() bool {
	c := r.text[r.at]

	switch {
	case c == '{' && r.state == begin,
		(c == '{' || c == '[') && (r.state == value || r.state == firstValue):
		return r.open(c)
	case c == '}' && r.state == firstKey,
		c == ']' && r.state == firstValue,
		r.state == after && r.shape.closes(c):
		r.close()
	case (c == '"' || c == '\'') && r.state != after && r.state != colon && r.state != begin:
		r.out = append(r.out, '"')
		r.at++
		return r.string(c, r.state == key || r.state == firstKey)
	case c == ':' && r.state == colon:
		r.take()
		r.state = value
	case c == ',' && r.state == after:
		r.comma()
	case isWord(c) && (r.state == value || r.state == firstValue):
		return r.word()
	default:
		return false
	}
	return true
}

// take passes a byte on.
func (r *reading) take() {
	r.out = append(r.out, r.text[r.at])
	r.at++
}

func (r *reading) open(c byte) bool {
	if len(r.shape.levels) == maxNesting {
		return false
	}
	r.state = r.shape.open(c, 0)
	r.known = append(r.known, nil)
	r.take()
	return true
}

func (r *reading) close() {
	r.shape.close()
	r.known = r.known[:len(r.shape.levels)]
	r.take()
	r.state = after
	if len(r.shape.levels) == 0 {
		r.state = done
	}
}

// comma reads a comma, and drops it before a closing bracket.
func (r *reading) comma() {
	following := bytes.TrimLeft(r.text[r.at+1:], " \n\t\r")
	if len(following) > 0 && r.shape.closes(following[0]) {
		r.made[TrailingComma] = true
		r.at++
		return
	}
	r.take()
	r.state = r.shape.next()
}

// word reads a number or a literal.
func (r *reading) word() bool {
	n := 0
	for n < len(r.text)-r.at && isWord(r.text[r.at+n]) {
		n++
	}

	text := r.text[r.at : r.at+n]
	if literal, ok := pythonWords[string(text)]; ok {
		r.made[PythonWord] = true
		text = []byte(literal)
	}
	if !json.Valid(text) {
		return false
	}

	r.shape.value()
	r.out = append(r.out, text...)
	r.at += n
	r.state = after

	return true
}

// pythonWords are Python's literals, and those of JSON that mean the same.
var pythonWords = map[string]string{"True": "true", "False": "false", "None": "null"}

// string reads a string from after its first quote on.
func (r *reading) string(quote byte, keyed bool) bool {
	start := len(r.out)
	begin := r.at

	if !r.untilQuote(quote, keyed) {
		return false
	}
	text := r.text[begin:r.at]
	r.out = append(r.out, '"')
	r.at++

	r.double = r.double || quote == '"'
	if quote == '\'' {
		r.made[SingleQuotes] = true
		r.doubleInside = r.doubleInside || bytes.IndexByte(text, '"') >= 0
	}
	if !keyed {
		// The half of a string that was passed on is noted already.
		if r.state != inString {
			r.shape.value()
		}
		r.shape.text.add(text)
		r.state = after
		return true
	}

	r.state = colon
	r.shape.element()
	return !looksLikeMore(text) && r.name(r.out[start-1:])
}

// name notes the name of a member, and reports whether it is the first one of it.
func (r *reading) name(text []byte) bool {
	var name string
	if json.Unmarshal(text, &name) != nil {
		return false
	}
	last := len(r.known) - 1
	if r.known[last][name] {
		return false
	}

	if r.known[last] == nil {
		r.known[last] = map[string]bool{}
	}
	r.known[last][name] = true
	r.fits = r.fits || last == 0 && name == r.parameter
	return true
}

// untilQuote reads the text of a string up to its last quote.
func (r *reading) untilQuote(quote byte, keyed bool) bool {
	afterLetter := false
	for r.at < len(r.text) {
		c := r.text[r.at]

		switch {
		case c == quote && quote == '\'' && afterLetter && r.beforeLetter():
			// Between letters it is an apostrophe. In an array, and in a name, it may be what
			// is left of 'a','b' and 'a':true too.
			if keyed || r.shape.inArray() {
				return false
			}
			r.take()
		// Any other quote is the end, and a fault unless a comma, a colon or a bracket follows.
		case c == quote:
			return true
		case c == '\\':
			if !r.escape(quote) {
				return false
			}
		case c < ' ':
			// A line break in a list may be between two strings that have lost quotes.
			if keyed || r.shape.inArray() {
				return false
			}
			r.control(c)
		case c == '"':
			r.out = append(r.out, '\\', c)
			r.at++
		default:
			letter, size := utf8.DecodeRune(r.text[r.at:])
			r.out = append(r.out, r.text[r.at:r.at+size]...)
			r.at += size
			afterLetter = unicode.IsLetter(letter)
			continue
		}
		afterLetter = false
	}
	return false
}

// beforeLetter reports whether a letter is after the current byte.
func (r *reading) beforeLetter() bool {
	letter, _ := utf8.DecodeRune(r.text[r.at+1:])
	return unicode.IsLetter(letter)
}

// escape reads an escape. Strings in single quotes have Python's.
func (r *reading) escape(quote byte) bool {
	if r.at+1 == len(r.text) {
		return false
	}

	c := r.text[r.at+1]
	r.at += 2

	switch {
	case c == 'u':
		r.out = append(r.out, `\u`...)
		return r.hex(4)
	case c == '\'' && quote == '\'':
		r.out = append(r.out, c)
	case c == 'x' && quote == '\'':
		// Python's \xe9 is a character, and never the byte of one.
		r.out = append(r.out, `\u00`...)
		return r.hex(2)
	// Python has no \/, so that it is two characters there.
	case isEscape(c) && (quote == '"' || c != '/'):
		r.out = append(r.out, '\\', c)
	default:
		return false
	}
	return true
}

// hex reads digits of an escape.
func (r *reading) hex(n int) bool {
	for range n {
		if r.at == len(r.text) || !isHex(r.text[r.at]) {
			return false
		}
		r.take()
	}
	return true
}

// control escapes a control character of a string.
func (r *reading) control(c byte) {
	r.made[Control] = true
	r.at++
	r.out = appendControl(r.out, c)
}

// appendControl appends the escape of a control character.
func appendControl(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
