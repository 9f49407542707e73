package tools

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/finder"
)

// mask replaces secrets in texts. It looks for all of them in one pass. nil replaces
// nothing.
//
// A strings.Replacer, which would be less code, takes the first secret at a place and goes on
// after it. Of two that overlap it leaves the end of the second one to be read: abcd and cdef
// in abcdef. Here overlapping secrets are one span. Nor can it say how far a secret reaches that
// begins before the end of a limit.
type mask struct{ secrets *finder.Finder }

// newMask returns a mask of secrets; nil without any.
func newMask(secrets []string) *mask {
	if len(secrets) == 0 {
		return nil
	}
	return &mask{finder.New(secrets)}
}

// span is a part of a text.
type span struct{ from, to int }

// find returns the parts of a text that are secrets, overlapping ones as one, and how
// many moves that took.
func find[T string | []byte](m *mask, text T) (found []span, moves int) {
	at := finder.State(0)

	for i := range len(text) {
		var n int
		at, n = m.secrets.Move(at, text[i])
		moves += n
		length := int(m.secrets.Match(at).Length)
		if length == 0 {
			continue
		}

		// Spans are found in the order of their ends. One that reaches back over earlier ones
		// becomes one with them.
		s := span{i + 1 - length, i + 1}
		for len(found) > 0 && found[len(found)-1].to > s.from {
			s.from = min(s.from, found[len(found)-1].from)
			found = found[:len(found)-1]
		}
		found = append(found, s)
	}

	return found, moves
}

// hide replaces each of the secrets in a text.
func (m *mask) hide(text string) string {
	if m == nil {
		return text
	}
	found, _ := find(m, text)
	if len(found) == 0 {
		return text
	}
	return replace(text, found)
}

func replace(text string, found []span) string {
	var b strings.Builder
	end := 0
	for _, s := range found {
		b.WriteString(text[end:s.from])
		b.WriteString(hidden)
		end = s.to
	}
	b.WriteString(text[end:])
	return b.String()
}

// hideBeginning is hide for the first limit bytes of a text, and reports whether it
// has more. It looks only as far after them as the secrets reach that begin in them.
func (m *mask) hideBeginning(text string, limit int) (beginning string, more bool) {
	if len(text) <= limit {
		return m.hide(text), false
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if m == nil {
		return text[:end], true
	}

	// A secret that begins before the limit is hidden as a whole, or its beginning would be
	// shown; one that begins after it is not there.
	found, _ := find(m, text[:min(len(text), limit+m.secrets.Longest())])
	for len(found) > 0 && found[len(found)-1].from >= end {
		found = found[:len(found)-1]
	}
	if n := len(found); n > 0 {
		end = max(end, found[n-1].to)
	}
	return replace(text[:end], found), true
}

// hideJSON replaces secrets in the strings of a JSON value.
func (m *mask) hideJSON(raw json.RawMessage) json.RawMessage {
	if m == nil {
		return raw
	}

	// Nothing is copied until there is something to hide; end is where what is written ends.
	var out []byte
	end := 0
	for i := 0; i < len(raw); {
		start := bytes.IndexByte(raw[i:], '"')
		if start < 0 {
			break
		}
		start += i
		stop, escaped := endOfString(raw, start)
		if stop < 0 {
			break
		}

		i = stop
		if redacted, ok := m.hideString(raw[start:stop], escaped); ok {
			out = append(append(out, raw[end:start]...), redacted...)
			end = stop
		}
	}

	if out == nil {
		return raw
	}
	return append(out, raw[end:]...)
}

// endOfString returns the end of the JSON string that begins at start, -1 if it has
// none, and whether it has escapes.
func endOfString(raw []byte, start int) (stop int, escaped bool) {
	for i := start + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			return i + 1, escaped
		}
	}
	return -1, escaped
}

// hideString replaces secrets in a JSON string with its quotes, and reports whether
// there are any.
func (m *mask) hideString(quoted []byte, escaped bool) (redacted []byte, ok bool) {
	// Most strings have no escapes, and need not be decoded to find nothing in them.
	if !escaped {
		if found, _ := find(m, quoted[1:len(quoted)-1]); len(found) == 0 {
			return nil, false
		}
	}

	var text string
	if json.Unmarshal(quoted, &text) != nil {
		return nil, false
	}
	changed := m.hide(text)
	if changed == text {
		return nil, false
	}

	// Marshaling a string cannot fail.
	redacted, _ = json.Marshal(changed)
	return redacted, true
}
