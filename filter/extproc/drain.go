package extproc

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// abortTimeout is how long a reply that is aborted may take to store how it ended.
// Then the client gets its end without that.
const abortTimeout = 2 * time.Second

// drain is the end of a process as its exchanges see it. The servers of all
// configurations share one.
type drain struct {
	began chan struct{} // closed by begin
	once  sync.Once
	// aborted ends when the time of the drain is over.
	aborted context.Context //nolint:containedctx // only its end is used
	abort   context.CancelFunc

	mu        sync.Mutex
	exchanges map[*exchange]struct{} // that have not ended
}

func newDrain() *drain {
	d := &drain{began: make(chan struct{}), exchanges: map[*exchange]struct{}{}}
	d.aborted, d.abort = context.WithCancel(context.Background())
	return d
}

// begin begins the drain.
func (d *drain) begin() { d.once.Do(func() { close(d.began) }) }

func (d *drain) hasBegun() bool {
	select {
	case <-d.began:
		return true
	default:
		return false
	}
}

// add notes an exchange until it leaves.
func (d *drain) add(x *exchange) (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exchanges[x] = struct{}{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.exchanges, x)
	}
}

// Drain ends the streams that are followed: they wait for others, and can be
// resumed at another replica. All other exchanges go on.
func (s *Server) Drain() { s.drain.begin() }

// Abort ends the replies that are being made, with an error of the API, because the
// time of the drain is over. Requests that come later get the error in place of a
// reply. It does not wait: exchanges that hang do not hold it up. What passes
// through goes on until its stream is reset.
func (s *Server) Abort() {
	s.drain.begin()
	s.drain.mu.Lock()
	defer s.drain.mu.Unlock()
	if s.drain.over() {
		return
	}
	s.drain.abort()
	for x := range s.drain.exchanges { // each by a goroutine, for those that hang
		go x.send(aborted{})
	}
}

// abort ends the reply of an exchange with an error. One that is complete and is
// being stored gets some time for that.
func (x *exchange) abort() {
	switch x.phase {
	case phaseCollect:
		x.conclude(x.incomplete(shutDown()), false)
	case phaseLate:
		x.SendError(x.request.late)
	case phaseInflate:
		x.conclude(x.incomplete(shutDown()), !x.request.trailers)
	case phaseHandle:
		x.SendError(shutDown())
	case phaseFollow:
		if !x.headersSent { // else it ends by itself
			x.SendError(shutDown())
		}
	case phaseRun:
		// A response whose end is being stored already gets the time to be stored as it has ended.
		r := x.runner.Run()
		if !r.Reply().Ending() {
			r.Fail(shutDown())
		}
		if !r.Ended() {
			x.runner.Timers.Set(run.TimerTotal, x.now, abortTimeout)
		}
	}
}

// over reports whether the time of the drain is over.
func (d *drain) over() bool { return d.aborted.Err() != nil }

// shutDown is the error of a reply that the drain has not waited for.
func shutDown() *apierror.Error {
	return apierror.New(
		http.StatusServiceUnavailable, apierror.CodeShutdown, "",
		"The service was shut down before the reply was complete. Send the request again.",
	)
}
