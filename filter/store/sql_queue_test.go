package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestWriteQueue checks for how long a queue is busy.
func TestWriteQueue(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	q := &writeQueue{now: func() time.Time { return now }}
	busy := func(when string, want bool) {
		t.Helper()
		if q.busy() != want {
			t.Errorf("%s: busy %v, want %v", when, !want, want)
		}
	}
	busy("an empty queue", false)
	first, second := q.enter(10*writeRate), q.enter(10*writeRate)
	now = now.Add(19 * time.Second)
	busy("before the time for both", true)
	first(nil)
	now = now.Add(9 * time.Second)
	busy("after the first has succeeded", true)
	now = now.Add(2 * time.Second)
	busy("after the time for the second", false)
	third := q.enter(10 * writeRate)
	busy("a further write behind one that hangs", true)
	third(errors.New("failed"))
	busy("a further write that failed", false)
	second(nil)
	busy("the last one has succeeded", false)
	small := q.enter(1000)
	now = now.Add(time.Second)
	busy("a small write that hangs", false)
	small(nil)
}

// busyStore is a store whose texts wait for other writes.
type busyStore struct {
	*Memory
	queue *writeQueue
}

func (s *busyStore) Busy() bool { return s.queue.busy() }

func (s *busyStore) Texts(ctx context.Context, _ string, _ []string) (map[string]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Accesses that wait for large writes do not open the breaker, as long as the writes
// take no longer than they may.
func TestGuardBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &busyStore{Memory: NewMemory(Options{ResponseTTL: time.Hour, TextTTL: time.Hour, TextBytes: 1 << 20}), queue: &writeQueue{now: time.Now}}
		g := Guard(s, GuardOptions{})
		read := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := g.Texts(ctx, "a", []string{"x"})
			return err
		}
		leave := s.queue.enter(20 * writeRate)
		for i := range 15 {
			if err := read(); errors.Is(err, ErrHangs) {
				t.Fatalf("read %d while the store is busy: %v", i, err)
			}
		}
		for range 12 {
			_ = read()
		}
		if err := read(); !errors.Is(err, ErrHangs) {
			t.Errorf("a write that takes longer than it may: %v", err)
		}
		leave(nil)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}
