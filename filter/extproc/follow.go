package extproc

import (
	"context"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

const (
	// nextTimeout bounds one access to a stored stream.
	nextTimeout = 6 * time.Second
	// followRetry is the time before a store that failed is tried again, and
	// followAttempts how often it is tried.
	followRetry    = time.Second
	followAttempts = 5
)

// storedEvents are events of a stored stream.
type storedEvents struct {
	sse  []byte
	more bool // sse may end inside an event: the rest follows
	end  bool
	err  *apierror.Error
}

// followed is the stored stream that an exchange sends. A goroutine reads it, and waits
// after each piece until the client can have the next one.
type followed struct {
	stream api.Follower
	share  *memoryShare // what has been read of the store and is not sent yet
	resume chan struct{}
	waits  bool // the goroutine waits for resume
	cut    bool // what was sent may end inside an event
}

func newFollowed(f api.Follower, s *memoryShare) *followed {
	return &followed{stream: f, share: s, resume: make(chan struct{}, 1)}
}

// goOn lets the goroutine continue if it waits.
func (f *followed) goOn() {
	if !f.waits {
		return
	}
	f.waits = false
	select {
	case f.resume <- struct{}{}:
	default: // it has continued by itself, because the process drains
	}
}

// follow delivers the events of a stored stream, in pieces of at most maxPiece bytes,
// until its end, the end of ctx, or the drain of the process: then the stream ends with
// an error, to be resumed at another replica.
//
// What has been read of the store is held until the client has read it, so that the share
// may have to make room.
func (s *Server) follow(ctx context.Context, f *followed, deliver func(storedEvents) bool) {
	for {
		e := s.next(ctx, f)

		// One piece is under way at a time, so that what is held is bounded by one read.
		f.share.reading()
		for len(e.sse) > maxPiece {
			if !deliver(storedEvents{sse: e.sse[:maxPiece], more: true}) || !s.wait(ctx, f) {
				return
			}
			e.sse = e.sse[maxPiece:]
			f.share.goesOn(maxPiece)
		}

		// Envoy has the last piece, or soon will.
		f.share.release()
		if !deliver(e) || e.end || e.err != nil || !s.wait(ctx, f) {
			return
		}
	}
}

// wait waits until the client can have more. A process that drains waits for no client.
// The result is false when ctx has ended.
func (s *Server) wait(ctx context.Context, f *followed) bool {
	select {
	case <-f.resume:
	case <-s.drain.began:
	case <-ctx.Done():
		return false
	}
	return true
}

// next reads a stream once, or more often if the store fails.
func (s *Server) next(ctx context.Context, from *followed) storedEvents {
	f, take := from.stream, from.share.takeBytes
	for attempt := 1; ; attempt++ {
		within, cancel := context.WithTimeout(ctx, nextTimeout)
		unhook := context.AfterFunc(s.drain.aborted, cancel)
		sse, end, err := f.Next(within, take)
		unhook()
		cancel()

		// A process that drains does not end a stream that has its end.
		switch {
		case err == nil && end:
			return storedEvents{sse: sse, end: true}
		case s.drain.hasBegun():
			err := apierror.New(
				http.StatusServiceUnavailable, apierror.CodeShutdown, "",
				"The service is restarting. Follow the response again, from the last event on.",
			)
			return storedEvents{sse: append(sse, f.Fail(err.InStream())...), err: err}
		case err == nil:
			return storedEvents{sse: sse}
		case err.Status < http.StatusInternalServerError && err.Status != http.StatusTooManyRequests ||
			attempt == followAttempts:
			return storedEvents{sse: f.Fail(err.InStream()), err: err}
		}

		// A store that is restarted answers again soon. The client has not noticed yet.
		select {
		case <-time.After(followRetry):
		case <-s.drain.began:
		case <-ctx.Done():
			return storedEvents{err: err}
		}
	}
}
