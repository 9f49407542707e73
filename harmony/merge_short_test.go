package harmony

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestMerged looks up the last merge of every token, and of random pairs of tokens.
func TestMerged(t *testing.T) {
	t.Parallel()
	merges := map[[2]uint32]Token{}
	for id := range Token(ordinaryTokens) {
		text, _ := tokenText(id)
		left := find(text, 0, len(text)).left()
		if left == 0 {
			continue
		}
		pair := [2]uint32{find(text, 0, left).token(), find(text, left, len(text)).token()}
		merges[pair] = id
		if got := merged(pair[0], pair[1]); got != id {
			t.Fatalf("%q and %q merge to %d, want %d", text[:left], text[left:], got, id)
		}
	}

	// Of each pair, neighbours in both numbers too, and what has the same hash in part.
	r := rand.New(rand.NewPCG(43, 44))
	check := func(left, right uint32) {
		want, ok := merges[[2]uint32{left, right}]
		if got := merged(left, right); ok && got != want || !ok && got != noMerge {
			t.Fatalf("%d and %d merge to %d, want %d, %t", left, right, got, want, ok)
		}
	}
	for range 300_000 {
		left, right := r.Uint32N(noMerge), r.Uint32N(noMerge)
		check(left, right)
		check(left, pieceSide)
		check(pieceSide, right)
	}
	for pair := range merges {
		bit := uint32(1) << r.IntN(idBits)
		check(pair[0]^bit, pair[1])
		check(pair[0], pair[1]^bit)
		check(pair[1], pair[0])
	}
}

// TestShortMerger compares merging short pieces with the plain way: pieces of all kinds, of which
// many have characters that tokens cross.
func TestShortMerger(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(45, 46))
	var used shortMerger
	alphabets := [][2]rune{
		{'a', 26},
		{0x20, 95},
		{0xC0, 64},
		{0x100, 128},
		{0x370, 80},
		{0x430, 32},
		{0x531, 86},
		{0x5D0, 27},
		{0x621, 42},
		{0x905, 60},
		{0xE01, 58},
		{0x10A0, 90},
		{0x1780, 90},
		{0x2000, 0x70},
		{0x3041, 80},
		{0x4E00, 0x5000},
		{0x4E00, 300},
		{0xAC00, 11172},
		{0xFF00, 100},
		{0x1F300, 700},
	}
	for range 15_000 {
		a, b := alphabets[r.IntN(len(alphabets))], alphabets[r.IntN(len(alphabets))]
		size := 1 + r.IntN(maxShortPiece)
		piece := ""
		for len(piece) < size {
			switch r.IntN(12) {
			case 0:
				piece += " "
			case 1, 2:
				piece += string(b[0] + r.Int32N(b[1]))
			case 3:
				piece += word(r, utf8.ValidString)
			default:
				piece += string(a[0] + r.Int32N(a[1]))
			}
		}
		if piece = strings.ToValidUTF8(piece[:min(len(piece), size)], ""); piece == "" {
			continue
		}

		want := mergeByRank(piece)
		if got := used.appendTokens([]Token{7}, piece, 0, len(piece)); got[0] != 7 || find(piece, 0, len(piece)) == 0 && !slices.Equal(got[1:], want) {
			t.Fatalf("%q: %v, want %v", piece, got[1:], want)
		}
	}
}

// TestShortMergerCharacters merges each character that is a token, after and before every byte pair
// that tokens cross with a part of a character.
func TestShortMergerCharacters(t *testing.T) {
	t.Parallel()
	var characters []string
	for id := range Token(ordinaryTokens) {
		if text, _ := tokenText(id); len(text) > 1 && utf8.ValidString(text) && utf8.RuneCountInString(text) == 1 {
			characters = append(characters, text)
		}
	}

	var m shortMerger
	r := rand.New(rand.NewPCG(47, 48))
	crossed := 0
	for _, c := range characters {
		for _, other := range append(draws(r, []rune(strings.Join(characters, "")), 3), ' ', '-', 'p', 'i', '\n') {
			for _, piece := range []string{c + string(other), string(other) + c, string(other) + c + string(other) + c} {
				if broken(piece[len(string(other))-1], piece[len(string(other))]) {
					crossed++
				}
				if find(piece, 0, len(piece)) != 0 {
					continue
				}
				if got, want := m.appendTokens(nil, piece, 0, len(piece)), mergeByRank(piece); !slices.Equal(got, want) {
					t.Fatalf("%q: %v, want %v", piece, got, want)
				}
			}
		}
	}
	if crossed < 5_000 {
		t.Errorf("tokens cross the boundary in only %d pieces", crossed)
	}
}
