package arguments

import (
	"bytes"
	"encoding/json"
	"strings"
)

// shape is which brackets are open, and whether a bracket that is missing at the end, or is
// too many there, can be missing or too many elsewhere.
type shape struct {
	levels []level
	// An object or array has had a member or a value.
	filled bool

	// An object with several members is in an object that only objects are around. Its
	// last bracket can belong to the outer one: {"a":{"b":1,"c":2} is {"a":{"b":1},"c":2}
	// or {"a":{"b":1,"c":2}}.
	movable bool
	// A member follows an object, and only objects are around the two. The last bracket
	// of that object may be the one that is too many: {"a":{"b":1},"c":2}} is
	// {"a":{"b":1,"c":2}} or {"a":{"b":1},"c":2}.
	followed bool
	// The outer object has several members. Closing brackets of two kinds after it may be those
	// of a list and an object in it whose first brackets are missing: {"a":1,"b":2}]} is
	// {"a":[1,{"b":2}]} or {"a":1,"b":2}.
	severalMembers bool
	// Something follows an object or a list within the outer object, whose last bracket may be
	// one that is too many there: {"a":[{"b":{"c":1},"d":2}]}]} may be {"a":[{"b":{"c":1,"d":2}}]}.
	goesOn bool

	// The last value, if it is a text.
	text lastText
}

// lastText is what is known of the brackets of a text that is the last value so far. One of them
// and the quote behind it may have changed places: {"a":"if (b) {c"}} is {"a":"if (b) {c}"} or
// {"a":"if (b) {c"}, and {"a":"b}" is {"a":"b"} or {"a":"b}"}.
type lastText struct {
	// How many are open.
	curly, square int
	// One closes that was not open.
	closed bool
	// The last byte; 0: the end of an escape, or none.
	last byte
}

// add takes the next bytes of the text.
func (t *lastText) add(text []byte) {
	for _, c := range text {
		switch c {
		case '{':
			t.curly++
		case '}':
			t.curly--
		case '[':
			t.square++
		case ']':
			t.square--
		}
		t.closed = t.closed || t.curly < 0 || t.square < 0
		t.last = c
	}
}

// mayHaveBracket reports whether a bracket that is missing or too many behind the text may be
// one of the text, or the text's last one of those behind it.
func (t *lastText) mayHaveBracket() bool {
	return t.closed || t.curly != 0 || t.square != 0 || t.last == '}' || t.last == ']'
}

// level is an open object or array.
type level struct {
	bracket byte
	// Only objects are around it.
	inObjects bool
	// It has a member or value.
	one bool
	// It has several.
	several bool
	// An object is in it, and is complete.
	hasObject bool
	// The same of an object or a list.
	hasClosed bool
	// Where the names of its members begin.
	names int
}

// open begins an object or array, and returns what comes next.
func (s *shape) open(bracket byte, names int) state {
	l := level{bracket: bracket, inObjects: true, names: names}
	if n := len(s.levels); n > 0 {
		s.value()
		outer := s.levels[n-1]
		l.inObjects = outer.inObjects && outer.bracket == '{'
	}
	s.levels = append(s.levels, l)

	if bracket == '{' {
		return firstKey
	}
	return firstValue
}

// closes reports whether a byte is the bracket that ends the innermost level.
func (s *shape) closes(c byte) bool {
	// In ASCII [ and ] are two apart, and so are { and }.
	return s.levels[len(s.levels)-1].bracket == c-2 && (c == '}' || c == ']')
}

// close ends the innermost level.
func (s *shape) close() level {
	last := len(s.levels) - 1
	l := s.levels[last]
	s.levels = s.levels[:last]

	if last > 0 {
		outer := &s.levels[last-1]
		outer.hasClosed = true
		outer.hasObject = outer.hasObject || l.bracket == '{' && l.inObjects
	}
	return l
}

// next returns what comes after a comma.
func (s *shape) next() state {
	if s.levels[len(s.levels)-1].bracket == '{' {
		return key
	}
	return value
}

