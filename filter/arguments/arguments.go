// Package arguments repairs the arguments of tool calls while they are streamed: text
// that is nearly a JSON object becomes one, where there is only one way to read it.
//
// A [Repairer] takes the model's text in pieces of any size. It passes valid JSON on
// unchanged, and holds back only what may need a repair: a comma until it is known what
// follows it, or a word until it is whole. Text that does not begin as an object is held
// back to its end. What cannot be repaired is passed on as it is, and [Repairer.End] says
// so. See the example.
package arguments

import "encoding/json"

// Kind is a kind of repair. The kinds are labels of metrics.
type Kind uint8

// The kinds.
const (
	TrailingComma Kind = iota // {"a":1,} lost its last comma
	PythonWord                // True, False and None became true, false and null
	SingleQuotes              // {'a':1} got double quotes
	Control                   // a line break or another control character in a string was escaped
	Escape                    // "\'" became "'"
	RawText                   // a bare text became the only string of a tool that takes one
	Fence                     // a code fence around the object was removed
	Nested                    // an object in a JSON string was taken out of it
	kinds
)

var kindNames = [kinds]string{"trailing_comma", "python_word", "single_quotes", "control_character", "escape", "raw_text", "code_fence", "nested_json"}

// String returns the kind's label.
func (k Kind) String() string { return kindNames[k] }

// Repairs says which repairs were made, by kind.
type Repairs [kinds]bool

// Repairer repairs the arguments of one call. The zero value is ready for a tool without
// a text parameter.
type Repairer struct {
	text    string // the only parameter, a string; "": the tool has others
	state   state
	keyed   bool   // of a string: it is a member's name
	single  bool   // of a string: it is in single quotes
	unicode int    // hexadecimal digits of an escape that are missing
	nesting []byte // the open brackets
	held    []byte // what is not passed on yet
	out     []byte
	repairs Repairs
}

// maxNesting bounds the depth of arguments. Deeper ones are passed on as they are.
const maxNesting = 512

type state uint8

const (
	begin       state = iota // before the object
	firstKey                 // behind {
	key                      // behind a comma in an object
	colon                    // behind a member's name
	value                    // before a value
	firstValue               // behind [
	after                    // behind a value
	comma                    // behind a comma, which is held back
	word                     // in a number or a literal, which is held back
	inString                 // in a string
	escape                   // behind \
	digits                   // in \u1234
	quoted                   // in a string in single quotes
	quotedSlash              // behind \ there
	quotedEnd                // behind what may be its last quote, which is held back
	done                     // behind the object
	bare                     // the text does not begin as an object: all of it is held back
	broken                   // the text cannot be repaired
)

// New returns the repairer of a call of a tool. text is the tool's only parameter, if it
// is a string; "": the tool has no parameter, another one or several.
func New(text string) *Repairer { return &Repairer{text: text} }

// Push takes the next piece of the arguments. It returns what can be passed on, which is
// valid until the next call.
func (r *Repairer) Push(p []byte) []byte {
	r.out = r.out[:0]
	r.push(p)
	return r.out
}

// End ends the arguments. It returns the rest of them, which repairs were made, and
// whether the whole is a JSON object.
func (r *Repairer) End() (rest []byte, made Repairs, valid bool) {
	r.out = r.out[:0]
	switch r.state {
	case bare:
		r.endBare()
	case begin:
		r.flush()
	case done:
	default:
		r.stop()
	}
	return r.out, r.repairs, r.state == done
}

// Flush returns what is held back, as it is: the arguments were cut.
func (r *Repairer) Flush() []byte {
	r.out = r.out[:0]
	r.flush()
	return r.out
}

func (r *Repairer) push(p []byte) {
	for len(p) > 0 {
		switch r.state {
		case inString:
			p = r.string(p)
		case bare:
			r.held = append(r.held, p...)
			return
		case broken:
			r.out = append(r.out, p...)
			return
		default:
			if r.byte(p[0]) {
				p = p[1:]
			}
		}
	}
}

