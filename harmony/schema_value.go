package harmony

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth is the maximum depth of JSON, as in the reference.
const maxJSONDepth = 127

// manyMembers is the number of members from which an object's duplicate names
// are found with a map instead of a linear search.
const manyMembers = 16

type valueKind uint8

const (
	kindNull valueKind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

// value is a JSON value. Objects keep the order of their members, because the
// order of properties is shown to the model. A duplicate name has the position
// of its first occurrence and the value of its last one, as in the reference.
type value struct {
	kind valueKind

	// One of these has the data, by the kind.

	// text is that of a string, decoded, or of a number as it stands in the source.
	text    string
	boolean bool
	// items are the elements of an array.
	items []value
	// members are those of an object.
	members []member
}

type member struct {
	name  string
	value value
}

// get returns a member of an object, or nil.
func (v *value) get(name string) *value {
	if v == nil || v.kind != kindObject {
		return nil
	}
	for i := range v.members {
		if v.members[i].name == name {
			return &v.members[i].value
		}
	}
	return nil
}

// str returns the text of a string, or false for other values.
func (v *value) str() (string, bool) {
	if v == nil || v.kind != kindString {
		return "", false
	}
	return v.text, true
}

// array returns the items of an array, or nil for other values.
func (v *value) array() []value {
	if v == nil || v.kind != kindArray {
		return nil
	}
	return v.items
}

// object returns the members of an object, or nil for other values.
func (v *value) object() []member {
	if v == nil || v.kind != kindObject {
		return nil
	}
	return v.members
}

// isTrue reports whether v is the literal true.
func (v *value) isTrue() bool { return v != nil && v.kind == kindBool && v.boolean }

// parseValue parses JSON. Empty input is null.
func parseValue(data []byte) (*value, error) {
	p := valueParser{src: string(data)}
	p.space()
	if p.pos == len(p.src) {
		return &value{}, nil
	}

	v, err := p.value(0)
	if err != nil {
		return nil, err
	}

	p.space()
	if p.pos < len(p.src) {
		return nil, p.unexpected()
	}
	return &v, nil
}

type valueParser struct {
	src string
	pos int
}

func (p *valueParser) unexpected() error {
	if p.pos >= len(p.src) {
		return errors.New("the JSON ends early")
	}
	return fmt.Errorf("not JSON at byte %d", p.pos)
}

func (p *valueParser) space() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// accept skips c and the white space around it, if c comes next. It reports
// whether it did.
func (p *valueParser) accept(c byte) bool {
	p.space()
	if p.pos == len(p.src) || p.src[p.pos] != c {
		return false
	}
	p.pos++
	p.space()
	return true
}

func (p *valueParser) value(depth int) (value, error) {
	if depth > maxJSONDepth {
		return value{}, fmt.Errorf("it nests deeper than %d levels", maxJSONDepth)
	}
	if p.pos == len(p.src) {
		return value{}, p.unexpected()
	}

	switch c := p.src[p.pos]; c {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case '"':
		s, err := p.string()
		return value{kind: kindString, text: s}, err
	case 't':
		return value{kind: kindBool, boolean: true}, p.literal("true")
	case 'f':
		return value{kind: kindBool}, p.literal("false")
	case 'n':
		return value{}, p.literal("null")
	default:
		return p.number()
	}
}

func (p *valueParser) literal(word string) error {
	if !strings.HasPrefix(p.src[p.pos:], word) {
		return p.unexpected()
	}
	p.pos += len(word)
	return nil
}

func (p *valueParser) array(depth int) (value, error) {
	v := value{kind: kindArray}
	p.accept('[')
	if p.accept(']') {
		return v, nil
	}

	for {
		item, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}

		// append alone would copy long lists five times.
		if n := len(v.items); n == cap(v.items) {
			v.items = slices.Grow(v.items, max(n, 1))
		}
		v.items = append(v.items, item)

		if p.accept(']') {
			return v, nil
		}
		if !p.accept(',') {
			return v, p.unexpected()
		}
	}
}

