package filter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// shelf is a journal in the store that writes down what it gets.
type shelf struct {
	store.Store
	batches []store.Batch
	err     error
}

func (s *shelf) Append(_ context.Context, _, _, _ string, b store.Batch) error {
	if s.err == nil {
		s.batches = append(s.batches, b)
	}
	return s.err
}

// counter stands for the reply whose events a journal keeps.
type counter struct {
	backgroundReply
	n    int
	lost error
}

func (c *counter) Lost() error { return c.lost }

func (c *counter) Sequence() int { return c.n }

func newTestJournal() (*journal, *shelf, *counter) {
	s, c := &shelf{}, &counter{n: 3}
	return &journal{store: s, reply: c, timers: &timers{}, now: func() time.Time { return time.Unix(0, 0) }, next: 3}, s, c
}

func TestJournalBatches(t *testing.T) {
	t.Parallel()
	j, s, c := newTestJournal()
	say := func(text string, events int, end bool) {
		c.n += events
		j.write([]byte(text), end)
	}
	say("a", 1, false)
	say(": keep-alive\n\n", 0, false)
	say("bc", 2, false)
	if due := j.timers[timerJournal]; !due.Equal(time.Unix(0, 0).Add(journalDelay)) {
		t.Errorf("due %s", due)
	}
	j.flush(t.Context())
	j.flush(t.Context())
	say("d", 1, true)
	j.flush(t.Context())
	want := []store.Batch{{First: 3, Last: 5, SSE: []byte("abc")}, {First: 6, Last: 6, SSE: []byte("d"), End: true}}
	if diff := cmp.Diff(want, s.batches); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A large batch does not wait, and a store that is down loses nothing until
// too much waits for it.
func TestJournalOfAStoreThatIsDown(t *testing.T) {
	t.Parallel()
	j, s, c := newTestJournal()
	s.err = errors.New("down")
	large := strings.Repeat("x", journalBatch)
	for range 3 {
		c.n++
		j.write([]byte(large+"x"), false)
		j.flush(t.Context())
	}
	if due := j.timers[timerJournal]; j.fault == nil || due.Sub(j.now()) != journalRetry {
		t.Errorf("fault %v, due %s", j.fault, due)
	}
	s.err = nil
	j.flush(t.Context())
	if len(s.batches) != 2 || s.batches[0].First != 3 || s.batches[0].Last != 3 || s.batches[1].Last != 5 || len(s.batches[1].SSE) != 2*(journalBatch+1) || j.fault != nil {
		t.Errorf("%d batches, fault %v", len(s.batches), j.fault)
	}
	s.err = errors.New("down")
	for range journalBacklog/journalBatch + 1 {
		c.n++
		j.write([]byte(large), false)
	}
	if !j.closed || len(j.batch.SSE) > 0 {
		t.Error("more waits than may")
	}
}

// A store that has a batch but did not say so refuses it the second time; the
// stream goes on.
func TestJournalOfALostAnswer(t *testing.T) {
	t.Parallel()
	j, s, c := newTestJournal()
	c.n++
	j.write([]byte("a"), false)
	s.err = errors.New("timeout")
	j.flush(t.Context())
	s.err = store.ErrConflict
	c.n++
	j.write([]byte("b"), false)
	if j.send(t.Context()); j.closed || j.sent != nil {
		t.Fatal("the journal is closed")
	}
	s.err = nil
	j.flush(t.Context())
	if diff := cmp.Diff([]store.Batch{{First: 4, Last: 4, SSE: []byte("b")}}, s.batches); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a reply that is not this process's any more writes last does not end the
// stream.
func TestJournalOfALostReply(t *testing.T) {
	t.Parallel()
	j, s, c := newTestJournal()
	c.n++
	c.lost = store.ErrConflict
	j.write([]byte("a"), true)
	j.flush(t.Context())
	if len(s.batches) != 1 || s.batches[0].End {
		t.Errorf("%+v", s.batches)
	}
}

func TestJournalOfALostResponse(t *testing.T) {
	t.Parallel()
	for _, err := range []error{store.ErrConflict, store.ErrNotFound} {
		j, s, c := newTestJournal()
		s.err = err
		c.n++
		j.write([]byte("a"), false)
		j.flush(t.Context())
		s.err = nil
		c.n++
		j.write([]byte("b"), true)
		j.flush(t.Context())
		if len(s.batches) > 0 || !j.closed {
			t.Errorf("%v: %d batches", err, len(s.batches))
		}
	}
}

// What another process has ended is told to its maker, once.
func TestLeases(t *testing.T) {
	t.Parallel()
	m := store.NewMemory(store.Options{ResponseBytes: 1 << 20, ResponseTTL: time.Hour, TextTTL: time.Hour})
	l := newLeases(m, "me")
	lost := make(chan string, 10)
	for _, id := range []string{"kept", "cancelled", "deleted"} {
		if err := m.Put(t.Context(), "a", &store.Response{ID: id, Version: 1, Object: []byte("{}"), Live: true, Owner: "me", Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		l.hold(store.Key{Tenant: "a", ID: id}, func() { lost <- id })
	}
	if err := m.Put(t.Context(), "a", &store.Response{ID: "cancelled", Version: 2, Object: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(t.Context(), "a", "deleted"); err != nil {
		t.Fatal(err)
	}
	l.renew(t.Context())
	l.renew(t.Context())
	told := map[string]int{<-lost: 1}
	told[<-lost]++
	if diff := cmp.Diff(map[string]int{"cancelled": 1, "deleted": 1}, told); diff != "" || len(lost) > 0 {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	for _, id := range []string{"kept", "cancelled", "deleted"} {
		l.drop(store.Key{Tenant: "a", ID: id})
	}
	l.done.Wait()
}