// inArray reports whether the next value is in an array.
func (s *shape) inArray() bool { return s.levels[len(s.levels)-1].bracket == '[' }

// value notes a value: one of an array is an element of it.
func (s *shape) value() {
	s.text = lastText{}
	if s.inArray() {
		s.element()
	}
}

// element notes a member or a value of the innermost level.
func (s *shape) element() {
	s.filled = true

	l := &s.levels[len(s.levels)-1]
	l.one, l.several = true, l.one

	// Once true these stay true: a bracket at the end may belong anywhere before.
	s.followed = s.followed || l.hasObject
	s.goesOn = s.goesOn || l.hasClosed
	s.severalMembers = s.severalMembers || l.several && len(s.levels) == 1
	s.movable = s.movable || l.several && l.bracket == '{' && l.inObjects && len(s.levels) > 1
}

// lacksLast reports whether the last bracket is missing, and can be missing nowhere else. If
// two are missing, one of them may have been written as another bracket.
func (s *shape) lacksLast() bool { return len(s.levels) == 1 && !s.movable }

// isExtra reports whether closing brackets after the object are too many, and no others. Where
// another bracket is missing, or has closed too early, something stands after it.
func (s *shape) isExtra(brackets string) bool {
	switch {
	// The object was in lists whose first brackets are missing, or in none: it is the same one.
	case !strings.Contains(brackets, "}"):
		return true
	case !strings.Contains(brackets, "]"):
		return !s.followed
	}

	return !s.severalMembers && !s.goesOn
}

// maxNames bounds the names that are kept of open objects. It is the size of an array, so
// that valid arguments cost no memory.
const maxNames = 512

// names keeps the names of the members of open objects, as they were written, each with
// quotes and a comma. Two members of one name have two readings.
type names struct {
	text [maxNames]byte
	size int
	// Some are not kept. Then nothing is repaired.
	lost bool
	// An object has one of them twice.
	twice bool
	// Where the last one begins.
	last int
	// The object has the tool's only parameter.
	fits bool
}

func (n *names) begin() {
	n.last = n.size
	n.append([]byte{'"'})
}

// looksLikeMore reports whether the text of a name may be two names and what is between them,
// or one that has another spelling, because of its escapes.
func looksLikeMore(name []byte) bool { return bytes.ContainsAny(name, `'"{}[]:,\`) }

// add adds text of a name.
func (n *names) add(text []byte) {
	n.lost = n.lost || looksLikeMore(text)
	n.append(text)
}

func (n *names) append(text []byte) {
	if n.lost = n.lost || n.size+len(text) > maxNames; !n.lost {
		n.size += copy(n.text[n.size:], text)
	}
}

// end ends a name of an object whose names begin at from. Those of the outer object are
// compared with the parameter.
func (n *names) end(parameter string, from int, outer bool) {
	n.append([]byte{'"', ','})
	if n.lost {
		return
	}
	name := n.text[n.last:n.size]
	n.twice = n.twice || bytes.Contains(n.text[from:n.last], name)
	n.fits = n.fits || outer && string(name[1:len(name)-2]) == parameter
}

// forget forgets the names of an object that is complete.
func (n *names) forget(from int) {
	if !n.lost {
		n.size = from
	}
}

// of returns the names of the open objects, each with true; nil for arrays. It reports
// false if some are not known or are there twice.
func (n *names) of(levels []level) ([]map[string]bool, bool) {
	if n.lost || n.twice {
		return nil, false
	}

	// The names of an inner object stand after those of the outer ones.
	known := make([]map[string]bool, len(levels))
	for i, end := len(levels)-1, n.size; i >= 0; i-- {
		begin := levels[i].names
		if begin == end {
			continue
		}

		// They are written as the elements of an array, so that JSON reads their escapes.
		list := append(append([]byte{'['}, n.text[begin:end-1]...), ']')
		var names []string
		if json.Unmarshal(list, &names) != nil {
			return nil, false
		}

		known[i] = map[string]bool{}
		for _, name := range names {
			if known[i][name] {
				return nil, false
			}
			known[i][name] = true
		}

		end = begin
	}
	return known, true
}