func (p *valueParser) object(depth int) (value, error) {
	v := value{kind: kindObject}
	p.accept('{')
	if p.accept('}') {
		return v, nil
	}
	var index map[string]int

	for {
		if p.pos == len(p.src) || p.src[p.pos] != '"' {
			return v, p.unexpected()
		}

		name, err := p.string()
		if err != nil {
			return v, err
		}
		if !p.accept(':') {
			return v, p.unexpected()
		}

		item, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}
		index = v.setMember(name, item, index)

		if p.accept('}') {
			return v, nil
		}
		if !p.accept(',') {
			return v, p.unexpected()
		}
	}
}

// setMember adds or replaces a member. index maps names to positions; it is nil
// as long as there are few.
func (v *value) setMember(name string, item value, index map[string]int) map[string]int {
	if index == nil {
		if old := v.get(name); old != nil {
			*old = item
			return nil
		}
	} else if i, ok := index[name]; ok {
		v.members[i].value = item
		return index
	}

	v.members = append(v.members, member{name, item})
	if index != nil {
		index[name] = len(v.members) - 1
	} else if len(v.members) == manyMembers {
		index = make(map[string]int, 2*manyMembers)
		for i := range v.members {
			index[v.members[i].name] = i
		}
	}
	return index
}

// number parses a JSON number.
func (p *valueParser) number() (value, error) {
	start := p.pos
	p.acceptAny("-")
	if !p.acceptAny("0") && !p.digits() {
		return value{}, p.unexpected()
	}

	if p.acceptAny(".") && !p.digits() {
		return value{}, p.unexpected()
	}
	if p.acceptAny("eE") {
		p.acceptAny("+-")
		if !p.digits() {
			return value{}, p.unexpected()
		}
	}

	v := value{kind: kindNumber, text: p.src[start:p.pos]}

	// A number beyond the range of a double has no form in which it could be written.
	if f, err := strconv.ParseFloat(v.text, 64); err != nil && math.IsInf(f, 0) {
		return v, fmt.Errorf("the number at byte %d is out of range", start)
	}
	return v, nil
}

func (p *valueParser) acceptAny(chars string) bool {
	if p.pos == len(p.src) || strings.IndexByte(chars, p.src[p.pos]) < 0 {
		return false
	}
	p.pos++
	return true
}

func (p *valueParser) digits() bool {
	start := p.pos
	for p.pos < len(p.src) && '0' <= p.src[p.pos] && p.src[p.pos] <= '9' {
		p.pos++
	}
	return p.pos > start
}

// string parses a string. Invalid UTF-8 and lone surrogates become U+FFFD.
func (p *valueParser) string() (string, error) {
	p.pos++
	for i := p.pos; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '"':
			s := p.src[p.pos:i]
			p.pos = i + 1
			return strings.ToValidUTF8(s, replacement), nil
		case c == '\\':
			return p.escapedString(i)
		case c < ' ':
			p.pos = i
			return "", p.unexpected()
		}
	}

	p.pos = len(p.src)
	return "", p.unexpected()
}

// escapedString parses the rest of a string whose first escape is at i.
func (p *valueParser) escapedString(i int) (string, error) {
	b := append([]byte(nil), p.src[p.pos:i]...)
	p.pos = i

	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == '"':
			p.pos++
			return strings.ToValidUTF8(string(b), replacement), nil
		case c < ' ':
			return "", p.unexpected()
		case c == '\\':
			var err error
			if b, err = p.escape(b); err != nil {
				return "", err
			}
		default:
			b = append(b, c)
			p.pos++
		}
	}
	return "", p.unexpected()
}

