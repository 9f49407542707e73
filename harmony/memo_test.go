package harmony

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// plainEncode encodes without the fast paths: pieces by pieceEnd, merged by
// rank.
func plainEncode(text string) (tokens []Token) {
	for i := 0; i < len(text); {
		end := pieceEnd(text, i)
		tokens = append(tokens, mergeByRank(text[i:end])...)
		i = end
	}
	return tokens
}

// TestEncodeMemo encodes texts with an encoder that has not seen them and with
// one that has seen them and others.
func TestEncodeMemo(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	used := new(encoder)
	for range 60 {
		for _, text := range []string{
			words(r, 300), code(r, 300), jsonWords(r, 300), scripts(r, 300), odd(r, 100), odd(r, 20) + "\x00\x00", memoPieces(r),
		} {
			text = strings.ToValidUTF8(text, "")
			want := plainEncode(text)
			if got := new(encoder).appendText(nil, text); !slices.Equal(got, want) {
				t.Fatalf("%q: a new encoder returns %v, want %v", text, got, want)
			}
			for range 2 {
				if got := used.appendText(nil, text); !slices.Equal(got, want) {
					t.Fatalf("%q: a used encoder returns %v, want %v", text, got, want)
				}
			}
		}
	}
}

// memoPieces returns pieces around the sizes at which another memo or none is
// responsible, some of which differ only in bytes at their end, or in NULs.
func memoPieces(r *rand.Rand) string {
	var b strings.Builder
	for range 30 {
		n := []int{7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33}[r.IntN(12)]
		unit := []string{"q", "xz", "-", "#!", "\u05e9", "\u4e2d\u6587", "\x00", "\x01"}[r.IntN(8)]
		piece := strings.Repeat(unit, n/len(unit))
		b.WriteString(piece[:max(0, len(piece)-r.IntN(2)*len(unit))])
		b.WriteString([]string{" ", "\n", "1", "\x00", ".", ""}[r.IntN(6)])
	}
	return b.String()
}

// TestPairMemo encodes pieces that are too long to be remembered, and so uses what is
// known of pairs of tokens: of each unit alone, and of several in a random order.
func TestPairMemo(t *testing.T) {
	units := []string{"a", "q", "xz", "the", "\u05e9", "\u4e2d", "\u6587\u5b57", "\u00e9", "K", "-", "=", "#!", " ", "\t", "\n", "\r"}
	r := rand.New(rand.NewPCG(5, 6))
	used := new(encoder)
	for range 40 {
		few := [3]string{}
		for i := range few {
			few[i] = units[r.IntN(len(units))]
		}
		var mixed strings.Builder
		for range 80 {
			mixed.WriteString(few[r.IntN(len(few))])
		}
		for _, text := range []string{strings.Repeat(few[0], maxMemo+r.IntN(100)), mixed.String()} {
			want := plainEncode(text)
			for range 2 {
				if got := used.appendText(nil, text); !slices.Equal(got, want) {
					t.Fatalf("%q: %v, want %v", text, got, want)
				}
			}
		}
	}
}

// TestPairMemoKey compares what is remembered with what holds, for pairs of tokens of
// which each differs from the one before in one bit of one id.
func TestPairMemoKey(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var memo pairMemo
	results := map[bool]int{}
	check := func(a, b Token) {
		left, _ := tokenText(a)
		right, _ := tokenText(b)
		s, i := left+right, len(left)
		if left == "" || right == "" || left[i-1] == 0 || s[len(s)-1] == 0 {
			return
		}
		l, e := part{0, find(s, 0, i)}, find(s, i, len(s))
		want := apart(s, l, i, len(s), e)
		for range 2 {
			if got := memo.apart(s, l, i, len(s), e); got != want {
				t.Fatalf("%q and %q: %v, want %v", left, right, got, want)
			}
		}
		results[want]++
	}
	for range 1000 {
		a, b := Token(r.IntN(100_000)), Token(r.IntN(100_000))
		check(a, b)
		for bit := range idBits {
			check(a^1<<bit, b)
			check(a, b)
			check(a, b^1<<bit)
		}
	}
	if results[true] < 1000 || results[false] < 1000 {
		t.Errorf("one result is rare: %v", results)
	}
}

