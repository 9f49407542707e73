package background

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

const (
	// journalDelay is how long the events of a background response wait for
	// others to be stored with them, unless they are journalBatch bytes.
	journalDelay = 50 * time.Millisecond
	journalBatch = 64 << 10
	// journalRetry is the time before a store that failed is tried again;
	// journalBacklog is how many bytes may wait for it.
	journalRetry   = time.Second
	journalBacklog = 8 << 20
	// journalRoom is how much memory is taken at one time for events that wait, beyond
	// the first journalBatch of them.
	journalRoom = 256 << 10
	// drainTries is how many accesses to a store that fails the end of a response
	// waits for.
	drainTries = 3
	// storeTimeout bounds one access to the store.
	storeTimeout = 5 * time.Second
	// endTimeout bounds what does not end by itself when a response ends: the
	// access of a store that does not respect storeTimeout and, at a shutdown, the
	// retries of storing the response.
	endTimeout = 3 * storeTimeout
)

// journalPhase is how far a journal has come.
//
//	phase    next                     by
//	open     ending                   end: the run has ended
//	         closed                   close: the response is another's, a batch is too large, too
//	                                  many events wait, or there is no memory for them
//	ending   closed                   flush: nothing is left; or close: the one attempt failed, or
//	                                  TimerJournal expired
//	closed   nothing                  followers get the end from the stored response
//
// While it is open or ending, at most one access to the store is made (storing). A batch that
// could not be stored stays in sent, and is stored again before any other: batches must follow
// one another.
type journalPhase uint8

const (
	journalOpen   journalPhase = iota
	journalEnding              // the run has ended: what is left is stored, with one attempt
	journalClosed              // nothing more is stored
)

// journal is the downstream of a background run: it stores the events of the
// stream for those who follow it. Its accesses to the store run beside the run,
// one at a time; each sends its result to stored.
type journal struct {
	store  store.Journal
	key    store.Key
	owner  string
	env    *run.Env
	timers *run.Timers
	reply  api.BackgroundReply
	// stored takes the result of an access. It has room for one, so that the access ends even if
	// the run has.
	stored chan error
	// reserve takes memory for events that wait because the store is slow.
	reserve func(bytes int) *apierror.Error

	phase journalPhase
	// next is the number of the next event.
	next int
	// sent is being stored (storing), or is to be stored again; nil: there is none.
	sent    *store.Batch
	storing bool
	// batch is what comes after sent, and room the bytes that are taken for both.
	batch store.Batch
	room  int
	// fault is the error of the last access, and failed the accesses since one that succeeded.
	fault  error
	failed int
	// drained is called once nothing waits; nil: nobody asked.
	drained func()
}

func newJournal(
	s store.Journal, key store.Key, owner string, env *run.Env, timers *run.Timers,
	reserve func(bytes int) *apierror.Error,
) journal {
	if reserve == nil {
		reserve = func(int) *apierror.Error { return nil }
	}
	return journal{
		reserve: reserve, store: s, key: key, owner: owner, env: env, timers: timers, stored: make(chan error, 1),
	}
}

// begin begins to store the events of a reply, after those that are stored.
func (j *journal) begin(reply api.BackgroundReply) {
	j.reply, j.next = reply, reply.Sequence()
}

// closed reports whether nothing more is stored.
func (j *journal) closed() bool { return j.phase == journalClosed }

// SendHeaders implements [run.Downstream].
func (j *journal) SendHeaders([]engine.Header) {}

// SendError implements [run.Downstream]. It is not called: the headers of a queued
// reply count as sent.
func (j *journal) SendError(*apierror.Error) {}

// SendBody implements [run.Downstream]. Events are stored a little later, with those
// that follow.
func (j *journal) SendBody(p []byte, end bool) {
	// Without a new number it is a comment, such as a keep-alive: nobody needs it later.
	next := j.reply.Sequence()
	if next == j.next || j.phase == journalClosed {
		return
	}
	if !j.makeRoom(len(p)) {
		j.close(errors.New("there is no memory for the events that wait for the store"))
		return
	}

	// A response that could not be stored has no end in its stream either: who follows it would
	// take it for complete.
	if len(j.batch.SSE) == 0 {
		j.batch.First = j.next
	}
	j.batch.SSE = append(j.batch.SSE, p...)
	j.batch.Last, j.batch.End = next-1, end && j.reply.Lost() == nil
	j.next = next

	switch {
	case len(j.batch.SSE) > journalBacklog:
		j.close(errors.New("too many events wait for the store"))
	case len(j.batch.SSE) > journalBatch && j.fault == nil:
		// A full batch is stored at once, but not before journalRetry if the store fails.
		j.timers.Set(run.TimerJournal, j.env.Now(), time.Nanosecond)
	case !j.timers.Armed(run.TimerJournal):
		j.timers.Set(run.TimerJournal, j.env.Now(), journalDelay)
	}
}

