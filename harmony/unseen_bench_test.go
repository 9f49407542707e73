package harmony

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkUnseen encodes different texts in turn, so that pieces of the text
// are not in the encoder's memo.
func BenchmarkUnseen(b *testing.B) {
	for _, kind := range []struct {
		name string
		make func(r *rand.Rand, size int) string
	}{{"prose", words}, {"code", code}, {"json", jsonWords}, {"multilingual", scripts}} {
		b.Run(kind.name, func(b *testing.B) { benchmarkUnseen(b, kind.make, 100_000) })
	}
}

// BenchmarkUnseenWorst is BenchmarkUnseen with input for which other encoders
// take quadratic time.
func BenchmarkUnseenWorst(b *testing.B) {
	for _, w := range worstCases {
		for _, size := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%dKB", w.name, size/1000), func(b *testing.B) { benchmarkUnseen(b, w.text, size) })
		}
	}
}

// benchmarkUnseen measures about 2 MB of texts.
func benchmarkUnseen(b *testing.B, text func(r *rand.Rand, size int) string, size int) {
	r := rand.New(rand.NewPCG(3, 4))
	texts := make([]string, 2_000_000/size)
	var dst []Token
	for i := range texts {
		texts[i] = text(r, size)
		dst = AppendEncode(dst[:0], texts[i])
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		dst = AppendEncode(dst[:0], texts[i%len(texts)])
	}
}
