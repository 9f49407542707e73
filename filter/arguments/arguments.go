// Package arguments repairs the arguments of tool calls while they are streamed: text
// that is nearly a JSON object becomes one, if there is only one way to read it. A repair
// never guesses: what a careful reader could read in two ways is passed on as the model
// wrote it, byte by byte.
//
// A [Repairer] takes the model's text in pieces of any size. It passes valid JSON on at
// once; a comma and a number or literal wait for the character after them. From the first
// byte on that is no JSON it holds the text back, because what was passed on cannot be taken
// back: a repair that fails half way would have changed the text. At the end the reading
// looks at what is held as a whole. See the example.
//
// The types are few: [Repairer] is all that others use, [Kind] and [Repairs] name what it has
// done. Within, a reading reads what was held back, a shape says whether a bracket that is
// missing has one place, and names keeps what the members of open objects are called.
//
// The package knows nothing of schemas. Of a tool it knows at most its only parameter, if that
// is a string: its name, and whether a call may leave it out. A model that says that it writes
// JSON ([New]) is held to it. One that does not ([NewText]) may write the value itself, which has
// any form: then nothing but an object with the parameter is more than a text.
//
// Package messages has a second machine after this one, its input, because clients of
// Anthropic's API fail on what is no object. The two read the same grammar and stay two:
//
//   - They answer different questions. This one: has the whole text one reading? It must be able
//     to give back each byte as it was, so it holds back from the first fault on. The other:
//     which brackets would close the text here? It never looks ahead, and changes what it
//     must; a text that it has shown half of is as good as closed.
//   - The other one works where this one does not: on arguments that are passed on as they are,
//     on a text that could not be repaired, and after MaxHeld. In one machine, passing would
//     not be a state but the second machine again.
//   - They differ at each place where they could share. This one passes a name on at once and
//     waits after a comma; the other holds names, colons and commas, as a closing bracket after
//     them makes no object. This one does not touch a line break in a list; the other escapes it.
//     They disagree about 1x (no number, or a number and a fault), about depth, and about halves
//     of surrogate pairs.
package arguments

import "encoding/json"

// Kind is a kind of repair. The kinds are labels of metrics.
type Kind uint8

// The kinds.
const (
	TrailingComma  Kind = iota // {"a":1,} lost its last comma
	PythonWord                 // True, False and None became true, false and null
	SingleQuotes               // {'a':1} got double quotes
	Control                    // a line break or another control character in a string was escaped
	RawText                    // a bare text became the only string of a tool that takes one
	Fence                      // a code fence around the object was removed
	Nested                     // an object in a JSON string was taken out of it
	TextAround                 // a byte order mark or prose around the object was removed
	ExtraBracket               // {"a":1}} or [{"a":1}] lost brackets outside of the object
	MissingBracket             // {"a":"b" got its last brackets
	kinds
)

var kindNames = [kinds]string{
	"trailing_comma", "python_word", "single_quotes", "control_character", "raw_text", "code_fence", "nested_json",
	"text_around", "extra_bracket", "missing_bracket",
}

// String returns the kind's label.
func (k Kind) String() string { return kindNames[k] }

// Repairs says which repairs were made, by kind.
type Repairs [kinds]bool

// MaxHeld is how many bytes are held back for a repair. A text that is longer from its
// fault on is passed on as it is.
const MaxHeld = 1 << 20

// maxNesting bounds the depth of arguments. Deeper ones are passed on as they are.
const maxNesting = 512

// Repairer repairs the arguments of one call.
//
// While the text is valid JSON the state says what comes next:
//
//	begin               {  → firstKey
//	firstKey, key       "  → inString; }, of firstKey → after
//	colon               :  → value
//	value, firstValue   {  → firstKey; [ → firstValue; " → inString; a letter or digit → word;
//	                    ], of firstValue → after
//	after               ,  → comma; } and ] → after, of the last one → done
//	comma               the byte after it → key or value; } or ] is a fault
//	word                the byte after it → after
//	inString            "  → colon, of a name, or after; \ → escape
//	escape              u  → digits; another one of JSON → inString
//	digits              four of them → inString
//	done                white space alone
//
// A fault leads to holding, from which the reading goes on at the end, in the state in which
// the fault was found; or to passing, if no repair is possible.
//
// Of a text that need not be JSON the state says whether it may be an object all the same:
//
//	undecided           what no object begins with → textual; more than MaxHeld → textual, or the
//	                    state of an object that has its parameter already
//	textual             nothing: all of it is the parameter's
type Repairer struct {
	// The only parameter, a string; "": the tool has others.
	parameter string
	// Of a text that need not be JSON: a call may leave the parameter out.
	optional bool

	state state
	// Of holding: what came next where the fault was found.
	resume state
	// Of a string: it is a member's name.
	keyed bool
	// Hexadecimal digits of an escape that are missing.
	digits int

	// What is known of the text that was passed on, for a reading of the rest.
	shape shape
	names names

	// The text that is not passed on yet, as the model wrote it.
	held []byte
	// How much of an undecided text has been looked at, and whether the rest needs no look: it has
	// begun as an object or a string, which its end tells.
	seen  int
	begun bool
	// What the current call returns.
	out []byte
}

