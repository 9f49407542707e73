package store_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// Counts in memory are bounded: those of windows that have ended make room.
func TestMemoryCountsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := store.NewMemory(store.Options{Now: func() time.Time { return now }})
	charge := func(name int) error {
		_, err := s.Charge(t.Context(), []store.Charge{{Name: strconv.Itoa(name), Window: time.Hour, Amount: 1}})
		return err
	}
	n := 0
	for ; n < 1<<20; n++ {
		if err := charge(n); errors.Is(err, store.ErrTooLarge) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n == 0 || n == 1<<20 || charge(0) != nil {
		t.Fatalf("%d counts, and the first is there: %v", n, charge(0))
	}
	now = now.Add(time.Hour)
	for i := range n {
		if charge(n+i) == nil {
			return
		}
	}
	t.Error("windows that have ended make no room")
}
