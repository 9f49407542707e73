package turn

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
		patterns := make([]stopPattern, len(stops))
		for i := range stops {
			stops[i] = word(1 + rng.IntN(5))
			patterns[i] = newStopPattern(stops[i])
		}
		text := word(rng.IntN(16))
		want, wantHit := naive(text, stops)

		m := newStopMatcher(patterns)
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
