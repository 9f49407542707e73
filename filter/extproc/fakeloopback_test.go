package extproc

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// fakeLoopback is Envoy's loopback listener, of which the filter makes its model calls. A script takes
// each call with [scripted.called], and answers the one that it has taken last:
//
//	s.posted("")                                   // a request, and the call that comes of it
//	s.answer(false, ":status=200", sse)            // the engine's headers
//	s.answerBody(event("", tokens("Hi")...), true) // its body, and its end
//	s.expectLike("local headers", "local body")
type fakeLoopback struct {
	mu    sync.Mutex
	calls []*engineCall // that no script has taken
	made  sync.Cond     // calls has more; its lock is mu
}

var _ run.Dialer = (*fakeLoopback)(nil)

// engineCall is a model call that the filter makes.
type engineCall struct {
	header http.Header // of the client's request, as it is passed on
	target run.Target
	retry  run.Retry
	path   string
	body   gjson.Result // as the engine gets it

	events chan run.Event
	left   chan struct{} // closed when the filter does not want the answer any more
}

// engineCalls makes the calls of one run.
type engineCalls struct {
	loopback *fakeLoopback
	ctx      context.Context //nolint:containedctx // of the run, of the same life
	header   http.Header
	target   run.Target
	call     *engineCall // being made; nil: none
}

// Dial implements [run.Dialer].
func (l *fakeLoopback) Dial(ctx context.Context, head http.Header, target run.Target) run.Upstream {
	return &engineCalls{loopback: l, ctx: ctx, header: head, target: target}
}

// Disaggregated implements [run.Dialer].
func (l *fakeLoopback) Disaggregated(string) bool { return false }

// Call implements [run.Upstream].
func (c *engineCalls) Call(r *engine.Request, retry run.Retry) *apierror.Error {
	wire, err := c.target.Dialect.Encode(r)
	if err != nil {
		return err
	}
	c.Cancel()
	c.call = &engineCall{
		header: c.header.Clone(), target: c.target, retry: retry, path: wire.Path, body: gjson.ParseBytes(wire.Body),
		events: make(chan run.Event), left: make(chan struct{}),
	}

	c.loopback.mu.Lock()
	defer c.loopback.mu.Unlock()
	c.loopback.calls = append(c.loopback.calls, c.call)
	c.loopback.made.Broadcast()
	return nil
}

// Events implements [run.Upstream].
func (c *engineCalls) Events() <-chan run.Event {
	if c.call == nil {
		return nil
	}
	return c.call.events
}

// Cancel implements [run.Upstream].
func (c *engineCalls) Cancel() {
	if c.call != nil {
		close(c.call.left)
		c.call = nil
	}
}

// waiting takes the calls that no script has taken.
func (l *fakeLoopback) waiting() []*engineCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

// await takes the next call, for tests without a script.
func (l *fakeLoopback) await() *engineCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.calls) == 0 {
		l.made.Wait()
	}
	call := l.calls[0]
	l.calls = l.calls[1:]
	return call
}

// send hands an event to the run, unless the call has been left.
func (c *engineCall) send(e run.Event) {
	select {
	case c.events <- e:
	case <-c.left:
	}
}

// called takes the one model call that has been made since.
func (s *scripted) called() *engineCall {
	s.t.Helper()
	calls := s.loopback.waiting()
	if len(calls) != 1 {
		s.t.Fatalf("%d model calls were made, not one; sent to Envoy: %q", len(calls), s.sent())
	}
	s.call = calls[0]
	return s.call
}

// notCalled fails if a model call has been made.
func (s *scripted) notCalled() {
	s.t.Helper()
	if n := len(s.loopback.waiting()); n > 0 {
		s.t.Fatalf("%d model calls were made", n)
	}
}

// happens hands an event to the run, unless the call has been left.
func (s *scripted) happens(e run.Event) {
	s.t.Helper()
	if s.call == nil {
		s.t.Fatal("no model call has been taken: see called")
	}
	s.call.send(e)
	s.settle()
}

// answer sends the headers of the engine's answer, name=value, and its end.
func (s *scripted) answer(end bool, fields ...string) {
	s.t.Helper()
	if s.wire.direct {
		s.envoyAnswer(end, fields...)
		return
	}
	status, header := http.StatusOK, http.Header{}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		if name != ":status" {
			header.Add(name, value)
			continue
		}
		var err error
		if status, err = strconv.Atoi(value); err != nil {
			s.t.Fatal(err)
		}
	}
	s.happens(run.Answered(status, header, nil))
	if end {
		s.happens(run.Ended(nil))
	}
}

// answerBody sends bytes of the engine's answer, and its end.
func (s *scripted) answerBody(p string, end bool) {
	s.t.Helper()
	if s.wire.direct {
		s.envoyAnswerBody(p, end)
		return
	}
	if p != "" {
		s.happens(run.Bytes([]byte(p)))
	}
	if end {
		s.happens(run.Ended(nil))
	}
}

var errEngineLost = errors.New("the connection is lost")

// loses ends the connection of the model call.
func (s *scripted) loses() {
	s.t.Helper()
	s.happens(run.Broken(errEngineLost))
}

// answerTrailers ends the engine's answer with trailers.
func (s *scripted) answerTrailers() {
	s.t.Helper()
	if s.wire.direct {
		s.envoyAnswerTrailers()
		return
	}
	s.happens(run.Ended(http.Header{}))
}
