package write

import (
	"strconv"
	"unicode/utf16"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// input makes the text of a call's arguments, as the model writes it piece by piece,
// the text of a JSON object: clients of Anthropic's API fail on anything else, and a
// stream cannot take back what it has sent. Text that is an object stays as it is.
//
// Line breaks in texts are escaped. A half of a surrogate pair, which some clients cannot
// read, becomes U+FFFD. From the first other fault on, and from what nests too deeply for the
// client to send it back, the text is no part of the object any more: the object gets it as
// one more member, {"a":1,"arguments":"the rest"}, so that nothing is lost and no client takes
// the object for what the model meant. A text that is no object at all becomes
// {"arguments":"the text"}.
//
// It is a machine of its own, after the one of package arguments, which looks for the one
// reading of the whole text: this one needs no end, and accepts any text, also that of tools
// whose arguments are not repaired. Package arguments says why they are two.
//
// The states, the byte that leaves each, and for where:
//
//	inputStart        { → inputNameOrEnd; another byte → inputWrapped
//	inputName         " → inputString
//	inputNameOrEnd    the same; } → inputAfter, or inputDone of the last level
//	inputColon        : → inputValue
//	inputValue        { → inputNameOrEnd; [ → inputValueOrEnd; " → inputString;
//	                  t, f, n → inputWord; a digit or sign → inputNumber
//	inputValueOrEnd   the same; ] → inputAfter
//	inputAfter        , → inputName or inputValue; } and ] → inputAfter or inputDone
//	inputString       \ → inputEscape; " → inputColon of a name, inputAfter of a text
//	inputEscape       u → inputHex; another escape of JSON → inputString
//	inputHex          the fourth digit → inputString
//	inputNumber       the byte after a whole number → inputAfter, which takes it
//	inputWord         the last letter → inputAfter
//	inputDone         any byte but white space → inputBroken
//	inputBroken       nothing: the rest is held for the end
//	inputWrapped      nothing: the rest is passed on at once
//
// Each other byte is a fault, and leads to inputBroken.
type input struct {
	state inputState
	// Of the open objects and arrays: { or [.
	stack []byte
	// Read, and not passed on: closing brackets after it would not make it valid.
	pending []byte

	// Of a number: where in pending it begins.
	number int
	// Of a literal: what is still to come.
	word string
	// Of a string: it is a member's name.
	inKey bool
	// Digits of an escape that are still to come.
	hex int
	// Of a surrogate pair whose second half is to come: where in pending the first ends; 0: none.
	high int

	// The object has a member.
	filled bool
	// Of a fault: it is in the text of a value.
	inText bool
}

// maxInputDepth is how deeply an input nests. Requests nest at most [jsontext.MaxDepth]
// levels, with the levels around an input.
const maxInputDepth = jsontext.MaxDepth - 16

// inputState is what comes next.
type inputState uint8

const (
	inputStart      inputState = iota // the object
	inputName                         // a member's name
	inputNameOrEnd                    // the same, or the end of the object
	inputColon                        // the colon after a name
	inputValue                        // a value
	inputValueOrEnd                   // the same, or the end of the array
	inputAfter                        // what follows a value
	inputString                       // more of a string
	inputEscape                       // what a backslash escapes
	inputHex                          // more of an escape's digits
	inputNumber                       // more of a number
	inputWord                         // more of true, false or null
	inputDone                         // nothing: the object is complete
	inputBroken                       // more of the rest after a fault
	inputWrapped                      // more of a text that is no object
)

// reset begins the input of another call.
func (in *input) reset() {
	*in = input{stack: in.stack[:0], pending: in.pending[:0]}
}

// add reads a piece of the arguments, and appends to dst what can be passed on.
func (in *input) add(dst, piece []byte) []byte {
	for i, c := range piece {
		// The states at the ends of the text, and a number, do not take one byte at a time.
		switch in.state {
		case inputBroken:
			in.pending = append(in.pending, piece[i:]...)
			return dst
		case inputDone:
			if isSpace(c) {
				continue
			}
			// The last bracket waits for the end: the object is open again.
			in.stack, in.pending = append(in.stack, '{'), in.pending[:0]
			in.fail(piece[i:])
			return dst
		case inputStart:
			switch {
			case isSpace(c):
				continue
			case c != '{':
				in.state = inputWrapped
				return in.add(append(dst, `{"arguments":"`...), piece[i:])
			}
		// All of it is inside one string, which ends with the call.
		case inputWrapped:
			return jsontext.AppendEscaped(dst, piece[i:])
		case inputNumber:
			// Only the byte after a number ends it, and that byte belongs to what follows.
			if !isNumber(c) && validNumber(in.pending[in.number:]) {
				in.state = inputAfter
				dst = in.flush(dst)
			}
		}

		// A byte that does not belong here may be in pending already: it is in the rest too.
		before := len(in.pending)
		if !in.read(c) {
			in.pending = in.pending[:before]
			in.fail(piece[i:])
			return dst
		}

		if in.closable() {
			dst = in.flush(dst)
		}
	}
	return dst
}

// fail takes the rest of a piece in which a fault is.
func (in *input) fail(rest []byte) {
	in.inText = in.isText()
	in.pending = append(in.pending, rest...)
	in.state = inputBroken
}

// isText reports whether the text of a value is open.
func (in *input) isText() bool {
	return !in.inKey && (in.state == inputString || in.state == inputEscape || in.state == inputHex)
}

// flush appends what was read.
func (in *input) flush(dst []byte) []byte {
	// Only the outer { alone leaves the object without a member.
	in.filled = in.filled || in.state != inputNameOrEnd || len(in.stack) > 1
	dst = append(dst, in.pending...)
	in.pending = in.pending[:0]
	return dst
}

// end appends what makes the text that was passed on an object.
func (in *input) end(dst []byte) []byte {
	switch in.state {
	case inputStart:
		return append(dst, "{}"...)
	case inputWrapped:
		return append(dst, `"}`...)
	case inputDone:
		return in.flush(dst)
	}

	// From the innermost out: the text, the arrays and objects within the outer object, and then
	// the member with the rest, before the outer object ends.
	if in.inText || in.isText() {
		dst = append(dst, '"')
	}
	for i := len(in.stack) - 1; i > 0; i-- {
		// } follows { by two, and so does ] [.
		dst = append(dst, in.stack[i]+2)
	}
	// The first member has no comma before it.
	if in.filled {
		dst = append(dst, ',')
	}
	dst = jsontext.AppendEscaped(append(dst, `"arguments":"`...), in.pending)
	return append(dst, `"}`...)
}

// closable reports whether a quotation mark, in a string, and closing brackets make
// what was read so far valid.
func (in *input) closable() bool {
	switch in.state {
	case inputNameOrEnd, inputValueOrEnd, inputAfter:
		return true
	case inputString:
		return !in.inKey && in.high == 0
	}
	return false
}

// read takes the next byte, and reports whether it may come here.
func (in *input) read(c byte) bool {
	switch in.state {
	case inputString, inputEscape, inputHex:
		return in.readString(c)
	case inputNumber:
		in.pending = append(in.pending, c)
		return isNumber(c)
	case inputWord:
		if c != in.word[0] {
			return false
		}
		in.pending = append(in.pending, c)
		if in.word = in.word[1:]; in.word == "" {
			in.state = inputAfter
		}
		return true
	}

	in.pending = append(in.pending, c)
	return isSpace(c) || in.readToken(c)
}

// readToken takes a byte that begins or is a token.
func (in *input) readToken(c byte) bool {
	switch {
	case c == '"' && (in.state == inputName || in.state == inputNameOrEnd):
		in.state, in.inKey = inputString, true
	case c == ':' && in.state == inputColon:
		in.state = inputValue
	case c == ',' && in.state == inputAfter:
		if in.state = inputValue; in.stack[len(in.stack)-1] == '{' {
			in.state = inputName
		}

	case c == '}' && (in.state == inputNameOrEnd || in.state == inputAfter),
		c == ']' && (in.state == inputValueOrEnd || in.state == inputAfter):
		// In ASCII } follows { by two, and so does ] [.
		last := len(in.stack) - 1
		if in.stack[last] != c-2 {
			return false
		}
		in.stack = in.stack[:last]
		if in.state = inputAfter; last == 0 {
			in.state = inputDone
		}

	case in.state == inputStart, in.state == inputValue, in.state == inputValueOrEnd:
		return in.readValue(c)
	default:
		return false
	}
	return true
}

// readValue takes the first byte of a value.
func (in *input) readValue(c byte) bool {
	// The client could not send back what nests more deeply: the rest becomes text.
	if (c == '{' || c == '[') && len(in.stack) == maxInputDepth {
		return false
	}

	switch c {
	case '{':
		in.stack, in.state = append(in.stack, c), inputNameOrEnd
	case '[':
		in.stack, in.state = append(in.stack, c), inputValueOrEnd
	case '"':
		in.state, in.inKey = inputString, false
	case 't':
		in.state, in.word = inputWord, "true"[1:]
	case 'f':
		in.state, in.word = inputWord, "false"[1:]
	case 'n':
		in.state, in.word = inputWord, "null"[1:]
	default:
		// The byte is in pending already.
		in.state, in.number = inputNumber, len(in.pending)-1
		return isNumber(c)
	}
	return true
}

// readString takes a byte of a string.
func (in *input) readString(c byte) bool {
	// The second half of a pair is an escape that follows at once.
	if in.state == inputString && c != '\\' || in.state == inputEscape && c != 'u' {
		in.endPair()
	}

	switch in.state {
	case inputHex:
		in.pending = append(in.pending, c)
		in.hex--
		if in.hex == 0 {
			in.state = inputString
			in.readSurrogate()
		}
		return isHex(c)
	case inputEscape:
		in.state = inputString
		switch c {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			in.state, in.hex = inputHex, 4
		default:
			in.state = inputEscape
			return false
		}
	default:
		switch c {
		case '\\':
			in.state = inputEscape
		case '"':
			if in.state = inputAfter; in.inKey {
				in.state = inputColon
			}
		}
	}

	// The two sides of a line break in a name may be texts that have lost quotes.
	if c < ' ' && in.inKey {
		return false
	}
	if c < ' ' {
		in.pending = jsontext.AppendEscaped(in.pending, []byte{c})
		return true
	}
	in.pending = append(in.pending, c)
	return true
}

// readSurrogate looks whether the escape that was read last is half of a pair.
func (in *input) readSurrogate() {
	// Digits that are none are a fault, which the caller reports.
	end := len(in.pending)
	n, _ := strconv.ParseUint(string(in.pending[end-4:]), 16, 16)

	switch {
	// The pair is complete.
	case n >= 0xDC00 && n < 0xE000 && in.high > 0:
		in.high = 0
	case utf16.IsSurrogate(rune(n)):
		in.endPair()
		if in.high = end; n >= 0xDC00 {
			in.endPair()
		}
	default:
		in.endPair()
	}
}

// endPair replaces the half of a pair that has no other one.
func (in *input) endPair() {
	if in.high > 0 {
		copy(in.pending[in.high-len(`\ufffd`):], `\ufffd`)
		in.high = 0
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func isNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// validNumber reports whether a text of the characters of numbers is one.
func validNumber(text []byte) bool { return gjson.ValidBytes(text) }
