package turn

// stopPattern is a stop string with its failure function (Knuth-Morris-Pratt): for
// the length of every matched prefix, the length of the longest shorter one that
// ends at the same byte.
type stopPattern struct {
	text []byte
	fail []int
}

func newStopPattern(s string) stopPattern {
	p := stopPattern{text: []byte(s), fail: make([]int, len(s)+1)}
	for i, k := 1, 0; i < len(s); i++ {
		for k > 0 && s[i] != s[k] {
			k = p.fail[k]
		}
		if s[i] == s[k] {
			k++
		}
		p.fail[i+1] = k
	}
	return p
}

// stopMatcher finds stop strings in a text that comes in pieces. The result does
// not depend on where the pieces are cut: the stop string that is complete first
// ends the text, the longest one if several end at the same byte, and only the
// beginning of a possible stop string is held back.
type stopMatcher struct {
	patterns []stopPattern
	matched  []int  // of each pattern, the length of the prefix that ends the text so far
	buf      []byte // the text that was held back, and the newest piece
	held     []byte // the end of buf that is held back
}

func newStopMatcher(patterns []stopPattern) stopMatcher {
	return stopMatcher{patterns: patterns, matched: make([]int, len(patterns))}
}

// push takes the next piece of text and returns the text that may be shown, which
// is valid until the next call. hit is the index of the pattern that ended the
// text, or -1; keep reports whether its stop string is shown too.
func (m *stopMatcher) push(p []byte, keep bool) (show []byte, hit int) {
	if len(m.patterns) == 0 {
		return p, -1
	}
	m.buf = append(append(m.buf[:0], m.held...), p...)
	scanned := len(m.buf) - len(p)
	for i, c := range p {
		if hit = m.step(c); hit < 0 {
			continue
		}
		end := scanned + i + 1
		if !keep {
			end -= len(m.patterns[hit].text)
		}
		m.held = nil
		return m.buf[:end], hit
	}
	free := len(m.buf) - m.longest()
	m.held = m.buf[free:]
	return m.buf[:free], -1
}

// step advances every pattern by one byte and returns the longest complete one, or
// -1.
func (m *stopMatcher) step(c byte) int {
	hit := -1
	for i := range m.patterns {
		p := &m.patterns[i]
		k := m.matched[i]
		for k > 0 && p.text[k] != c {
			k = p.fail[k]
		}
		if p.text[k] == c {
			k++
		}
		m.matched[i] = k
		if k == len(p.text) && (hit < 0 || k > len(m.patterns[hit].text)) {
			hit = i
		}
	}
	return hit
}

// longest returns the length of the longest prefix of a stop string that ends the
// text.
func (m *stopMatcher) longest() int {
	n := 0
	for _, k := range m.matched {
		n = max(n, k)
	}
	return n
}

// flush ends the text and returns what was held back, which is valid until the
// next call. The next push begins another text.
func (m *stopMatcher) flush() []byte {
	held := m.held
	m.held = nil
	clear(m.matched)
	return held
}