// state is what comes next. The map above [Repairer] says who leaves it.
type state uint8

const (
	begin state = iota
	firstKey
	key
	colon
	value
	firstValue
	after
	comma
	word
	inString
	escape
	digits
	done
	holding
	passing
	undecided
	textual
)

// New returns the repairer of a call of a tool. parameter is the tool's only parameter, if
// it is a string; "": the tool has no parameter, another one or several.
func New(parameter string) *Repairer { return &Repairer{parameter: parameter} }

// Push takes the next piece of the arguments. It returns what can be passed on, which is
// valid until the next call.
func (r *Repairer) Push(piece []byte) []byte {
	r.out = r.out[:0]
	for len(piece) > 0 {
		switch r.state {
		case inString:
			piece = r.string(piece)
		case holding:
			r.held = append(r.held, piece...)
			piece = nil
		case passing:
			r.out = append(r.out, piece...)
			piece = nil
		case undecided:
			piece = r.decide(piece)
		case textual:
			r.out = appendText(r.out, piece)
			piece = nil
		default:
			if r.byte(piece[0]) {
				piece = piece[1:]
			}
		}

		if len(r.held) > MaxHeld {
			r.pass()
		}
	}
	return r.out
}

// End ends the arguments. It returns the rest of them, which repairs were made, and
// whether the whole is a JSON object. If it is not, the rest is what was held back.
func (r *Repairer) End() (rest []byte, made Repairs, valid bool) {
	r.out = r.out[:0]
	switch r.state {
	case done:
		r.flush()
		return r.out, made, true
	case passing:
		return nil, made, false
	case undecided:
		return r.endUndecided()
	case textual:
		r.endText()
		return r.out, Repairs{RawText: true}, true

	// What waited for the byte after it is read as what it is part of.
	case word:
		r.resume = value
	case comma:
		r.resume = after
	case holding:
	default:
		r.resume = r.state
	}

	text, made, valid := r.repair()
	if valid {
		r.state = done
		return text, made, true
	}
	r.pass()
	return r.out, Repairs{}, false
}

// Flush returns what is held back, as it is: the arguments were cut.
func (r *Repairer) Flush() []byte {
	r.out = r.out[:0]
	r.pass()
	return r.out
}

// repair returns what the held text becomes.
func (r *Repairer) repair() (text []byte, made Repairs, ok bool) {
	// Nothing was passed on: what is around the object may go.
	if r.resume == begin {
		return readWhole(r.held, r.parameter)
	}

	reading := reading{text: r.held, state: r.resume, shape: r.shape, parameter: r.parameter}
	if !reading.know(&r.names) {
		return nil, made, false
	}

	// If something was passed on, JSON was: with a member or a string it had double quotes.
	reading.fits = r.names.fits
	reading.double = r.resume == inString || r.resume == done || r.shape.levels[0].one
	ok = reading.object() && reading.tail(0)
	return reading.out, reading.made, ok
}

// hold holds the text back from here on.
func (r *Repairer) hold(resume state) { r.state, r.resume = holding, resume }

// pass passes the text on from here on.
func (r *Repairer) pass() {
	r.flush()
	r.state = passing
}

func (r *Repairer) flush() {
	r.out = append(r.out, r.held...)
	r.held = r.held[:0]
}

// string takes the next bytes of a string, up to its end.
func (r *Repairer) string(p []byte) (rest []byte) {
	// Most text is in strings, and most of it has nothing to look at: it is copied at once.
	i := 0
	for i < len(p) && p[i] != '"' && p[i] != '\\' && p[i] >= ' ' {
		i++
	}
	r.out = append(r.out, p[:i]...)
	if r.keyed {
		r.names.add(p[:i])
	} else {
		r.shape.text.add(p[:i])
	}
	if i == len(p) {
		return nil
	}

	// A quotation mark, a backslash, or a control character, which JSON does not have.
	switch c := p[i]; {
	case c == '"':
		r.out = append(r.out, c)
		r.state = after
		if r.keyed {
			r.state = colon
			level := r.shape.levels[len(r.shape.levels)-1]
			r.names.end(r.parameter, level.names, len(r.shape.levels) == 1)
		}
	case c == '\\':
		r.take(c)
		r.shape.text.last = 0
		r.state = escape
	case r.keyed, r.shape.inArray():
		// The reading does not take it either.
		r.pass()
		return p[i:]
	default:
		r.hold(inString)
		return p[i:]
	}
	return p[i+1:]
}

