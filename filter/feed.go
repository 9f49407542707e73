package filter

import (
	"context"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

const (
	// nextTimeout bounds one look at a stored stream.
	nextTimeout = storeTimeout + time.Second
	// feedRetry is how long a store that does not answer is left alone, and
	// feedTries how often it is asked in vain.
	feedRetry = time.Second
	feedTries = 5
)

// follower gives a stored stream of events as it grows.
type follower interface {
	// Next waits for more events, now and then in vain; end tells that they
	// are the last.
	Next(ctx context.Context) (sse []byte, end bool, err *apierror.Error)
	// Fail is the event that breaks the stream off.
	Fail(err *apierror.Error) []byte
}

// feedEvent is what a follower has given.
type feedEvent struct {
	sse []byte
	end bool
	err *apierror.Error
}

// feed gives what a follower gives until the stream or ctx ends, or the
// service drains: then the stream breaks off with an error, to be resumed
// elsewhere.
func (s *Server) feed(ctx context.Context, f follower) <-chan feedEvent {
	events := make(chan feedEvent)
	go func() {
		for over := false; !over; {
			e := s.look(ctx, f)
			over = e.end || e.err != nil
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events
}

// look looks at a stream once, or more often if the store does not answer.
func (s *Server) look(ctx context.Context, f follower) feedEvent {
	for try := 1; ; try++ {
		within, cancel := context.WithTimeout(ctx, nextTimeout)
		sse, end, err := f.Next(within)
		cancel()
		if err == nil {
			if !end && s.draining() {
				err := apierror.New(http.StatusServiceUnavailable, "shutdown", "", "The service is restarting. Follow the response again, from the last event on.")
				return feedEvent{sse: append(sse, f.Fail(err)...), err: err}
			}
			return feedEvent{sse: sse, end: end}
		}
		if err.Status < http.StatusInternalServerError || try == feedTries {
			return feedEvent{sse: f.Fail(err), err: err}
		}
		select {
		case <-time.After(feedRetry):
		case <-ctx.Done():
			return feedEvent{err: err}
		}
	}
}

// Drain ends what waits for others to be made: streams that are followed break
// off, and can be resumed with another replica.
func (s *Server) Drain() { s.drainOnce.Do(func() { close(s.drain) }) }

func (s *Server) draining() bool {
	select {
	case <-s.drain:
		return true
	default:
		return false
	}
}

// follow answers with a stored stream.
func (x *exchange) follow(f follower) {
	x.release()
	x.phase = phaseFollow
	x.local = true
	x.timers.clearAll()
	x.timers.set(timerKeepAlive, x.now, x.s.cfg.Limits.KeepAlive.Duration)
	x.begin(replyHeaders(true, x.id))
	x.feed = x.s.feed(x.ctx, f)
}

// fed takes the next events of the stream that the client follows.
func (x *exchange) fed(e feedEvent) {
	if x.phase != phaseFollow {
		return
	}
	if e.err != nil {
		x.rec.failed(e.err)
	}
	over := e.end || e.err != nil
	if len(e.sse) == 0 && !over {
		return
	}
	x.write(e.sse, over)
	x.timers.set(timerKeepAlive, x.now, x.s.cfg.Limits.KeepAlive.Duration)
	if over {
		x.timers.clearAll()
	}
}
