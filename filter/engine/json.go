package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// scanner reads one JSON text from front to back, each byte once, and builds
// nothing: the caller takes the members it knows and skips the others. After
// the first byte that is no JSON, bad is set and every answer is a zero value.
type scanner struct {
	b   []byte
	i   int
	bad bool
}

// enter steps into the object ('{') or array ('[') that comes next. Another
// value is skipped and reported as false.
func (s *scanner) enter(open byte) bool {
	s.space()
	if s.peek() != open {
		s.skip()
		return false
	}
	s.i++
	return true
}

// more says whether the object ('}') or array (']') that was entered goes on,
// and steps to its next member or past its end.
func (s *scanner) more(end byte) bool {
	if s.bad {
		return false
	}
	first := s.b[s.i-1] == end-2 // in ASCII, { and [ stand two before } and ]
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

// key returns the next member's name as it is written between its quotes.
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

// integer returns the next value, ok false if it is no integer that fits.
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

// count returns the next value where it is an integer, else Unknown.
func (s *scanner) count() int {
	if n, ok := s.integer(); ok {
		return n
	}
	return Unknown
}

// number returns the next value, NaN if it is no number.
func (s *scanner) number() float64 {
	v, err := strconv.ParseFloat(string(s.raw()), 64)
	if err != nil && !math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// elements steps into the array that comes next and lets read read each of its
// elements. Another value is skipped.
func (s *scanner) elements(read func()) {
	if !s.enter('[') {
		return
	}
	for s.more(']') {
		read()
	}
}

// whole says that nothing but space follows and nothing was wrong.
func (s *scanner) whole() bool {
	s.space()
	return !s.bad && s.i == len(s.b)
}

// skip steps over the next value.
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

// skipFlat steps over an array of numbers, such as a prompt's ids.
func (s *scanner) skipFlat() bool {
	end := bytes.IndexByte(s.b[s.i:], ']')
	if end < 0 {
		return false
	}
	inner := s.b[s.i+1 : s.i+end]
	if bytes.IndexByte(inner, '"') >= 0 || bytes.IndexByte(inner, '[') >= 0 || bytes.IndexByte(inner, '{') >= 0 || bytes.IndexByte(inner, '}') >= 0 {
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

// peek returns the next byte, 0 (and bad) where there is none.
func (s *scanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	s.bad = true
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// ends says that c cannot stand in a number or a literal.
func ends(c byte) bool {
	return isSpace(c) || c == ',' || c == ':' || c == '"' || c == '{' || c == '}' || c == '[' || c == ']'
}

// text returns the string that raw writes, "" if it is no string.
func text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// countIDs says how many elements the array of numbers raw has.
func countIDs(raw []byte) int {
	for _, c := range raw {
		if c >= '0' && c <= '9' {
			return bytes.Count(raw, []byte(",")) + 1
		}
	}
	return 0
}

// lastIDs returns what raw, an array of numbers, writes from its n-th last
// element on.
func lastIDs(raw []byte, n int) []byte {
	end := len(raw)
	for ; n > 0 && end > 0; n-- {
		end = bytes.LastIndexByte(raw[:end], ',')
	}
	return raw[max(end, 0):]
}

// appendIDs appends the numbers in raw: an array of token ids or the rest of
// one. It is false if anything else stands there.
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
