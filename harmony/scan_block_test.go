package harmony

import (
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestBlockStarts cuts texts of all kinds into pieces by blocks, from every piece on, and compares
// them with the pattern.
func TestBlockStarts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(41, 42))
	cut := 0
	check := func(s string) {
		s = strings.ToValidUTF8(s, "") + strings.Repeat(" ", 2)
		for i := 0; i+blockBytes+2 <= len(s); i = pieceEnd(s, i) {
			starts := blockStarts(s, i)
			if starts&1 == 0 {
				t.Fatalf("%q: no piece begins where the block does", s[i:])
			}
			at := i
			for starts &= starts - 1; starts != 0; starts &= starts - 1 {
				if end, want := i+bits.TrailingZeros64(starts), pieceEnd(s, at); end != want {
					t.Fatalf("%q: %q is a piece, want %q", s[i:i+blockBytes+2], s[at:end], s[at:want])
				}
				at = pieceEnd(s, at)
				cut++
			}
		}
	}

	letters := []rune("aBcD12 \n\r\t\v'/;.sStlLvereRmd\x00\u00e9\u017f\u00a0\u0301\u4e2d")
	for range 400 {
		for _, text := range []string{words(r, 200), code(r, 200), jsonWords(r, 200), scripts(r, 200), odd(r, 200)} {
			check(text)
		}

		// Few different characters, so that each follows each in all ways, and all of them.
		few := 2 + r.IntN(6)
		for _, alphabet := range [][]rune{draws(r, letters, few), draws(r, letters[:26], few), letters} {
			check(draw(r, 200, func() rune { return alphabet[r.IntN(len(alphabet))] }))
		}
	}
	if cut < 100_000 {
		t.Errorf("blocks cut only %d pieces", cut)
	}
}

// TestBlockEnds encodes texts of which each kind of piece crosses the end of a block, and the end of
// what is read after it.
func TestBlockEnds(t *testing.T) {
	t.Parallel()
	pieces := []string{
		"don't", "DON'T've", "x'\u017f", "12345678", "  \n  x", ");\n\n//a", " ((", "\t(a", "aB'rE", "caf\u00e9", "''", "a'", "\x00\x00", "  \u00a0x", "\n\n \n",
	}
	for _, piece := range pieces {
		for before := range blockBytes + 8 {
			for _, after := range []string{"", "z", " and more text, as much as a block has, so that another one begins after the first"} {
				text := strings.Repeat("a ", before/2) + strings.Repeat("b", before%2) + piece + after
				if !utf8.ValidString(text) {
					t.Fatalf("%q is not UTF-8", text)
				}
				checkEncode(t, text)
			}
		}
	}
}