// byte takes a byte outside of the text of a string. It reports whether the byte is used
// up; otherwise the next state takes it.
func (r *Repairer) byte(c byte) bool {
	switch r.state {
	case escape, digits:
		return r.escapeByte(c)
	case word:
		return r.wordByte(c)
	case comma:
		return r.commaByte(c)
	case begin, done:
		return r.outerByte(c)
	}

	if isSpace(c) {
		r.out = append(r.out, c)
		return true
	}

	switch {
	case c == '"' && (r.state == firstKey || r.state == key):
		r.shape.element()
		r.names.begin()
		r.out = append(r.out, c)
		r.state, r.keyed = inString, true
	case c == ':' && r.state == colon:
		r.out = append(r.out, c)
		r.state = value
	case c == ',' && r.state == after:
		r.held = append(r.held, c)
		r.state = comma
	case c == '}' && r.state == firstKey,
		c == ']' && r.state == firstValue,
		r.state == after && r.shape.closes(c):
		r.close(c)
	case r.state == value || r.state == firstValue:
		return r.valueByte(c)
	default:
		r.hold(r.state)
		return false
	}
	return true
}

// outerByte takes a byte outside of the object. White space is held back: it can be part of a
// bare text, and what follows the object is a remark only after some.
func (r *Repairer) outerByte(c byte) bool {
	switch {
	case isSpace(c):
		r.held = append(r.held, c)
		return true
	case c == '{' && r.state == begin:
		r.flush()
		return r.open(c)
	}
	r.hold(r.state)
	return false
}

func (r *Repairer) valueByte(c byte) bool {
	switch {
	case c == '{', c == '[':
		return r.open(c)
	case c == '"':
		r.shape.value()
		r.out = append(r.out, c)
		r.state, r.keyed = inString, false
	case isWord(c):
		r.state = word
		return false
	default:
		r.hold(r.state)
		return false
	}
	return true
}

// commaByte takes a byte after a comma, which is too many before a closing bracket.
func (r *Repairer) commaByte(c byte) bool {
	switch {
	case isSpace(c):
		r.held = append(r.held, c)
		return true
	case c == '}', c == ']':
		r.hold(after)
		return false
	}
	r.flush()
	r.state = r.shape.next()
	return false
}

// wordByte takes a byte of a number or a literal, or the one after it.
func (r *Repairer) wordByte(c byte) bool {
	switch {
	case isWord(c):
		r.held = append(r.held, c)
		return true
	case !json.Valid(r.held):
		r.hold(value)
		return false
	}
	r.shape.value()
	r.flush()
	r.state = after
	return false
}

// escapeByte takes a byte of an escape. Of one that JSON does not have nobody knows whether
// the backslash is meant: \d, of an expression, and \', of a shell's command, are texts.
func (r *Repairer) escapeByte(c byte) bool {
	switch {
	case r.state == escape && c == 'u':
		r.state, r.digits = digits, 4
	case r.state == escape && isEscape(c):
		r.state = inString
	case r.state == digits && isHex(c):
		r.digits--
		if r.digits == 0 {
			r.state = inString
		}
	default:
		r.pass()
		return false
	}
	r.take(c)
	return true
}

// take passes on a byte of a string.
func (r *Repairer) take(c byte) {
	r.out = append(r.out, c)
	if r.keyed {
		r.names.add(r.out[len(r.out)-1:])
	}
}

func (r *Repairer) open(c byte) bool {
	if len(r.shape.levels) == maxNesting {
		r.pass()
		return false
	}
	r.state = r.shape.open(c, r.names.size)
	r.out = append(r.out, c)
	return true
}

func (r *Repairer) close(c byte) {
	r.names.forget(r.shape.close().names)
	r.out = append(r.out, c)
	r.state = after
	if len(r.shape.levels) == 0 {
		r.state = done
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// isWord reports whether a number or a literal can have a character.
func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
		c == '+' || c == '-' || c == '.' || c == '_'
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// isEscape reports whether JSON has the escape of a character, \u apart.
func isEscape(c byte) bool {
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	}
	return false
}
