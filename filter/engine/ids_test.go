package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Lists of ids are the same as those that the standard library writes.
func TestIDList(t *testing.T) {
	all := make([]harmony.Token, longID+100)
	for i := range all {
		all[i] = harmony.Token(i) //nolint:gosec // small
	}
	random := rand.New(rand.NewPCG(1, 1))
	lists := [][]harmony.Token{nil, {0}, {9}, {999_999}, {longID}, {math.MaxUint32}, {1, longID, 2, 0}, {7, math.MaxUint32}, all}
	lists = slices.Grow(lists, 1000)
	for range 1000 {
		list := make([]harmony.Token, random.IntN(20))
		for i := range list {
			list[i] = random.Uint32() >> random.IntN(32)
		}
		lists = append(lists, list)
	}
	for _, list := range lists {
		for _, room := range []int{0, 1, 7, 1000} {
			dst := append(make([]byte, 0, room), '[')
			want := appendLongIDs([]byte{'['}, list)
			if got := appendIDList(dst, list); string(got) != string(want) {
				t.Fatalf("%.100v: %.100s, want %.100s", list, got, want)
			}
		}
	}
}

// A body for a prompt is not moved while its ids are written.
func TestPromptBodyIsAllocatedOnce(t *testing.T) {
	r := &Request{Prompt: make([]harmony.Token, 10000), MaxTokens: 1}
	for i := range r.Prompt {
		r.Prompt[i] = 199_999
	}
	o := newBody(r)
	o.text("model", "gpt-oss")
	if n := testing.AllocsPerRun(10, func() {
		written := o
		written.ids("prompt", r.Prompt)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkIDList(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	ids := make([]harmony.Token, 200_000)
	for i := range ids {
		ids[i] = harmony.Token(random.IntN(200_000) >> random.IntN(10))
	}
	for name, write := range map[string]func([]byte, []harmony.Token) []byte{"words": appendIDList, "library": appendLongIDs} {
		b.Run(name, func(b *testing.B) {
			var dst []byte
			for b.Loop() {
				dst = write(dst[:0], ids)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/id")
		})
	}
}
