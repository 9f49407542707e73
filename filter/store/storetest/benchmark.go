package storetest

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// Benchmark measures the implementation that open opens, with responses of
// about 4 KB.
func Benchmark(b *testing.B, open Open) {
	o := options
	o.ResponseBytes = 1 << 30
	for _, length := range []int{50, 500} {
		s := open(b, o)
		last := ""
		for i := range length {
			r := sized(strconv.Itoa(i), last)
			if err := s.Put(b.Context(), "a", r); err != nil {
				b.Fatal(err)
			}
			last = r.ID
		}

		b.Run(fmt.Sprintf("Chain/%d", length), func(b *testing.B) {
			for b.Loop() {
				if chain, err := s.Chain(b.Context(), "a", last); err != nil || len(chain) != length {
					b.Fatal(len(chain), err)
				}
			}
		})
		b.Run(fmt.Sprintf("Head/%d", length), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Head(b.Context(), "a", last); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("Put/%d", length), func(b *testing.B) {
			for b.Loop() {
				r := sized("new "+strconv.FormatInt(time.Now().UnixNano(), 36), last)
				if err := s.Put(b.Context(), "a", r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}

	s := open(b, o)
	if err := s.Put(b.Context(), "a", live("r", "me", time.Hour)); err != nil {
		b.Fatal(err)
	}

	b.Run("Renew", func(b *testing.B) {
		for b.Loop() {
			if lost, err := s.Renew(
				b.Context(), "me", []store.Key{{Tenant: "a", ID: "r"}}, time.Hour,
			); err != nil || len(lost) > 0 {
				b.Fatal(lost, err)
			}
		}
	})

	b.Run("Append", func(b *testing.B) {
		number := 0
		// The function is run several times, with the same stream.
		if batches, err := s.Events(b.Context(), "a", "r", -1, 0); err == nil && len(batches) > 0 {
			number = batches[len(batches)-1].Last + 1
		}
		for b.Loop() {
			if err := s.Append(b.Context(), "a", "r", "me", batch(number, number, false)); err != nil {
				b.Fatal(err)
			}
			number++
		}
	})
}

// sized returns a response of about 4 KB.
func sized(id, previous string) *store.Response {
	r := response(id, previous)
	for i := range 4 {
		r.Output = append(r.Output, store.Item{
			ID:   id + "_" + strconv.Itoa(i),
			JSON: append(append([]byte(`{"text":"`), bytes.Repeat([]byte("some text "), 100)...), `"}`...),
		})
	}
	return r
}