// string takes the next bytes of a string, up to its end.
func (r *Repairer) string(p []byte) (rest []byte) {
	i := 0
	for i < len(p) && p[i] != '"' && p[i] != '\\' && p[i] >= ' ' {
		i++
	}
	r.out = append(r.out, p[:i]...)
	if i == len(p) {
		return nil
	}
	switch c := p[i]; c {
	case '"':
		r.out = append(r.out, c)
		r.endString()
	case '\\':
		r.state = escape
	default:
		r.control(c)
	}
	return p[i+1:]
}

func (r *Repairer) endString() {
	r.state = after
	if r.keyed {
		r.state = colon
	}
}

// control escapes a control character of a string.
func (r *Repairer) control(c byte) {
	const hex = "0123456789abcdef"
	r.repairs[Control] = true
	switch c {
	case '\n':
		r.out = append(r.out, `\n`...)
	case '\r':
		r.out = append(r.out, `\r`...)
	case '\t':
		r.out = append(r.out, `\t`...)
	default:
		r.out = append(r.out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
}

// byte takes a byte outside of the text of a string. It reports whether the byte is used
// up; otherwise the next state takes it.
func (r *Repairer) byte(c byte) bool {
	switch r.state {
	case escape, digits, quoted, quotedSlash, quotedEnd:
		return r.stringByte(c)
	case word:
		return r.wordByte(c)
	case comma:
		return r.commaByte(c)
	}
	if isSpace(c) {
		r.out = append(r.out, c)
		return true
	}
	switch r.state {
	case begin:
		if c != '{' {
			r.state = bare
			return false
		}
		r.open(c)
	case firstKey, key:
		switch {
		case c == '"', c == '\'':
			r.quote(c, true)
		case c == '}' && r.state == firstKey:
			r.close(c)
		default:
			r.stop()
			return false
		}
	case colon:
		if c != ':' {
			r.stop()
			return false
		}
		r.out = append(r.out, c)
		r.state = value
	case value, firstValue:
		return r.valueByte(c)
	case after:
		return r.afterByte(c)
	case done:
		r.stop()
		return false
	}
	return true
}

func (r *Repairer) valueByte(c byte) bool {
	switch {
	case c == '"', c == '\'':
		r.quote(c, false)
	case c == '{', c == '[':
		r.open(c)
	case c == ']' && r.state == firstValue:
		r.close(c)
	case isWord(c):
		r.state = word
		return false
	default:
		r.stop()
		return false
	}
	return true
}

func (r *Repairer) afterByte(c byte) bool {
	switch c {
	case ',':
		r.held = append(r.held, c)
		r.state = comma
	case '}', ']':
		r.close(c)
	default:
		r.stop()
		return false
	}
	return true
}

// commaByte takes a byte behind a comma, which is dropped before a closing bracket.
func (r *Repairer) commaByte(c byte) bool {
	switch {
	case isSpace(c):
		r.held = append(r.held, c)
		return true
	case c == '}' || c == ']':
		r.repairs[TrailingComma] = true
		r.out = append(r.out, r.held[1:]...)
		r.held = r.held[:0]
		r.state = after
		return false
	}
	r.flush()
	r.state = value
	if r.nesting[len(r.nesting)-1] == '{' {
		r.state = key
	}
	return false
}

// wordByte takes a byte of a number or a literal, or the one behind it.
func (r *Repairer) wordByte(c byte) bool {
	if isWord(c) {
		r.held = append(r.held, c)
		return true
	}
	switch string(r.held) {
	case "True", "False":
		r.repairs[PythonWord] = true
		r.held[0] += 'a' - 'A'
	case "None":
		r.repairs[PythonWord] = true
		r.held = append(r.held[:0], "null"...)
	default:
		if !json.Valid(r.held) {
			r.stop()
			return false
		}
	}
	r.flush()
	r.state = after
	return false
}

// stringByte takes a byte of a string that has a meaning of its own.
func (r *Repairer) stringByte(c byte) bool {
	switch r.state {
	case escape:
		return r.escaped(c)
	case digits:
		if !isHex(c) {
			r.stop()
			return false
		}
		r.out = append(r.out, c)
		r.unicode--
		if r.unicode == 0 {
			r.state = inString
			if r.single {
				r.state = quoted
			}
		}
	case quoted:
		switch {
		case c == '\'':
			r.held = append(r.held, c)
			r.state = quotedEnd
		case c == '\\':
			r.state = quotedSlash
		case c == '"':
			r.out = append(r.out, '\\', c)
		case c < ' ':
			r.control(c)
		default:
			r.out = append(r.out, c)
		}
	case quotedSlash:
		return r.quotedEscape(c)
	case quotedEnd:
		return r.quotedEndByte(c)
	}
	return true
}

// escaped takes the character behind \ in a string. Of an escape that JSON does not have
// nobody knows whether the backslash is meant.
func (r *Repairer) escaped(c byte) bool {
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		r.out = append(r.out, '\\', c)
		r.state = inString
	case 'u':
		r.out = append(r.out, '\\', c)
		r.state, r.unicode = digits, 4
	case '\'':
		r.repairs[Escape] = true
		r.out = append(r.out, c)
		r.state = inString
	default:
		r.stop()
		return false
	}
	return true
}

// quotedEscape takes the character behind \ in a string in single quotes, which has
// Python's escapes.
func (r *Repairer) quotedEscape(c byte) bool {
	r.state = quoted
	switch c {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		r.out = append(r.out, '\\', c)
	case '\'':
		r.out = append(r.out, c)
	case 'u':
		r.out = append(r.out, '\\', c)
		r.state, r.unicode = digits, 4
	case 'x':
		r.out = append(r.out, `\u00`...)
		r.state, r.unicode = digits, 2
	default:
		r.state = quotedSlash
		r.stop()
		return false
	}
	return true
}

// quotedEndByte takes a byte behind a single quote. It ends the string if what follows
// it is what follows a string in JSON; else the quote is an apostrophe.
func (r *Repairer) quotedEndByte(c byte) bool {
	if isSpace(c) {
		r.held = append(r.held, c)
		return true
	}
	ends := c == ',' || c == '}' || c == ']'
	if r.keyed {
		ends = c == ':'
	}
	if !ends {
		r.state = quoted
		held := r.held
		r.held = r.held[:0]
		for _, h := range held {
			if h < ' ' {
				r.control(h)
			} else {
				r.out = append(r.out, h)
			}
		}
		return false
	}
	r.held[0] = '"'
	r.flush()
	r.endString()
	return false
}

// quote begins a string.
func (r *Repairer) quote(c byte, keyed bool) {
	r.keyed, r.state, r.single = keyed, inString, c == '\''
	if r.single {
		r.repairs[SingleQuotes] = true
		r.state = quoted
	}
	r.out = append(r.out, '"')
}

func (r *Repairer) open(c byte) {
	if len(r.nesting) == maxNesting {
		r.out = append(r.out, c)
		r.stop()
		return
	}
	r.nesting = append(r.nesting, c)
	r.out = append(r.out, c)
	r.state = firstValue
	if c == '{' {
		r.state = firstKey
	}
}

func (r *Repairer) close(c byte) {
	r.out = append(r.out, c)
	last := len(r.nesting) - 1
	if r.nesting[last] != c-2 { // [ and ], { and } are two apart
		r.state = broken
		return
	}
	r.nesting = r.nesting[:last]
	r.state = after
	if last == 0 {
		r.state = done
	}
}

// stop passes on what is held back: the text cannot be repaired from here on.
func (r *Repairer) stop() {
	switch r.state {
	case escape, quotedSlash:
		r.out = append(r.out, '\\')
	}
	r.flush()
	r.state = broken
}

func (r *Repairer) flush() {
	r.out = append(r.out, r.held...)
	r.held = r.held[:0]
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '+' || c == '-' || c == '.' || c == '_'
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
