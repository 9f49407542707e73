package background

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// testJournal is a journal whose accesses to the store are awaited.
type testJournal struct {
	journal
	store *fakeStore
	reply *scriptedReply
}

// newTestJournal is the journal of a reply with three events that are stored.
func newTestJournal() *testJournal {
	s, reply := &fakeStore{}, &scriptedReply{events: 3}
	env := &run.Env{Now: func() time.Time { return time.Unix(0, 0) }, Workers: &run.Workers{Log: logrus.New()}}
	j := &testJournal{journal: newJournal(s, store.Key{Tenant: "a", ID: "resp_1"}, "me", env, &run.Timers{}, nil), store: s, reply: reply}
	j.begin(reply)
	return j
}

// write sends text of n events.
func (j *testJournal) write(text string, n int, end bool) {
	j.reply.events += n
	j.SendBody([]byte(text), end)
}

// flushAll does what the timer asks for, and waits for the accesses to the store.
func (j *testJournal) flushAll() {
	j.flush()
	for j.storing {
		j.appended(<-j.stored)
	}
}

// fail lets the store fail; nil: it works.
func (j *testJournal) fail(err error) {
	j.store.onAppend = func(context.Context) error { return err }
}

func TestJournalBatches(t *testing.T) {
	t.Parallel()
	j := newTestJournal()
	j.write("a", 1, false)
	j.write(": keep-alive\n", 0, false)
	j.write("bc", 2, false)
	if due := j.timers[run.TimerJournal]; !due.Equal(time.Unix(0, 0).Add(journalDelay)) {
		t.Errorf("due %s", due)
	}
	j.flushAll()
	j.flushAll()
	j.write("d", 1, true)
	j.flushAll()
	want := []store.Batch{{First: 3, Last: 5, SSE: []byte("abc")}, {First: 6, Last: 6, SSE: []byte("d"), End: true}}
	if diff := cmp.Diff(want, j.store.batches); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Batches are stored one after the other: what comes meanwhile waits.
func TestJournalStoresOneBatchAtATime(t *testing.T) {
	t.Parallel()
	j := newTestJournal()
	free := make(chan struct{})
	j.store.onAppend = func(context.Context) error { <-free; return nil }
	j.write("a", 1, false)
	j.flush()
	j.write("b", 1, false)
	j.flush()
	j.write("c", 1, true)
	j.end()
	if j.closed() {
		t.Error("the journal is closed before everything is stored")
	}
	close(free)
	j.flushAll()
	want := []store.Batch{{First: 3, Last: 3, SSE: []byte("a")}, {First: 4, Last: 5, SSE: []byte("bc"), End: true}}
	if diff := cmp.Diff(want, j.store.batches); diff != "" || !j.closed() {
		t.Errorf("closed %t (-want +got):\n%s", j.closed(), diff)
	}
}

// A large batch does not wait. A store that is down loses nothing until too much
// waits for it.
func TestJournalOfAStoreThatIsDown(t *testing.T) {
	t.Parallel()
	j := newTestJournal()
	j.fail(errors.New("down"))
	large := strings.Repeat("x", journalBatch)
	for range 3 {
		j.write(large+"x", 1, false)
		j.flushAll()
	}
	if due := j.timers[run.TimerJournal]; j.fault == nil || due.Sub(j.env.Now()) != journalRetry {
		t.Errorf("fault %v, due %s", j.fault, due)
	}
	j.fail(nil)
	j.flushAll()
	s := j.store
	if len(s.batches) != 2 || s.batches[0].First != 3 || s.batches[0].Last != 3 || s.batches[1].Last != 5 || len(s.batches[1].SSE) != 2*(journalBatch+1) || j.fault != nil {
		t.Errorf("%d batches, fault %v", len(s.batches), j.fault)
	}
	j.fail(errors.New("down"))
	for range journalBacklog/journalBatch + 1 {
		j.write(large, 1, false)
	}
	if !j.closed() || len(j.batch.SSE) > 0 {
		t.Error("more waits than may")
	}
}

// At the end of the run a store that is down is tried once more.
func TestJournalEndsOnAStoreThatIsDown(t *testing.T) {
	t.Parallel()
	j := newTestJournal()
	j.fail(errors.New("down"))
	j.write("a", 1, false)
	j.flushAll()
	j.write("b", 1, true)
	j.end()
	j.flushAll()
	if !j.closed() || j.fault == nil || len(j.store.batches) > 0 {
		t.Errorf("closed %t, fault %v, %d batches", j.closed(), j.fault, len(j.store.batches))
	}
}

// A store that has a batch, but whose answer was lost, rejects it the second time;
// the stream goes on.
func TestJournalOfALostAnswer(t *testing.T) {
	t.Parallel()
	j := newTestJournal()
	j.write("a", 1, false)
	j.fail(errors.New("timeout"))
	j.flushAll()
	j.fail(store.ErrConflict)
	j.flushAll()
	if j.closed() || j.sent != nil {
		t.Fatal("the journal is closed")
	}
	j.fail(nil)
	j.write("b", 1, false)
	j.flushAll()
	if diff := cmp.Diff([]store.Batch{{First: 4, Last: 4, SSE: []byte("b")}}, j.store.batches); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The last events of a reply that could not be stored do not end the stream.
func TestJournalOfALostReply(t *testing.T) {
	t.Parallel()
	j := newTestJournal()
	j.reply.lost = store.ErrConflict
	j.write("a", 1, true)
	j.flushAll()
	if len(j.store.batches) != 1 || j.store.batches[0].End {
		t.Errorf("%+v", j.store.batches)
	}
}

func TestJournalOfALostResponse(t *testing.T) {
	t.Parallel()
	for _, err := range []error{store.ErrConflict, store.ErrNotFound} {
		j := newTestJournal()
		j.fail(err)
		j.write("a", 1, false)
		j.flushAll()
		j.fail(nil)
		j.write("b", 1, true)
		j.flushAll()
		if len(j.store.batches) > 0 || !j.closed() {
			t.Errorf("%v: %d batches", err, len(j.store.batches))
		}
	}
}

// Events that wait for a slow store take memory before they are kept. Without any the
// journal ends; what it has taken is returned in any case.
func TestJournalTakesMemory(t *testing.T) {
	t.Parallel()
	full := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "full")
	for name, c := range map[string]struct {
		limit  int
		closed bool
	}{"enough": {journalBacklog, false}, "too little": {2 * journalRoom, true}} {
		j := newTestJournal()
		taken, most := 0, 0
		j.reserve = func(n int) *apierror.Error {
			if taken+n > c.limit {
				return full
			}
			taken += n
			most = max(most, taken)
			return nil
		}
		j.fail(errors.New("down"))
		j.write("a", 1, false)
		j.flush()
		j.appended(<-j.stored)
		for range 20 {
			j.write(strings.Repeat("b", journalBatch), 1, false)
			if waits := len(j.batch.SSE); waits > journalBatch+taken {
				t.Fatalf("%s: %d bytes wait, %d are taken", name, waits, taken)
			}
		}
		if j.closed() != c.closed || most == 0 {
			t.Errorf("%s: closed %t, %d bytes were taken", name, j.closed(), most)
		}
		j.fail(nil)
		j.flushAll()
		j.flushAll()
		if taken != 0 {
			t.Errorf("%s: %d bytes are not returned", name, taken)
		}
	}
}
