package jsontext

import (
	"encoding/binary"
	"math/bits"
)

// valid reports whether text is one JSON value that nests at most [MaxDepth] levels.
func valid(text []byte) bool {
	_, ok := check(text)
	return ok
}

// check is valid, and returns how many bytes could begin such a value. It does not check
// UTF-8. It reads text once and takes the content of strings, which is most of a request,
// eight bytes at a time.
func check(text []byte) (read int, ok bool) {
	c := checker{b: text}
	c.space()

	// A value ends, and with it the objects and arrays whose last one it is. Then the text has
	// to end, or another value to come. So depth costs no stack.
	for c.value() {
		c.space()
		for c.depth > 0 && c.closes() {
			c.space()
		}

		if c.depth == 0 {
			return c.i, c.i == len(text)
		}
		if !c.another() {
			break
		}
	}
	return c.i, false
}

// checker is the position in a text whose values up to there are valid.
type checker struct {
	b     []byte
	i     int
	depth int
	// Closing brackets of the objects and arrays around i.
	close [MaxDepth]byte
}

// value passes the next value, or the beginning of one that is not empty, up to its
// first element. It returns false if there is none.
func (c *checker) value() bool {
	for c.i < len(c.b) {
		switch first := c.b[c.i]; {
		case first == '"':
			return c.text()
		case first == '-' || first >= '0' && first <= '9':
			return c.number()
		case first == 't':
			return c.literal("true")
		case first == 'f':
			return c.literal("false")
		case first == 'n':
			return c.literal("null")
		case first != '{' && first != '[' || c.depth == MaxDepth:
			return false
		}

		// In ASCII the codes of } and ] are two more than those of { and [.
		end := c.b[c.i] + 2
		c.i++
		c.space()
		if c.at(end) {
			c.i++
			return true
		}

		// Its first element is the next value that this loop passes.
		c.close[c.depth] = end
		c.depth++
		if end == '}' && !c.name() {
			return false
		}
	}
	return false
}

// closes passes a closing bracket, if it is next.
func (c *checker) closes() bool {
	if !c.at(c.close[c.depth-1]) {
		return false
	}
	c.i++
	c.depth--
	return true
}

// another passes the comma before the next element, and the element's name in an
// object.
func (c *checker) another() bool {
	if !c.at(',') {
		return false
	}
	c.i++
	c.space()
	return c.close[c.depth-1] == ']' || c.name()
}

// name passes a name with its colon.
func (c *checker) name() bool {
	if !c.at('"') || !c.text() {
		return false
	}
	c.space()
	if !c.at(':') {
		return false
	}
	c.i++
	c.space()
	return true
}

func (c *checker) at(b byte) bool { return c.i < len(c.b) && c.b[c.i] == b }

func (c *checker) space() {
	for c.i < len(c.b) && isSpace(c.b[c.i]) {
		c.i++
	}
}

func (c *checker) literal(word string) bool {
	if len(c.b)-c.i < len(word) || string(c.b[c.i:c.i+len(word)]) != word {
		return false
	}
	c.i += len(word)
	return true
}

// number passes a number: a sign, digits without a leading zero, a fraction, an
// exponent.
func (c *checker) number() bool {
	if c.at('-') {
		c.i++
	}

	// Digits after a zero are left where they are, and so become a fault.
	if c.at('0') {
		c.i++
	} else if !c.digits() {
		return false
	}

	if c.at('.') {
		c.i++
		if !c.digits() {
			return false
		}
	}

	if c.at('e') || c.at('E') {
		c.i++
		if c.at('+') || c.at('-') {
			c.i++
		}
		return c.digits()
	}
	return true
}

// digits passes digits. It returns false if there is none.
func (c *checker) digits() bool {
	from := c.i
	for c.i < len(c.b) && c.b[c.i] >= '0' && c.b[c.i] <= '9' {
		c.i++
	}
	return c.i > from
}

// text passes a string, from its opening quote on.
func (c *checker) text() bool {
	c.i++
	for {
		c.plain()
		if c.i == len(c.b) {
			return false
		}

		switch c.b[c.i] {
		case '"':
			c.i++
			return true
		case '\\':
			if !c.escape() {
				return false
			}
		// A control character.
		default:
			return false
		}
	}
}

// Bytes of a word of eight.
const (
	ones    = 0x0101010101010101
	highs   = 0x80 * ones
	spaces  = ' ' * ones
	quotes  = '"' * ones
	slashes = '\\' * ones
)

// special returns a word whose lowest set bit is the highest one of the first byte of w
// that is a control character, a quote or a backslash; 0 if none is. A subtraction
// borrows only from bytes after such a byte, so what is found first is right.
func special(w uint64) uint64 {
	return ((w - spaces) | ((w ^ quotes) - ones) | ((w ^ slashes) - ones)) &^ w & highs
}

// byteIn returns a word whose lowest set bit is the highest one of the first byte of w
// that is the byte of which eq has eight; 0 if none is.
func byteIn(w, eq uint64) uint64 {
	w ^= eq
	return (w - ones) &^ w & highs
}

// plain moves to the next control character, quote or backslash, or to the end.
func (c *checker) plain() {
	text, i := c.b, c.i

	// Two words at a time, because most text has nothing special in many: see BenchmarkParse.
	for ; len(text)-i >= 16; i += 16 {
		words := text[i : i+16 : i+16]
		first, second := special(binary.LittleEndian.Uint64(words)), special(binary.LittleEndian.Uint64(words[8:]))
		if first|second == 0 {
			continue
		}

		if first != 0 {
			c.i = i + bits.TrailingZeros64(first)/8
		} else {
			c.i = i + 8 + bits.TrailingZeros64(second)/8
		}
		return
	}

	for i < len(text) && text[i] >= ' ' && text[i] != '"' && text[i] != '\\' {
		i++
	}
	c.i = i
}

// escape passes an escaped character.
func (c *checker) escape() bool {
	if c.i+1 >= len(c.b) {
		return false
	}

	switch c.b[c.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.i += 2
		return true
	case 'u':
		for k := 2; k < 6; k++ {
			if c.i+k >= len(c.b) || !isHex(c.b[c.i+k]) {
				return false
			}
		}
		c.i += 6
		return true
	}
	return false
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
