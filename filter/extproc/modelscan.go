package extproc

import (
	"bytes"
	"encoding/json"
	"slices"
)

// maxModelName bounds the bytes kept of a model's name and of a key.
const maxModelName = 512

// modelScan finds the value of the top-level "model" of a JSON object that arrives
// in pieces, without keeping the object. It reads just enough of JSON to follow
// strings and depth; the endpoint checks whether the whole is valid.
type modelScan struct {
	// Where it is.
	depth  int
	inText bool
	escape bool
	key    bool // the next string at depth 1 is a key
	value  bool // the key just read is "model": its value comes next

	// The string that is being read, if it is needed.
	text []byte
	over bool // text grew past its bound

	// What it has found.
	done  bool   // the value of the first "model" has been read
	found bool   // a "model" was seen
	twice bool   // and another one
	other bool   // its value is not a string
	zero  bool   // there is a zero byte, as in UTF-16
	model string // its value

	relayed bool // what is passed on of the body is scanned too
}

// feed takes the next piece. The piece may be cut anywhere.
func (s *modelScan) feed(p []byte) {
	s.zero = s.zero || bytes.IndexByte(p, 0) >= 0
	for i := 0; i < len(p); {
		if s.inText {
			i += s.inside(p[i:])
			continue
		}
		s.outside(p[i])
		i++
	}
}

// inside takes bytes of a string, up to its closing quote or the end of p, and returns
// how many it took. It looks for quotes only: most of a body is strings, and a quote is
// escaped if an odd number of backslashes precedes it.
func (s *modelScan) inside(p []byte) int {
	// After the escaped byte that p begins with.
	from := 0
	if s.escape {
		s.escape, from = false, 1
	}

	for {
		quote := bytes.IndexByte(p[from:], '"')
		end := from + quote
		if quote < 0 {
			end = len(p)
		}
		escape := backslashes(p[from:end])%2 == 1

		switch {
		case quote < 0:
			s.escape = escape
			s.keep(p)
			return len(p)
		case !escape:
			s.keep(p[:end])
			s.inText = false
			s.endText()
			return end + 1
		}

		from = end + 1
	}
}

// backslashes returns the number of backslashes at the end of p.
func backslashes(p []byte) int {
	n := 0
	for n < len(p) && p[len(p)-1-n] == '\\' {
		n++
	}
	return n
}

// keep adds to the text if it is needed.
func (s *modelScan) keep(p []byte) {
	if s.depth != 1 || !s.key && !s.value {
		return
	}
	room := maxModelName - len(s.text)
	if len(p) > room {
		p, s.over = p[:room], true
	}
	s.text = append(s.text, p...)
}

func (s *modelScan) outside(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n', ':':
		return
	case '"':
		s.inText, s.text, s.over = true, s.text[:0], false
		return
	case ',':
		s.key = s.depth == 1
	case '{', '[':
		s.depth++
		s.key = s.depth == 1 && c == '{'
	case '}', ']':
		s.depth--
		s.key = false
	}
	if s.value { // a value that is no string: a number, null, an object
		s.value = false
		s.other = true
		s.done = true
	}
}

// endText is called at the closing quote of any string.
func (s *modelScan) endText() {
	if s.depth != 1 {
		return
	}
	switch {
	case s.key:
		s.key = false
		if !s.over && isModel(s.text) {
			s.value = true
			s.twice = s.found
			s.found = true
		}
	case s.value:
		s.value = false
		if !s.twice {
			s.model = unquote(s.text)
		}
		s.done = true
	}
}

// isModel reports whether the inside of a JSON string is the key "model".
func isModel(b []byte) bool {
	return string(b) == "model" || slices.Contains(b, '\\') && unquote(b) == "model"
}

// unquote decodes the inside of a JSON string. Anything else is returned as it is.
func unquote(b []byte) string {
	for _, c := range b {
		if c == '\\' {
			var out string
			if json.Unmarshal(append(append([]byte{'"'}, b...), '"'), &out) == nil {
				return out
			}
			break
		}
	}
	return string(b)
}
