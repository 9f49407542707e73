package stored

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/event"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// Follower is the stored stream of a background response, as it grows. It is an
// api.Follower.
type Follower struct {
	store store.Store
	key   store.Key
	after int // number of the last event that was returned
	late  int // reads without an event since the response has ended
}

// NewFollower follows a response from its first event.
func NewFollower(s store.Store, key store.Key) *Follower {
	return &Follower{store: s, key: key, after: -1}
}

// followWait is how long one read of the journal waits for events.
const followWait = time.Second

// lateReads is how many reads wait for the last events of a response that has ended.
// Its process stores the response before them, and may take as long as one access to
// the store may last.
const lateReads = 6

// Next waits a while for events after those that it has returned; end reports
// that there are no more. A stream whose process has died ends with the event
// that says so.
func (f *Follower) Next(
	ctx context.Context, reserve func(bytes int) *apierror.Error,
) (sse []byte, end bool, apiErr *apierror.Error) {
	ctx = store.WithRoom(ctx, func(bytes int) error {
		// Not returned as it is: it is no nil error where it is a nil pointer.
		if refused := reserve(bytes); refused != nil {
			return refused
		}
		return nil
	})

	// The stream is kept alive meanwhile: it waits for a store that hangs. What follows is only
	// asked for at the end of the stream.
	batches, err := f.store.Events(store.Patiently(ctx), f.key.Tenant, f.key.ID, f.after, followWait)
	if err != nil {
		return nil, false, Unavailable(err)
	}
	// Most calls end here, while the response is being made.
	if len(batches) > 0 {
		return f.take(batches, reserve)
	}

	return f.atTheEnd(ctx, reserve)
}

// atTheEnd returns what there is for a follower to whom no event has come: nothing while the
// response is being made, else the end of the stream, which it writes if nobody else does.
func (f *Follower) atTheEnd(
	ctx context.Context, reserve func(bytes int) *apierror.Error,
) (sse []byte, end bool, apiErr *apierror.Error) {
	// Not the whole response, as long as it is being made: it can be large, and this is asked
	// each second by everyone who follows.
	head, err := f.store.Head(ctx, f.key.Tenant, f.key.ID)
	switch {
	case err != nil:
		return nil, false, responseError(f.key.ID, err)
	case head.Live:
		return nil, false, nil
	}

	r, err := Current(ctx, f.store, f.key.Tenant, f.key.ID)
	switch {
	case err != nil:
		return nil, false, responseError(f.key.ID, err)
	case r.Live:
		// Its lease has been renewed in between.
		return nil, false, nil
	}

	// It has ended, but the journal may not say so: its process still stores the last
	// events, or died in between.
	batches, err := journalOf(ctx, f.store, f.key.Tenant, f.key.ID)
	if err != nil {
		return nil, false, Unavailable(err)
	}

	// Only after some reads in vain this follower writes the end itself: see lateReads.
	if n := len(batches); n == 0 || !batches[n-1].End {
		f.late++
		if f.late < lateReads {
			return nil, false, nil
		}
		err = endJournal(ctx, f.store, f.key.Tenant, r)
	}

	if err == nil {
		batches, err = f.store.Events(ctx, f.key.Tenant, f.key.ID, f.after, 0)
	}

	// A store that is full may have dropped the response since it was read.
	if err != nil {
		return nil, false, responseError(f.key.ID, err)
	}
	// All events have been returned.
	if len(batches) == 0 {
		var w event.Writer
		w.Close()
		return w.Dst, true, nil
	}

	return f.take(batches, reserve)
}

// Fail is the event with which the stream breaks off.
func (f *Follower) Fail(err *apierror.Error) []byte {
	w := event.Writer{Sequence: f.after + 1}
	w.Error(err)
	w.Close()
	return w.Dst
}

// take returns the events of batches that are new, unless reserve refuses the copy. The store has
// taken room for the batches.
func (f *Follower) take(
	batches []store.Batch, reserve func(bytes int) *apierror.Error,
) (sse []byte, end bool, err *apierror.Error) {
	// The batches go with this call; what is returned stays reserved.
	size := batchBytes(batches)
	defer func() { _ = reserve(-size) }()
	if err := reserve(size); err != nil {
		return nil, false, err
	}

	sse = make([]byte, 0, size)
	for _, b := range batches {
		events := b.SSE
		// A journal is not trusted: no numbers in it may cost more than its bytes.
		for number := b.First; number <= f.after && len(events) > 0; number++ {
			events = afterEvent(events)
		}
		f.after = max(f.after, b.Last)
		sse = append(sse, events...)
		end = end || b.End
	}

	return sse, end, nil
}

// afterEvent is what follows the first of some events.
func afterEvent(sse []byte) []byte {
	for i := 1; i < len(sse); i++ {
		if sse[i-1] == '\n' && sse[i] == '\n' {
			return sse[i+1:]
		}
	}
	return nil
}

// Replay is a stream that has ended. It is an api.Follower.
type Replay struct{ SSE []byte }

// Next returns the whole stream.
func (r *Replay) Next(
	_ context.Context, reserve func(bytes int) *apierror.Error,
) (sse []byte, end bool, err *apierror.Error) {
	if err := reserve(len(r.SSE)); err != nil {
		return nil, false, err
	}
	return r.SSE, true, nil
}

// Fail returns nothing: the stream cannot break off.
func (r *Replay) Fail(*apierror.Error) []byte { return nil }
