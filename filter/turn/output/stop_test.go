package output

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// naive ends a text at the stop string that is complete first, the longest one if
// several end there.
func naive(text string, stops []string) (string, int) {
	for end := range len(text) + 1 {
		hit := -1
		for i, s := range stops {
			if strings.HasSuffix(text[:end], s) && (hit < 0 || len(s) > len(stops[hit])) {
				hit = i
			}
		}
		if hit >= 0 {
			return text[:end-len(stops[hit])], hit
		}
	}
	return text, -1
}

// TestStopMatcher compares the matcher with a naive search, for texts in any pieces,
// and checks that it holds back nothing but the beginning of a stop string.
func TestStopMatcher(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte("ab"[rng.IntN(2)])
		}
		return b.String()
	}

	for range 20_000 {
		stops := make([]string, 1+rng.IntN(3))
		for i := range stops {
			stops[i] = word(1 + rng.IntN(5))
		}

		text := word(rng.IntN(16))
		want, wantHit := naive(text, stops)

		m := newStopMatcher(newStops(stops))
		var got strings.Builder
		hit := -1

		for rest := text; rest != "" && hit < 0; {
			n := 1 + rng.IntN(len(rest))
			var show []byte
			show, hit = m.push([]byte(rest[:n]), false)
			got.Write(show)
			rest = rest[n:]
			held := strings.TrimPrefix(text[:len(text)-len(rest)], got.String())
			if hit < 0 && held != "" && !beginsStop(held, stops) {
				t.Fatalf("%q is held back, stops %q", held, stops)
			}
		}

		if hit < 0 {
			got.Write(m.flush())
		}

		if got.String() != want || hit != wantHit {
			t.Fatalf("%q with stops %q: %q, %d; want %q, %d", text, stops, got.String(), hit, want, wantHit)
		}
	}
}

func beginsStop(held string, stops []string) bool {
	for _, s := range stops {
		if strings.HasPrefix(s, held) {
			return true
		}
	}
	return false
}

// TestStopMatcherAsPatterns compares the matcher with one for each stop string, of many stop
// strings and kinds of bytes, piece by piece.
func TestStopMatcherAsPatterns(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))

	for range 5_000 {
		letters := "abcdefgh"[:1+rng.IntN(8)]
		word := func(n int) string {
			b := make([]byte, n)
			for i := range b {
				b[i] = letters[rng.IntN(len(letters))]
			}
			return string(b)
		}

		texts := make([]string, 1+rng.IntN(64))
		patterns := make([]stopPattern, len(texts))
		for i := range texts {
			texts[i] = word(1 + rng.IntN(8))
			patterns[i] = newStopPattern(texts[i])
		}

		got, want := newStopMatcher(newStops(texts)), newPatternMatcher(patterns)
		keep := rng.IntN(2) == 0

		for range 3 {
			for hit := -1; hit < 0 && rng.IntN(20) > 0; {
				piece := []byte(word(rng.IntN(4)))
				shown, gotHit := got.push(piece, keep)
				wantShown, wantHit := want.push(piece, keep)
				if string(shown) != string(wantShown) || gotHit != wantHit {
					t.Fatalf("stops %q, piece %q: %q, %d; want %q, %d", texts, piece, shown, gotHit, wantShown, wantHit)
				}
				hit = gotHit
			}

			if held, wantHeld := string(got.flush()), string(want.flush()); held != wantHeld {
				t.Fatalf("stops %q: %q is held back, want %q", texts, held, wantHeld)
			}
		}
	}
}

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

// patternMatcher finds stop strings with one matcher for each of them, as a model of
// stopMatcher.
type patternMatcher struct {
	patterns []stopPattern
	// Of each pattern, the length of the prefix that ends the text so far.
	matched []int
	// The text that was held back, and the newest piece.
	buf []byte
	// The end of buf that is held back.
	held []byte
}

func newPatternMatcher(patterns []stopPattern) patternMatcher {
	return patternMatcher{patterns: patterns, matched: make([]int, len(patterns))}
}

// push takes the next piece of text and returns the text that may be shown, which
// is valid until the next call. hit is the index of the pattern that ended the
// text, or -1; keep reports whether its stop string is shown too.
func (m *patternMatcher) push(p []byte, keep bool) (show []byte, hit int) {
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
func (m *patternMatcher) step(c byte) int {
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
func (m *patternMatcher) longest() int {
	n := 0
	for _, k := range m.matched {
		n = max(n, k)
	}
	return n
}

// flush ends the text and returns what was held back, which is valid until the
// next call. The next push begins another text.
func (m *patternMatcher) flush() []byte {
	held := m.held
	m.held = nil
	clear(m.matched)
	return held
}
