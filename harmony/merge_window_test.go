package harmony

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestLongPieces merges long pieces of all kinds window by window, and at once.
func TestLongPieces(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(33, 34))
	for range 150 {
		piece := runs(r, windowBytes+1+r.IntN(3*windowBytes))
		if r.IntN(2) == 0 {
			// Short runs, of which no window is like the one before.
			var b strings.Builder
			for b.Len() <= 2*windowBytes {
				b.WriteString(runs(r, 1+r.IntN(100)))
			}
			piece = b.String()
		}

		var m merger
		got, ok := m.appendWindows([]Token{7}, piece, 0, len(piece), windowRest)
		if !ok {
			t.Fatalf("two windows do not stay apart: %q", piece)
		}
		if want := m.appendPiece([]Token{7}, piece, 0, len(piece), math.MaxInt); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", piece, got, want)
		}
	}
}

// TestLongRuns shows that what a run takes beside reading it does not grow with its length:
// of each only a few windows are merged, and nothing longer than a window.
func TestLongRuns(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{
		" ", "-", "=", "/", "_", "a", "q", "\t", "\n", "\r\n", "  \t", "-=", "=--", "ab", "abc", "\u4e2d", "\u00a0", "\U0001F600", "\ufffd",
	} {
		var m merger
		const size = 1 << 20
		piece := strings.Repeat(unit, size/len(unit))
		tokens := m.appendMerged(nil, piece, 0, len(piece))
		if text, err := AppendDecode(nil, tokens); err != nil || string(text) != piece {
			t.Errorf("%q: the tokens are not those of the text: %v", unit, err)
		}
		if m.windows > 8 || cap(m.failed) > windowBytes/64+1 || cap(m.ranked.next) > 2*windowBytes {
			t.Errorf("%q: %d windows were merged, with room for pieces of %d and %d bytes", unit, m.windows, 64*cap(m.failed), cap(m.ranked.next))
		}
	}
}

// TestWindowsThatTouch merges two windows, of the first of which all but a byte is kept: some do
// not stay apart. Then nothing is appended.
func TestWindowsThatTouch(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(35, 36))
	touching := 0
	for range 300 {
		piece := runs(r, 2*windowBytes)[:windowBytes*3/2]
		var m merger
		got, ok := m.appendWindows([]Token{7}, piece, 0, len(piece), 1)
		if !ok {
			touching++
			if !slices.Equal(got, []Token{7}) {
				t.Fatalf("%q: %v", piece, got)
			}
			continue
		}
		if want := m.appendPiece([]Token{7}, piece, 0, len(piece), math.MaxInt); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", piece, got, want)
		}
	}
	if touching == 0 {
		t.Error("all windows stay apart")
	}
}