// makeRoom reports whether there is memory for n bytes more of events that wait.
func (j *journal) makeRoom(n int) bool {
	waiting := len(j.batch.SSE) + n
	if j.sent != nil {
		waiting += len(j.sent.SSE)
	}
	if waiting <= journalBatch+j.room {
		return true
	}

	more := max(journalRoom, waiting-journalBatch-j.room)
	if j.reserve(more) != nil {
		return false
	}
	j.room += more
	return true
}

// returnRoom returns the memory of events that wait no more.
func (j *journal) returnRoom() {
	if j.room > 0 {
		// Returning is not refused.
		_ = j.reserve(-j.room)
		j.room = 0
	}
}

// drain calls then once the events so far are stored, are dropped, or the store has
// failed drainTries times.
func (j *journal) drain(then func()) {
	j.drained = then
	j.flush()
	j.callDrained()
}

func (j *journal) callDrained() {
	waits := j.sent != nil || len(j.batch.SSE) > 0
	if then := j.drained; then != nil && (!waits || j.failed >= drainTries) {
		j.drained = nil
		then()
	}
}

// end stores what is left of a run that has ended.
func (j *journal) end() {
	j.drained = nil
	if j.phase == journalOpen {
		j.phase = journalEnding
		j.timers.Set(run.TimerJournal, j.env.Now(), endTimeout)
		j.flush()
	}
}

// expired does what the journal's timer asks for.
func (j *journal) expired() {
	if j.phase == journalEnding {
		j.close(errors.New("the store did not take the last events in time"))
		return
	}
	j.flush()
}

// flush begins to store what waits.
func (j *journal) flush() {
	// While it is ending, the timer is what bounds that.
	if j.phase == journalOpen {
		j.timers.Clear(run.TimerJournal)
	}
	if j.storing || j.phase == journalClosed {
		return
	}

	if j.sent == nil {
		if len(j.batch.SSE) == 0 {
			if j.phase == journalEnding {
				j.phase = journalClosed
			}
			return
		}
		batch := j.batch
		j.sent, j.batch = &batch, store.Batch{}
	}

	// The access is not the run's: it ends by itself, also if the run is abandoned meanwhile. It is
	// patient, since the events wait for the store here or there.
	j.storing = true
	batch := *j.sent
	j.env.Workers.Go(func() {
		ctx, cancel := context.WithTimeout(store.Patiently(context.Background()), storeTimeout)
		defer cancel()
		j.stored <- j.store.Append(ctx, j.key.Tenant, j.key.ID, j.owner, batch)
	})
}

// appended takes the result of the access to the store. A store that failed may
// have the batch all the same, and rejects it then; what comes next shows whether
// the response is still this process's.
func (j *journal) appended(err error) {
	j.storing = false
	j.failed++
	switch {
	case j.phase == journalClosed:
	case err == nil, errors.Is(err, store.ErrConflict) && j.fault != nil:
		// What is next in the batch takes room again, if it is much.
		j.sent, j.fault, j.failed = nil, nil, 0
		j.returnRoom()
		j.flush()
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		// It is another's now; the lease will show it.
		j.close(nil)
	case errors.Is(err, store.ErrTooLarge), j.phase == journalEnding:
		j.close(fmt.Errorf("store events: %w", err))
	default:
		j.fault = fmt.Errorf("store events: %w", err)
		j.timers.Set(run.TimerJournal, j.env.Now(), journalRetry)
	}
	j.callDrained()
}

// close drops the rest of the stream: those who follow it get its end from the
// stored response.
func (j *journal) close(fault error) {
	j.phase = journalClosed
	j.sent, j.batch = nil, store.Batch{}
	j.returnRoom()
	if fault != nil {
		j.fault = fault
	}
	j.callDrained()
}
