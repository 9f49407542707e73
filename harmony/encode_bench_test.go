package harmony

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// BenchmarkEncode measures texts of the kinds that requests contain.
// bench/peers.sh compares the encoder with others on real text.
func BenchmarkEncode(b *testing.B) {
	for _, kind := range []struct {
		name string
		make func(r *rand.Rand, size int) string
	}{{"words", words}, {"code", code}, {"json", jsonWords}, {"scripts", scripts}} {
		b.Run(kind.name, func(b *testing.B) {
			benchmarkEncode(b, kind.make(rand.New(rand.NewPCG(1, 2)), 1<<20))
		})
	}
}

// BenchmarkEncodeWorst measures input for which other encoders take quadratic
// time.
func BenchmarkEncodeWorst(b *testing.B) {
	for _, w := range worstCases {
		for _, size := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%dKB", w.name, size/1000), func(b *testing.B) {
				benchmarkEncode(b, w.text(rand.New(rand.NewPCG(1, 2)), size))
			})
		}
	}
}

// BenchmarkEncodeLine measures calls with about 200 bytes each.
func BenchmarkEncodeLine(b *testing.B) {
	text := words(rand.New(rand.NewPCG(1, 2)), 1<<20)
	var lines []string
	for ; len(text) > 200; text = text[200:] {
		lines = append(lines, text[:200])
	}
	var dst []Token
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		dst = AppendEncode(dst[:0], lines[i%len(lines)])
	}
}

func benchmarkEncode(b *testing.B, text string) {
	dst := AppendEncode(nil, text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendEncode(dst[:0], text)
	}
	b.ReportMetric(float64(len(dst)), "tokens")
}

func BenchmarkDecoder(b *testing.B) {
	tokens := AppendEncode(nil, words(rand.New(rand.NewPCG(1, 2)), 1<<16))
	var (
		d   Decoder
		dst []byte
	)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		dst, _ = d.Append(dst[:0], tokens[i%len(tokens)])
	}
}

// worstCases are texts that consist of one piece or nearly so, or contain few
// tokens.
var worstCases = []struct {
	name string
	text func(r *rand.Rand, size int) string
}{
	{"letter", repeated("a")},
	{"spaces", repeated(" ")},
	{"newlines", repeated("\n")},
	{"punctuation", repeated("!")},
	{"mixed-spaces", drawn(" \t\r\n\u00a0\u3000")},
	{"han", repeated("\u4e2d\u6587\u5b57\u7b26")},
	{"random-letters", drawn("abcdefghijklmnopqrstuvwxyz")},
	{"random-han", func(r *rand.Rand, size int) string {
		return draw(r, size, func() rune { return 0x4e00 + r.Int32N(0x5000) })
	}},
	{"base64", drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")},
	{"digits", drawn("0123456789")},
	{"punctuations", drawn("!#$%&()*+,-./:;<=>?@[]^_{|}~")},
	{"marks", drawn("a\u0301\u0302\u093e\u0940")},
	{"two-letters", drawn("ab")},
}

func repeated(unit string) func(*rand.Rand, int) string {
	return func(_ *rand.Rand, size int) string { return strings.Repeat(unit, size/len(unit)) }
}

func drawn(alphabet string) func(*rand.Rand, int) string {
	runes := []rune(alphabet)
	return func(r *rand.Rand, size int) string {
		return draw(r, size, func() rune { return runes[r.IntN(len(runes))] })
	}
}

func draw(_ *rand.Rand, size int, next func() rune) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteRune(next())
	}
	return b.String()
}