func (p *valueParser) escape(b []byte) ([]byte, error) {
	if p.pos+1 >= len(p.src) {
		p.pos = len(p.src)
		return b, p.unexpected()
	}

	c := p.src[p.pos+1]
	if c == 'u' {
		r, ok := p.hex4(p.pos)
		if !ok {
			return b, p.unexpected()
		}
		p.pos += 6

		// Two surrogates are one character. One alone becomes U+FFFD when it is appended.
		if low, ok := p.hex4(p.pos); ok && utf16.IsSurrogate(r) {
			if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
				r = full
				p.pos += 6
			}
		}
		return utf8.AppendRune(b, r), nil
	}

	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return b, p.unexpected()
	}
	p.pos += 2
	return append(b, "\"\\/\b\f\n\r\t"[i]), nil
}

// hex4 parses the escape \uXXXX at i.
func (p *valueParser) hex4(i int) (rune, bool) {
	if i+6 > len(p.src) || p.src[i] != '\\' || p.src[i+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(p.src[i+2:i+6], 16, 32)
	return rune(n), err == nil
}

// appendJSON appends v as compact JSON in the format of serde_json: only what
// JSON requires is escaped, and members keep their order.
func (v *value) appendJSON(dst []byte) []byte {
	switch v.kind {
	case kindBool:
		return strconv.AppendBool(dst, v.boolean)
	case kindNumber:
		return appendNumber(dst, v.text)
	case kindString:
		return appendQuoted(dst, v.text)
	case kindArray:
		dst = append(dst, '[')
		for i := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.items[i].appendJSON(dst)
		}
		return append(dst, ']')

	case kindObject:
		dst = append(dst, '{')
		for i := range v.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, v.members[i].name), ':')
			dst = v.members[i].value.appendJSON(dst)
		}
		return append(dst, '}')
	case kindNull:
	}
	return append(dst, "null"...)
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= ' ':
			dst = append(dst, c)
		default:
			if j := strings.IndexByte("\b\t\n\f\r", c); j >= 0 {
				dst = append(dst, '\\', "btnfr"[j])
			} else {
				dst = append(dst, '\\', 'u', '0', '0', '0'+c>>4, hexDigits[c&15])
			}
		}
	}
	return append(dst, '"')
}

// appendNumber appends a JSON number in the format of serde_json: 64-bit
// integers are unchanged, all others become the shortest decimal that parses to
// the same value, with an exponent only outside of 1e-5 to 1e16.
func appendNumber(dst []byte, text string) []byte {
	// serde_json reads -0 as a float, which it writes as -0.0.
	if !strings.ContainsAny(text, ".eE") && text != "-0" {
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return append(dst, text...)
		}
		if _, err := strconv.ParseUint(text, 10, 64); err == nil {
			return append(dst, text...)
		}
	}

	f, _ := strconv.ParseFloat(text, 64) // parseValue has checked it
	if math.Signbit(f) {
		dst = append(dst, '-')
		f = -f
	}

	if f == 0 {
		return append(dst, "0.0"...)
	}

	var buf [32]byte
	mantissa, exponent, _ := strings.Cut(string(strconv.AppendFloat(buf[:0], f, 'e', -1, 64)), "e")

	digits := strings.Replace(mantissa, ".", "", 1)
	exp, _ := strconv.Atoi(exponent) // the format of AppendFloat
	point := exp + 1                 // position of the decimal point in digits

	// The format of Rust's ryu: plain within these bounds, else with an exponent.
	switch {
	case len(digits) <= point && point <= 16:
		dst = append(dst, digits...)
		return append(append(dst, "0000000000000000"[:point-len(digits)]...), ".0"...)
	case 0 < point && point <= 16:
		return append(append(append(dst, digits[:point]...), '.'), digits[point:]...)
	case -5 < point && point <= 0:
		return append(append(append(dst, "0."...), "0000"[:-point]...), digits...)
	}

	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(append(dst, '.'), digits[1:]...)
	}
	return strconv.AppendInt(append(dst, 'e'), int64(exp), 10)
}
