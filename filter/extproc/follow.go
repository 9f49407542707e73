package extproc

import (
	"context"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
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
	sse []byte
	end bool
	err *apierror.Error
}

// follow answers with a stored stream.
func (x *exchange) follow(f api.Follower) {
	x.release()
	x.phase = phaseFollow
	x.local = true
	x.runner.Timers.ClearAll()
	x.resetKeepAlive()
	x.SendHeaders(run.ReplyHeaders(true, x.request.id))
	go x.s.follow(x.ctx, f, func(e storedEvents) bool { return x.send(incoming{stored: &e}) })
}

// takeStored takes the next events of the stream that the client follows.
func (x *exchange) takeStored(e *storedEvents) {
	if x.phase != phaseFollow {
		return
	}
	if e.err != nil {
		x.runner.Record.Failed(e.err)
	}
	over := e.end || e.err != nil
	if len(e.sse) == 0 && !over {
		return
	}
	x.resetKeepAlive()
	if over {
		x.runner.Timers.ClearAll()
	}
	x.SendBody(e.sse, over)
}

func (x *exchange) resetKeepAlive() {
	x.runner.Timers.Set(run.TimerKeepAlive, x.now, x.s.o.Config.Limits.KeepAlive.Duration)
}

// follow delivers the events of a stored stream until its end, the end of ctx, or
// the drain of the process: then the stream ends with an error, to be resumed
// at another replica.
func (s *Server) follow(ctx context.Context, f api.Follower, deliver func(storedEvents) bool) {
	for {
		e := s.next(ctx, f)
		if !deliver(e) || e.end || e.err != nil {
			return
		}
	}
}

// next reads a stream once, or more often if the store fails.
func (s *Server) next(ctx context.Context, f api.Follower) storedEvents {
	for attempt := 1; ; attempt++ {
		within, cancel := context.WithTimeout(ctx, nextTimeout)
		heed := context.AfterFunc(s.drain.aborted, cancel)
		sse, end, err := f.Next(within)
		heed()
		cancel()
		switch {
		case err == nil && end:
			return storedEvents{sse: sse, end: true}
		case s.drain.hasBegun():
			err := apierror.New(http.StatusServiceUnavailable, apierror.CodeShutdown, "", "The service is restarting. Follow the response again, from the last event on.")
			return storedEvents{sse: append(sse, f.Fail(err.InStream())...), err: err}
		case err == nil:
			return storedEvents{sse: sse}
		case err.Status < http.StatusInternalServerError || attempt == followAttempts:
			return storedEvents{sse: f.Fail(err.InStream()), err: err}
		}
		select {
		case <-time.After(followRetry):
		case <-s.drain.began:
		case <-ctx.Done():
			return storedEvents{err: err}
		}
	}
}
