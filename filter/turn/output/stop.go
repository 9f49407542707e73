package output

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/finder"
)

// stops are the stop strings of a turn. The zero value has none.
type stops struct {
	texts []string
	// Nil: there are none.
	finder *finder.Finder
}

func newStops(texts []string) stops {
	if len(texts) == 0 {
		return stops{}
	}

	// The texts may be parts of the request's body.
	own := make([]string, len(texts))
	for i, text := range texts {
		own[i] = strings.Clone(text)
	}

	return stops{own, finder.New(own)}
}

// stopMatcher finds stop strings in a text that comes in pieces. The result does
// not depend on where the pieces are cut: the stop string that is complete first
// ends the text, the longest one if several end at the same byte, and only the
// beginning of a possible stop string is held back.
//
// It searches, holding back what may begin a stop string. A stop string that is complete leaves
// the search for good: the choice ends there. flush begins the search of another text.
type stopMatcher struct {
	stops stops
	at    finder.State
	// The text that was held back, and the newest piece.
	buf []byte
	// The end of buf that is held back.
	held []byte
}

func newStopMatcher(s stops) stopMatcher { return stopMatcher{stops: s} }

// push takes the next piece of text and returns the text that may be shown, which
// is valid until the next call. hit is the index of the stop string that ended the
// text, or -1; keep reports whether it is shown too.
func (m *stopMatcher) push(piece []byte, keep bool) (show []byte, hit int) {
	words := m.stops.finder
	if words == nil {
		return piece, -1
	}

	m.buf = append(append(m.buf[:0], m.held...), piece...)
	scanned := len(m.buf) - len(piece)

	// The first stop string that is complete ends the text, and the longest one of those that end
	// together.
	for i, c := range piece {
		m.at, _ = words.Move(m.at, c)
		match := words.Match(m.at)
		if match.Length == 0 {
			continue
		}

		end := scanned + i + 1
		if !keep {
			end -= int(match.Length)
		}
		m.held = nil
		return m.buf[:end], int(match.Word)
	}

	// What may be the beginning of a stop string waits for its rest.
	free := len(m.buf) - words.Begun(m.at)
	m.held = m.buf[free:]
	return m.buf[:free], -1
}

// flush ends the text and returns what was held back, which is valid until the
// next call. The next push begins another text.
func (m *stopMatcher) flush() []byte {
	held := m.held
	m.held, m.at = nil, 0
	return held
}