// TestEncodeShortPieces encodes all short texts of some alphabets, alone and
// before more text, so that the loop for ASCII sees each form of a piece.
func TestEncodeShortPieces(t *testing.T) {
	alphabet := []string{"a", "B", " ", "\n", "\r", "\t", "'", "s", "1", ".", "/", "\x00", "\u00e9", "\u0301"}
	e := new(encoder)
	var check func(text string, depth int)
	check = func(text string, depth int) {
		for _, long := range []string{text, text + strings.Repeat("zq", 20), text + strings.Repeat("Q", 40)} {
			if got, want := e.appendText(nil, long), plainEncode(long); !slices.Equal(got, want) {
				t.Fatalf("%q: got %v, want %v", long, got, want)
			}
		}
		if depth > 0 {
			for _, c := range alphabet {
				check(text+c, depth-1)
			}
		}
	}
	check("", 3)
}

// TestQuick looks up every token, and texts that are none, in the table of the
// loop for ASCII.
func TestQuick(t *testing.T) {
	found, all := 0, 0
	for id := range Token(ordinaryTokens) {
		text, _ := tokenText(id)
		if len(text) > maxShort || text[0] == 0 || text[len(text)-1] == 0 {
			continue
		}
		all++
		switch v := quick(load(text, 0) * hashFactor); {
		case v == uint64(id):
			found++
		case v < 1<<quickBits:
			t.Errorf("%q is token %d, quick returns %d", text, id, v)
		}
	}
	if found < all*3/4 {
		t.Errorf("quick finds %d of %d tokens, want three quarters", found, all)
	}
	r := rand.New(rand.NewPCG(13, 14))
	for range 300_000 {
		text := draw(r, 1+r.IntN(8), func() rune { return 1 + r.Int32N(0x7F) })
		text = text[:min(len(text), maxShort)]
		if v := quick(load(text, 0) * hashFactor); v < 1<<quickBits && find(text, 0, len(text)).token() != Token(v) {
			t.Fatalf("quick returns %d for %q, which is not this token", v, text)
		}
	}
}

func TestPack(t *testing.T) {
	ids := []Token{0, 1, lastSpecial, 1<<18 - 1, 199997, 5}
	r := rand.New(rand.NewPCG(15, 16))
	for size := 1; size <= 13; size++ {
		var words [4]uint64
		tokens := make([]Token, size)
		for i := range tokens {
			tokens[i] = ids[r.IntN(len(ids))]
		}
		if ok := pack(words[:], tokens); ok != (size <= 12) {
			t.Fatalf("pack of %d tokens = %t", size, ok)
		} else if !ok {
			continue
		}
		if got := appendPacked(nil, words[0], words[1:]); !slices.Equal(got, tokens) {
			t.Errorf("%v is unpacked as %v", tokens, got)
		}
	}
}

// TestLineMemo encodes lines of one character of many lengths, of which the keys differ in little.
func TestLineMemo(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	used := new(encoder)
	for range 400 {
		unit := []string{"-", "=", "*", " ", "\u4e2d", "\x00", "#-"}[r.IntN(7)]
		n := []int{33, 34, 40, 62, 63, 64, 100, 300, maxLine, maxLine + 1}[r.IntN(10)] + r.IntN(3)
		line := []byte(strings.Repeat(unit, n/len(unit)))

		// One byte differs near an end, or in the middle, where the line is none.
		if at := []int{-1, 0, 7, 8, 15, 16, 20, len(line) - 9, len(line) - 8, len(line) - 1}[r.IntN(10)]; at >= 0 {
			line[at] = "~+\n "[r.IntN(4)]
		}
		text := strings.ToValidUTF8([]string{"", "a", "\n", "1"}[r.IntN(4)]+string(line)+"1 and more text than any load reads", "")
		if got, want := used.appendText(nil, text), plainEncode(text); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	}
}
