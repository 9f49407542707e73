package filter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

const (
	// journalDelay is how long the events of a background response wait for
	// others to be stored with them, unless they are journalBatch bytes.
	journalDelay = 50 * time.Millisecond
	journalBatch = 64 << 10
	// journalRetry is how long a store that does not answer is left alone;
	// journalBacklog is how many bytes may wait for it.
	journalRetry   = time.Second
	journalBacklog = 8 << 20
	// storeTimeout bounds one access to the store, and decodeTimeout all that
	// the decoding of a request reads of it.
	storeTimeout  = 5 * time.Second
	decodeTimeout = 15 * time.Second
)

// journal is the client of a background run: it stores the events of a stream
// for those who follow it.
type journal struct {
	store  store.Journal
	key    store.Key
	owner  string
	reply  backgroundReply
	timers *timers
	now    func() time.Time
	fault  error // of the store's last answer

	next   int          // number of the next event
	sent   *store.Batch // on its way to the store, nil if none is
	batch  store.Batch  // what comes after it
	closed bool         // nothing more is stored
}

func (j *journal) begin([]engine.Header) {}

// refuse does not happen: the reply of a background run has begun when its run
// begins.
func (j *journal) refuse(*apierror.Error) {}

// write takes events. They are stored when their time has come.
func (j *journal) write(p []byte, end bool) {
	next := j.reply.Sequence()
	if next == j.next || j.closed {
		return // a comment, or no stream at all
	}
	if len(j.batch.SSE) == 0 {
		j.batch.First = j.next
	}
	j.batch.SSE = append(j.batch.SSE, p...)
	j.batch.Last, j.batch.End = next-1, end && j.reply.Lost() == nil
	j.next = next
	switch waiting := !j.timers[timerJournal].IsZero(); {
	case len(j.batch.SSE) > journalBacklog:
		j.close(errors.New("too many events wait for the store"))
	case len(j.batch.SSE) > journalBatch && j.fault == nil:
		j.timers.set(timerJournal, j.now(), time.Nanosecond)
	case !waiting:
		j.timers.set(timerJournal, j.now(), journalDelay)
	}
}

// flush stores what waits.
func (j *journal) flush(ctx context.Context) {
	j.timers.clear(timerJournal)
	for !j.closed {
		if j.sent == nil {
			if len(j.batch.SSE) == 0 {
				return
			}
			batch := j.batch
			j.sent, j.batch = &batch, store.Batch{}
		}
		if !j.send(ctx) {
			return
		}
	}
}

// send stores the batch that is on its way. A store that did not answer may
// have it all the same, and then refuses it: what comes next tells whether
// the response is still ours.
func (j *journal) send(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	err := j.store.Append(ctx, j.key.Tenant, j.key.ID, j.owner, *j.sent)
	switch {
	case err == nil, errors.Is(err, store.ErrConflict) && j.fault != nil:
		j.sent, j.fault = nil, nil
		return true
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		j.close(nil) // it is not ours any more; the lease will tell
	case errors.Is(err, store.ErrTooLarge):
		j.close(fmt.Errorf("store events: %w", err))
	default:
		j.fault = fmt.Errorf("store events: %w", err)
		j.timers.set(timerJournal, j.now(), journalRetry)
	}
	return false
}

// close gives the rest of the stream up: those who follow it get its end from
// the stored response.
func (j *journal) close(fault error) {
	j.closed = true
	j.sent, j.batch = nil, store.Batch{}
	if fault != nil {
		j.fault = fault
	}
}
