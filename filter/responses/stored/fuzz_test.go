package stored

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// FuzzTake reads arbitrary journals: batches as the store returns them, which may
// overlap, repeat and be out of order. A follower gets at most what is stored, and what
// it gets of batches in order does not depend on how they were read.
func FuzzTake(f *testing.F) {
	f.Add(-1, []byte{2, 3}, []byte("a\n\nb\n\nc\n\n"), 0, 1)
	f.Add(4, []byte{1}, []byte("a\n\n"), -1<<63, 1<<62)
	f.Add(1<<62, []byte{}, []byte("\n\n\n"), 5, -7)
	f.Fuzz(func(t *testing.T, after int, sizes, text []byte, first, last int) {
		sizes = sizes[:min(len(sizes), 16)]
		b := make([]store.Batch, 0, len(sizes)+1)
		total := 0
		for _, n := range sizes { // events in order
			batch := store.Batch{First: total, Last: total + int(n%8)}
			for ; total <= batch.Last; total++ {
				batch.SSE = append(batch.SSE, "data: "+strconv.Itoa(total)+"\n\n"...)
			}
			b = append(b, batch)
		}
		room := func(int) *apierror.Error { return nil }
		whole, _, _ := (&Follower{after: -1}).take(b, room)
		var pieces []byte
		one := &Follower{after: -1}
		for i := range b {
			sse, _, _ := one.take(b[max(0, i-1):i+1], room) // the one before comes once more
			pieces = append(pieces, sse...)
		}
		if !bytes.Equal(whole, pieces) {
			t.Errorf("at once %q, in pieces %q", whole, pieces)
		}
		hostile := append(b, store.Batch{First: first, Last: last, SSE: text})
		stored := 0
		for i := range hostile {
			stored += len(hostile[i].SSE)
		}
		if sse, _, _ := (&Follower{after: after}).take(hostile, room); len(sse) > stored {
			t.Errorf("%d bytes of %d", len(sse), stored)
		}
	})
}
