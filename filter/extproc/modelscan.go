package extproc

import (
	"encoding/json"
	"slices"
)

// maxModelName bounds the bytes kept of a model's name and of a key.
const maxModelName = 512

// modelScan finds the value of the top-level "model" of a JSON object that arrives
// in pieces, without keeping the object. It reads just enough of JSON to follow
// strings and depth; the endpoint checks whether the whole is valid.
type modelScan struct {
	depth  int
	inText bool
	escape bool
	key    bool // the next string at depth 1 is a key
	value  bool // the key just read is "model": its value comes next
	text   []byte
	over   bool // text grew past its bound

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
	for _, c := range p {
		s.zero = s.zero || c == 0
		if s.inText {
			s.inside(c)
			continue
		}
		s.outside(c)
	}
}

func (s *modelScan) inside(c byte) {
	switch {
	case s.escape:
		s.escape = false
	case c == '\\':
		s.escape = true
	case c == '"':
		s.inText = false
		s.endText()
		return
	}
	if s.depth != 1 || !s.key && !s.value {
		return
	}
	if len(s.text) >= maxModelName {
		s.over = true
		return
	}
	s.text = append(s.text, c)
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
