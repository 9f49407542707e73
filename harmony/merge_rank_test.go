package harmony

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestRankMerger compares merging by rank with the plain way, for pieces of all kinds.
func TestRankMerger(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(31, 32))
	var used rankMerger
	for range 2000 {
		piece := runs(r, 1+r.IntN(200))
		want := mergeByRank(piece)
		if got := used.appendTokens([]Token{7}, piece); got[0] != 7 || !slices.Equal(got[1:], want) {
			t.Fatalf("%q: %v, want %v", piece, got[1:], want)
		}
	}
}

// TestEncodeRuns encodes runs, for which most pairs of tokens are tried: they are merged by
// rank when that takes too long, and the result is the same.
func TestEncodeRuns(t *testing.T) {
	t.Parallel()
	ranked := 0
	for _, unit := range []string{" ", "-", "=", "*", "#", "/", "-=", "\t"} {
		var m merger
		for n := 33; n < 300; n++ {
			piece := strings.Repeat(unit, n/len(unit))
			if look(piece, 0, len(piece)) != 0 {
				continue
			}
			m.ranked.next = nil
			if got, want := m.appendMerged(nil, piece, 0, len(piece)), mergeByRank(piece); !slices.Equal(got, want) {
				t.Fatalf("%d of %q: %v, want %v", n, unit, got, want)
			}
			if m.ranked.next != nil {
				ranked++
			}
		}
	}
	if ranked < 100 {
		t.Errorf("only %d runs were merged by rank", ranked)
	}
}

// runs returns n runs of random units and lengths, or fewer.
func runs(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		unit := []string{" ", "-", "=", "a", "ab", "\n", "é", "\u4e2d", "\x00", "q"}[r.IntN(10)]
		b.WriteString(strings.Repeat(unit, 1+r.IntN(1+n/2)))
	}
	return b.String()
}
