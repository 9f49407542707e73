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
	sse  []byte
	more bool // sse may end inside an event: the rest follows
	end  bool
	err  *apierror.Error
}

// followed is the stored stream that an exchange sends. A goroutine reads it, and waits
// after each piece until the client can have the next one.
type followed struct {
	stream api.Follower
	share  *share // of the budget: what has been read of the store and is not sent yet
	resume chan struct{}
	waits  bool // the goroutine waits for resume
	cut    bool // what was sent may end inside an event or an object
}

func newFollowed(f api.Follower, s *share) *followed {
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

// follow answers with a stored stream.
func (x *exchange) follow(f api.Follower) {
	x.release()
	x.replyFrom(f)
}

// replyFrom answers with what a follower returns. Where Envoy can hold back the reply to
// the pace of its client, it begins when the reply's headers can be sent.
func (x *exchange) replyFrom(f api.Follower) {
	x.phase = phaseFollow
	x.followed = newFollowed(f, x.request.share)
	x.runner.Timers.ClearAll()
	if x.local = !paces(x.ctx) || x.request.bodyless; x.local {
		x.beginFollow()
		return
	}
	x.runner.Timers.Set(run.TimerHandle, x.now, handleTimeout)
	x.pace.begin(&x.to, &x.metadata)
}

// beginFollow sends the headers and lets the stream be read.
func (x *exchange) beginFollow() {
	x.runner.Timers.ClearAll()
	x.resetKeepAlive()
	f := x.followed
	_, f.cut = f.stream.(*wholeAnswer)
	x.SendHeaders(run.ReplyHeaders(!f.cut, x.request.id))
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
	x.followed.waits, x.followed.cut = true, e.more
	over := e.end || e.err != nil
	if len(e.sse) == 0 && !over {
		x.keepPace()
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

// keepAlive sends a comment, unless the client has not read what was sent before.
func (x *exchange) keepAlive() {
	if !x.followed.cut && !x.pace.behind() {
		x.SendBody([]byte(run.KeepAliveComment), false)
	}
	x.resetKeepAlive()
}

// largeAnswer is the size of a JSON object, in bytes, beyond which it is paced.
const largeAnswer = 1 << 20

// wholeAnswer is a JSON object that is sent as a stored stream is. It is an
// api.Follower. The budget has its bytes already.
type wholeAnswer struct{ body []byte }

// Next returns the whole object.
func (a *wholeAnswer) Next(context.Context, func(bytes int) *apierror.Error) (sse []byte, end bool, err *apierror.Error) {
	return a.body, true, nil
}

// Fail returns nothing: an object has no error in its middle.
func (a *wholeAnswer) Fail(*apierror.Error) []byte { return nil }

// follow delivers the events of a stored stream, in pieces of at most maxPiece bytes,
// until its end, the end of ctx, or the drain of the process: then the stream ends with
// an error, to be resumed at another replica.
func (s *Server) follow(ctx context.Context, f *followed, deliver func(storedEvents) bool) {
	for {
		e := s.next(ctx, f)
		for len(e.sse) > maxPiece {
			if !deliver(storedEvents{sse: e.sse[:maxPiece], more: true}) || !s.wait(ctx, f) {
				return
			}
			e.sse = e.sse[maxPiece:]
		}
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
	f, reserve := from.stream, func(bytes int) *apierror.Error { return from.share.take(int64(bytes)) }
	for attempt := 1; ; attempt++ {
		within, cancel := context.WithTimeout(ctx, nextTimeout)
		heed := context.AfterFunc(s.drain.aborted, cancel)
		sse, end, err := f.Next(within, reserve)
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
		case err.Status < http.StatusInternalServerError && err.Status != http.StatusTooManyRequests || attempt == followAttempts:
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
