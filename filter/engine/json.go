package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// scanner reads one JSON text in a single pass without allocating. The caller
// reads the members it needs and skips the others. At the first invalid byte,
// bad is set; all later results are zero values.
type scanner struct {
	b   []byte
	i   int
	bad bool
}

// enter enters the next value if it is an object (open is '{') or an array
// (open is '['). It skips any other value and returns false.
func (s *scanner) enter(open byte) bool {
	s.space()
	if s.peek() != open {
		s.skip()
		return false
	}
	s.i++
	return true
}

// more reports whether the current object (end is '}') or array (end is ']')
// has another member, and moves to that member or past the end.
func (s *scanner) more(end byte) bool {
	if s.bad {
		return false
	}
	// In ASCII, the codes of { and [ are two less than those of } and ].
	first := s.b[s.i-1] == end-2
	s.space()
	switch c := s.peek(); {
	case c == end:
		s.i++
		return false
	case first:
		return !s.bad
	case c == ',':
		s.i++
		return true
	}
	s.bad = true
	return false
}

// key returns the name of the next member as it is written, without the quotes.
func (s *scanner) key() []byte {
	s.space()
	if s.peek() != '"' {
		s.bad = true
		return nil
	}
	name := s.raw()
	s.space()
	if s.peek() != ':' {
		s.bad = true
		return nil
	}
	s.i++
	return name[1 : len(name)-1]
}

// raw returns the next value as it is written.
func (s *scanner) raw() []byte {
	s.space()
	from := s.i
	s.skip()
	if s.bad {
		return nil
	}
	return s.b[from:s.i]
}

// integer returns the next value. ok is false if it is not an integer of at
// most 18 digits.
func (s *scanner) integer() (n int, ok bool) {
	raw := s.raw()
	if len(raw) == 0 || len(raw) > 18 {
		return 0, false
	}
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// count returns the next value if it is an integer, else Unknown.
func (s *scanner) count() int {
	if n, ok := s.integer(); ok {
		return n
	}
	return Unknown
}

// number returns the next value, or NaN if it is not a number.
func (s *scanner) number() float64 {
	// 1e999 is a number in JSON, and is infinite here.
	v, err := strconv.ParseFloat(string(s.raw()), 64)
	if err != nil && !math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// elements enters the next value if it is an array and calls read for each
// element, which read must consume. It skips any other value.
func (s *scanner) elements(read func()) {
	if !s.enter('[') {
		return
	}
	for s.more(']') {
		read()
	}
}

// member enters the next value if it is an object, and calls read for its member of this
// name, which read must consume. It returns false for any other value, which it skips.
func (s *scanner) member(name string, read func()) bool {
	if !s.enter('{') {
		return false
	}
	for s.more('}') {
		if string(s.key()) == name {
			read()
		} else {
			s.skip()
		}
	}
	return true
}

// last is elements for the last n elements of an array. The others are skipped: a list
// that grows with each event is not read again with each event.
func (s *scanner) last(n int, read func()) {
	count := 0
	ahead := *s
	ahead.elements(func() { count++; ahead.skip() })

	s.elements(func() {
		count--
		if count < n {
			read()
		} else {
			s.skip()
		}
	})
}

// whole reports whether the text was valid and nothing but white space is left.
func (s *scanner) whole() bool {
	s.space()
	return !s.bad && s.i == len(s.b)
}

// skip skips the next value.
func (s *scanner) skip() {
	s.space()
	switch s.peek() {
	case '"':
		s.skipString()
	case '[':
		if !s.skipFlat() {
			s.skipNested()
		}
	case '{':
		s.skipNested()
	default:
		from := s.i
		// What it is does not matter: the reader of a number or a literal checks it.
		for s.i < len(s.b) && !ends(s.b[s.i]) {
			s.i++
		}
		if s.i == from {
			s.bad = true
		}
	}
}

func (s *scanner) skipString() {
	for i := s.i + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '"':
			s.i = i + 1
			return
		case '\\':
			i++
		}
	}
	s.i, s.bad = len(s.b), true
}

// skipFlat skips an array of numbers, such as the ids of a prompt. It returns
// false for other arrays and does not move.
func (s *scanner) skipFlat() bool {
	// IndexByte reads many bytes at a time, and a prompt of a hundred thousand ids is a megabyte.
	end := bytes.IndexByte(s.b[s.i:], ']')
	if end < 0 {
		return false
	}
	inner := s.b[s.i+1 : s.i+end]
	if bytes.IndexByte(inner, '"') >= 0 || bytes.IndexByte(inner, '[') >= 0 || bytes.IndexByte(inner, '{') >= 0 ||
		bytes.IndexByte(inner, '}') >= 0 {
		return false
	}
	s.i += end + 1
	return true
}

func (s *scanner) skipNested() {
	depth := 0
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '"':
			s.skipString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.i++
		if depth == 0 {
			return
		}
	}
	s.bad = true
}

func (s *scanner) space() {
	for s.i < len(s.b) && isSpace(s.b[s.i]) {
		s.i++
	}
}

// peek returns the next byte. At the end it sets bad and returns 0.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	s.bad = true
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// ends reports whether c ends a number or a literal.
func ends(c byte) bool {
	return isSpace(c) || c == ',' || c == ':' || c == '"' || c == '{' || c == '}' || c == '[' || c == ']'
}

// text returns the string in the JSON text raw, or "" if raw is not a string.
func text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	// Most texts have no escapes.
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// countIDs returns the number of elements of raw, an array of numbers.
func countIDs(raw []byte) int {
	// An array without a digit is empty, and has no comma either.
	for _, c := range raw {
		if c >= '0' && c <= '9' {
			return bytes.Count(raw, []byte(",")) + 1
		}
	}
	return 0
}

// lastIDs returns the end of raw, an array of numbers, from its n-th last
// element on.
func lastIDs(raw []byte, n int) []byte {
	end := len(raw)
	for ; n > 0 && end > 0; n-- {
		end = bytes.LastIndexByte(raw[:end], ',')
	}
	return raw[max(end, 0):]
}

// appendIDs appends the numbers in raw, which is an array of token ids or the
// end of one. It returns false if raw contains anything else.
func appendIDs(ids []harmony.Token, raw []byte) ([]harmony.Token, bool) {
	for i := 0; i < len(raw); {
		c := raw[i]
		if c < '0' || c > '9' {
			if c != ',' && c != '[' && c != ']' && !isSpace(c) {
				return ids, false
			}
			i++
			continue
		}

		// strconv would need a string.
		id := uint64(0)
		for ; i < len(raw) && raw[i] >= '0' && raw[i] <= '9'; i++ {
			if id = id*10 + uint64(raw[i]-'0'); id > math.MaxUint32 {
				return ids, false
			}
		}
		ids = append(ids, harmony.Token(id))
	}
	return ids, true
}
