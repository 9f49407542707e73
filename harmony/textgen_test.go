package harmony

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// This file generates the texts of tests and benchmarks, from words of the
// vocabulary and in the form of typical requests.

// word returns the text of a random token, without the space before it, if keep
// accepts the text. Frequent tokens, which have small ids, are more likely.
func word(r *rand.Rand, keep func(string) bool) string {
	for {
		limit := 1 << (10 + r.IntN(8))
		text, _ := tokenText(Token(r.IntN(limit)))
		if text = strings.TrimPrefix(text, " "); keep(text) {
			return text
		}
	}
}

func asciiWord(s string) bool {
	for i := range len(s) {
		if s[i] < 'a' || s[i] > 'z' {
			return false
		}
	}
	return len(s) > 1
}

func foreignWord(s string) bool {
	for _, c := range s {
		if class := runeClass(c); c < 0x80 || c == '\uFFFD' ||
			class != classUpper && class != classLower && class != classLetter && class != classMark {
			return false
		}
	}
	return s != ""
}

func build(size int, write func(b *strings.Builder)) string {
	var b strings.Builder
	for b.Len() < size {
		write(&b)
	}
	return b.String()
}

func words(r *rand.Rand, size int) string {
	return build(size, func(b *strings.Builder) {
		for i := range 5 + r.IntN(20) {
			w := word(r, asciiWord)
			switch {
			case i == 0:
				w = strings.ToUpper(w[:1]) + w[1:]
			case r.IntN(30) == 0:
				w += word(r, asciiWord) // a word that is not a token
			case r.IntN(40) == 0:
				w += "'s"
			}
			b.WriteString(w)
			b.WriteString([]string{" ", " ", " ", " ", ", ", " - ", " " + strconv.Itoa(r.IntN(3000)) + " "}[r.IntN(7)])
		}
		b.WriteString([]string{".\n", ". ", "? ", ".\n\n"}[r.IntN(4)])
	})
}

func code(r *rand.Rand, size int) string {
	return build(size, func(b *strings.Builder) {
		a, c := word(r, asciiWord), word(r, asciiWord)
		fmt.Fprintf(b, "%sif %s_%s != nil && %sX%d(%s[%d]) {\n%s\treturn %q, %s.%s%s() // %s %s\n%s}\n",
			strings.Repeat("\t", r.IntN(4)), a, c, c, r.IntN(99), a, r.IntN(5000),
			strings.Repeat("    ", r.IntN(4)), word(r, asciiWord), a, strings.ToUpper(c[:1]), c[1:],
			word(r, asciiWord), strings.ToUpper(word(r, asciiWord)), strings.Repeat("\n", r.IntN(3)))
	})
}

func jsonWords(r *rand.Rand, size int) string {
	return build(size, func(b *strings.Builder) {
		fmt.Fprintf(b, `{"id":"%08x","%s_%s":%d.%d,"%s":[%t,null,"%s"],`+"\n  "+`"description": "%s"},`,
			r.Uint32(), word(r, asciiWord), word(r, asciiWord), r.IntN(100000), r.IntN(100),
			word(r, asciiWord), r.IntN(2) == 0, word(r, asciiWord), strings.TrimSpace(words(r, 40)))
	})
}

func scripts(r *rand.Rand, size int) string {
	return build(size, func(b *strings.Builder) {
		for range 1 + r.IntN(4) {
			b.WriteString(word(r, foreignWord))
		}
		b.WriteString([]string{" ", " ", " ", "\u3002", ", ", "\n"}[r.IntN(6)])
	})
}

// odd returns random code points of all kinds, spellings of special tokens, and
// strings that the pattern treats specially.
func odd(r *rand.Rand, size int) string {
	pieces := []string{
		"'s", "'S", "'\u017f", "'ll", "'LL", "'re", "'Ve", "'", "''", "<|start|>", "<|", "|>", "\r\n", "\n\n",
		"\n", "\r", " ", "  ", "\t", "\u00a0", "\u3000", "\u0085", "\u2028", "\x00", "\x00\x00", "/", "//", "\u0301",
		"\u200d", "\U0001F469", "\u01c5", "\u02b0", "\u4e2d", "\u216b", "\u00bd", "123", "4567", "A", "a", "\u0410\u0430", "\ufffd",
	}
	return build(size, func(b *strings.Builder) {
		switch r.IntN(6) {
		case 0:
			b.WriteRune(r.Int32N(0x110000))
		case 1:
			b.WriteRune(r.Int32N(0x3000))
		case 2:
			b.WriteByte(byte(r.IntN(0x80)))
		case 3:
			b.WriteString(word(r, func(string) bool { return true }))
		default:
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
	})
}

// draws returns n characters of an alphabet.
func draws(r *rand.Rand, alphabet []rune, n int) (some []rune) {
	for range n {
		some = append(some, alphabet[r.IntN(len(alphabet))])
	}
	return some
}
