package store

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
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
	last := q.enter(10 * writeRate)
	now = now.Add(-24 * time.Hour)
	busy("after the clock was set back", true)
	now = now.Add(10 * time.Second)
	busy("after the time for the write, by the clock that was set back", false)
	last(nil)
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
func TestBreakerStoreBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &busyStore{Memory: NewMemory(Options{ResponseTTL: time.Hour, TextTTL: time.Hour, TextBytes: 1 << 20}), queue: &writeQueue{now: time.Now}}
		g := WithBreaker(s, BreakerOptions{})
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

// TestSQLQueueBytes makes each kind of write that may be large and checks that the queue
// counts its bytes meanwhile.
func TestSQLQueueBytes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := OpenSQLite(ctx, filepath.Join(t.TempDir(), "store.db"), Options{ResponseTTL: time.Hour, TextTTL: time.Hour, ResponseBytes: 1 << 20, TextBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	counted := func() int64 {
		s.queue.mu.Lock()
		defer s.queue.mu.Unlock()
		return s.queue.bytes
	}
	// Every statement contains the time.
	var most int64
	now := s.now
	s.now = func() string {
		most = max(most, counted())
		return now()
	}
	if err := s.PutConversation(ctx, "a", &Conversation{ID: "c"}); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte{'x'}, 10_000)
	for name, write := range map[string]func() error{
		"a response":        func() error { return s.Put(ctx, "a", &Response{ID: "r", Version: 1, Object: large}) },
		"items":             func() error { return s.AddItems(ctx, "a", "c", "", []Item{{ID: "i", JSON: large}}) },
		"texts":             func() error { return s.PutTexts(ctx, "a", map[string]string{"x": string(large)}) },
		"a batch of events": func() error { return s.Append(ctx, "a", "live", "me", Batch{SSE: large}) },
		"a text if absent":  func() error { _, err := s.PutTextIfAbsent(ctx, "a", "y", string(large)); return err },
		"an approval":       func() error { return s.CompleteApproval(ctx, "a", "z", string(large)) },
		"metadata":          func() error { return s.PutMetadata(ctx, "a", "c", large) },
	} {
		if name == "a batch of events" {
			if err := s.Put(ctx, "a", &Response{ID: "live", Version: 1, Live: true, Owner: "me", Lease: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		most = 0
		if err := write(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if most < int64(len(large)) {
			t.Errorf("%s: the queue has counted %d bytes, want %d", name, most, len(large))
		}
		if left := counted(); left != 0 {
			t.Errorf("%s: the queue counts %d bytes after the write", name, left)
		}
	}
}
