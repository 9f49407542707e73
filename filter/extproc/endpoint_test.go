package extproc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// The tests of this file have an endpoint of their own: what the exchange does
// around an endpoint and its reply, whatever the API.

// scriptedRequest is a request whose reply takes given steps.
type scriptedRequest struct {
	api.Request
	stream bool
	reply  scriptedReply
}

func (r *scriptedRequest) Info() api.Info {
	return api.Info{ID: "test_1", Stream: r.stream, KeepAlive: api.KeepAliveComment}
}
func (r *scriptedRequest) Engine() *engine.Request       { return nil }
func (r *scriptedRequest) Affinity() turn.Affinity       { return turn.Affinity{} }
func (r *scriptedRequest) RoutingInfo() turn.RoutingInfo { return turn.RoutingInfo{} }
func (r *scriptedRequest) Ignored() []string             { return nil }
func (r *scriptedRequest) Bytes() int                    { return 0 }
func (r *scriptedRequest) NewReply(api.Mode) api.Reply   { return &r.reply }

// lockedRequest is a request that has a lock.
type lockedRequest struct {
	scriptedRequest
	unlocked atomic.Int32
}

func (r *lockedRequest) Info() api.Info {
	info := r.scriptedRequest.Info()
	info.Lock = r
	return info
}
func (r *lockedRequest) Renew(context.Context) error  { return nil }
func (r *lockedRequest) Unlock(context.Context) error { r.unlocked.Add(1); return nil }

// scriptedReply writes an event for everything that happens to it.
type scriptedReply struct {
	api.Reply
	steps    []api.Step
	onFail   []api.Step // in place of the steps that are left, once the reply fails
	onCancel []api.Job
	failure  *apierror.Error
}

func (r *scriptedReply) Step(dst []byte) ([]byte, api.Step, *apierror.Error) {
	if len(r.steps) == 0 {
		return dst, api.Step{}, nil
	}
	step := r.steps[0]
	r.steps = r.steps[1:]
	return fmt.Appendf(dst, "%d jobs\n", len(step.Jobs)), step, nil
}

func (r *scriptedReply) JobDone(dst []byte, _ int, result any, err error) []byte {
	return fmt.Appendf(dst, "job done: %v, %v\n", result, err)
}

func (r *scriptedReply) Fail(dst []byte, err *apierror.Error) []byte {
	r.steps, r.failure = r.onFail, err
	return fmt.Appendf(dst, "failed: %s\n", err.Code)
}

func (r *scriptedReply) End(dst []byte) ([]byte, *apierror.Error) {
	return append(dst, "end\n"...), r.failure
}

func (r *scriptedReply) Cancel() []api.Job     { return r.onCancel }
func (r *scriptedReply) Summary() turn.Summary { return turn.Summary{} }
func (r *scriptedReply) Fault() error          { return nil }
func (r *scriptedReply) ToolCalls() (int, int) { return 0, 0 }
func (r *scriptedReply) Ending() bool          { return false }

type jobFunc = apitest.JobFunc

// endpointOf is an endpoint at /test whose requests name a model.
func endpointOf(handle func(ctx context.Context) api.Outcome) func(w *wiring) {
	return func(w *wiring) {
		w.endpoints = []api.Endpoint{{API: "test", Method: http.MethodPost, Pattern: "/test", Handle: func(ctx context.Context, _ *api.HTTPRequest) api.Outcome {
			return handle(ctx)
		}}}
	}
}

// postTest sends a request to the endpoint.
func (s *scripted) postTest() {
	s.t.Helper()
	s.request(false, ":method=POST", ":path=/test", "x-request-id=abc")
	s.body(`{"model":"gpt-oss"}`, true)
}

// The stores that an endpoint reads find the account of its request in the context.
func TestAccountOfHandling(t *testing.T) {
	t.Parallel()
	var err error
	refuse := func(ctx context.Context) api.Outcome {
		err = work.From(ctx).Spend(work.PerRequest + 1)
		return api.Answered([]byte(`{}`), nil)
	}
	script(t, endpointOf(refuse), func(s *scripted) {
		s.postTest()
		if !errors.Is(err, work.ErrExceeded) {
			t.Errorf("more steps than a request has: %v", err)
		}
	})
}

const localStream = "local headers :status=200 content-type=text/event-stream; charset=utf-8 cache-control=no-cache x-request-id=abc"

// A reply whose steps are jobs only is a local one.
func TestReplyOfJobs(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			t.Parallel()
			job := jobFunc(func(context.Context) (any, error) { time.Sleep(20 * time.Second); return "x", nil })
			request := &scriptedRequest{stream: stream, reply: scriptedReply{steps: []api.Step{{Jobs: []api.Job{job, job}}}}}
			script(t, endpointOf(func(context.Context) api.Outcome { return api.Decoded(request) }), func(s *scripted) {
				s.postTest()
				s.expect()
				s.wait(20 * time.Second)
				if stream {
					s.expect(localStream, "local body 2 jobs\n", "local body : keep-alive\n", "local body job done: x, <nil>\n", "local body job done: x, <nil>\nend\n END")
				} else {
					s.expect("local headers :status=200 content-type=application/json x-request-id=abc", "local body 2 jobs\njob done: x, <nil>\njob done: x, <nil>\nend\n END")
				}
				s.wait(24 * time.Hour) // no timer is left
				s.expect()
			})
		})
	}
}

// The jobs of a reply end with it, though Envoy's stream goes on.
func TestJobsEndWithTheReply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream bool
		end    func(s *scripted)
	}{
		"out of time":         {false, func(s *scripted) { s.wait(time.Minute) }},
		"out of time, stream": {true, func(s *scripted) { s.wait(time.Minute) }},
		"ended by Envoy":      {false, func(s *scripted) { s.envoyAnswer(true, ":status=503") }},
		"stream ended by Envoy": {true, func(s *scripted) {
			s.wait(10 * time.Second)
			s.envoyAnswer(true, ":status=503")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun, ended atomic.Bool
			job := jobFunc(func(ctx context.Context) (any, error) {
				begun.Store(true)
				<-ctx.Done()
				ended.Store(true)
				return nil, ctx.Err()
			})
			request := &scriptedRequest{stream: c.stream, reply: scriptedReply{steps: []api.Step{{Jobs: []api.Job{job}}}}}
			wire := endpointOf(func(context.Context) api.Outcome { return api.Decoded(request) })
			script(t, func(w *wiring) { wire(w); w.cfg.Limits.TotalTimeout.Duration = time.Minute }, func(s *scripted) {
				s.postTest()
				if !begun.Load() || ended.Load() {
					t.Fatal("no job runs")
				}
				c.end(s)
				if !ended.Load() {
					t.Error("the job goes on")
				}
				s.sent()
				s.wait(24 * time.Hour)
				s.expect() // the reply has ended
			})
		})
	}
}

// A panic in an endpoint fails its request, and is logged with the request's id.
func TestEndpointPanics(t *testing.T) {
	t.Parallel()
	script(t, endpointOf(func(context.Context) api.Outcome { panic("bug") }), func(s *scripted) {
		s.postTest()
		s.expect("immediate 500 Internal error.")
		if l := s.lines(t); len(l) != 1 || l[0].Get("request_id").Str != "abc" || !strings.HasPrefix(l[0].Get("msg").Str, "panic: bug") {
			t.Errorf("logged %s", s.testServer.log)
		}
	})
}

// A panic in a reply resets the stream, and is logged with the request's id.
func TestReplyPanics(t *testing.T) {
	t.Parallel()
	request := &scriptedRequest{stream: true} // its reply has no step, and a summary that panics
	script(t, endpointOf(func(context.Context) api.Outcome {
		return api.Decoded(&panickingRequest{scriptedRequest: *request})
	}), func(s *scripted) {
		s.postTest()
		if err := s.result(); err == nil || !strings.Contains(err.Error(), "internal error") {
			t.Errorf("the stream ends with %v", err)
		}
		if l := s.lines(t); len(l) == 0 || l[0].Get("request_id").Str != "abc" || !strings.HasPrefix(l[0].Get("msg").Str, "panic: bug") {
			t.Errorf("logged %s", s.testServer.log)
		}
	})
}

// panickingRequest is a request whose reply cannot be begun.
type panickingRequest struct{ scriptedRequest }

func (r *panickingRequest) NewReply(api.Mode) api.Reply { panic("bug") }

// The lock of a request is released, once, whatever becomes of the request.
func TestLockIsReleased(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *wiring)
		drive  func(s *scripted)
	}{
		"complete":                         {nil, func(s *scripted) { s.wait(2 * time.Minute) }},
		"the client leaves":                {nil, func(s *scripted) { s.wait(time.Second); s.leave() }},
		"the client leaves while it waits": {nil, func(s *scripted) { s.leave() }},
		"out of time while it waits": {nil, func(s *scripted) {
			s.wait(handleTimeout + handleGrace)
			s.expectLike("immediate 503 retry-after=1 The request could not be handled within")
		}},
		"Envoy answers while it waits": {nil, func(s *scripted) { s.envoyAnswer(true, ":status=503") }},
		"no model":                     {func(w *wiring) { w.endpoints[0].NoModel = true }, func(s *scripted) { s.wait(time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			delay := time.Duration(0)
			if strings.Contains(name, "waits") {
				delay = 20 * time.Second
			}
			job := jobFunc(func(ctx context.Context) (any, error) {
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
				return nil, ctx.Err()
			})
			requests := make(chan *lockedRequest, 20)
			wire := endpointOf(func(context.Context) api.Outcome {
				r := &lockedRequest{scriptedRequest: scriptedRequest{stream: true, reply: scriptedReply{steps: []api.Step{{Jobs: []api.Job{job}}}}}}
				requests <- r
				time.Sleep(delay)
				return api.Decoded(r)
			})
			script(t, func(w *wiring) {
				wire(w)
				if c.change != nil {
					c.change(w)
				}
			}, func(s *scripted) {
				for range cap(requests) { // some of it is left to chance
					s.request(false, ":method=POST", ":path=/test", "x-request-id=abc")
					if c.change == nil {
						s.body(`{"model":"gpt-oss"}`, true)
					} else {
						s.body(`{}`, true)
					}
					c.drive(s)
					s.wait(time.Minute)
					s.next()
				}
				for range cap(requests) {
					if n := (<-requests).unlocked.Load(); n != 1 {
						t.Errorf("a lock was released %d times", n)
					}
				}
			})
		})
	}
}

// What is left of a reply is stored after its client has left, and the server's end
// waits for it.
func TestRestIsStoredAfterTheClientHasLeft(t *testing.T) {
	t.Parallel()
	var stored atomic.Bool
	save := jobFunc(func(ctx context.Context) (any, error) {
		time.Sleep(5 * time.Second)
		stored.Store(ctx.Err() == nil)
		return nil, nil
	})
	tool := jobFunc(func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	request := &scriptedRequest{stream: true, reply: scriptedReply{steps: []api.Step{{Jobs: []api.Job{tool}}}, onCancel: []api.Job{save}}}
	script(t, endpointOf(func(context.Context) api.Outcome { return api.Decoded(request) }), func(s *scripted) {
		s.postTest()
		s.leave()
		if err := s.result(); err != nil || stored.Load() {
			t.Errorf("the stream ends with %v, stored %t", err, stored.Load())
		}
		if s.close(); !stored.Load() {
			t.Error("the server ends before the rest is stored")
		}
	})
}

// queuedRequest is a request for a background response, which its reply changes.
type queuedRequest struct {
	api.Request
	api.Background
	first *engine.Request
}

func (r *queuedRequest) Info() api.Info {
	return api.Info{ID: "test_1", Stream: true, KeepAlive: api.KeepAliveComment, Background: r}
}
func (r *queuedRequest) Engine() *engine.Request       { return r.first }
func (r *queuedRequest) Affinity() turn.Affinity       { return turn.Affinity{} }
func (r *queuedRequest) RoutingInfo() turn.RoutingInfo { return turn.RoutingInfo{} }
func (r *queuedRequest) Ignored() []string             { return nil }
func (r *queuedRequest) Bytes() int                    { return 0 }
func (r *queuedRequest) Follows() bool                 { return false }
func (r *queuedRequest) NewReply(api.Mode) api.Reply   { return &queuedReply{request: r} }
func (r *queuedRequest) Queue(context.Context, string, time.Duration) (store.Key, []byte, *apierror.Error) {
	return store.Key{ID: "test_1"}, []byte(`{"status":"queued"}`), nil
}

// queuedReply is a reply whose one step decides which model call is made.
type queuedReply struct {
	scriptedReply
	request *queuedRequest
}

func (r *queuedReply) Step(dst []byte) ([]byte, api.Step, *apierror.Error) {
	r.request.first = &engine.Request{}
	return dst, api.Step{}, nil
}

func (r *queuedReply) End(dst []byte) ([]byte, *apierror.Error) { return append(dst, "end"...), nil }
func (r *queuedReply) Start()                                   {}
func (r *queuedReply) Sequence() int                            { return 1 }
func (r *queuedReply) Background() api.BackgroundReply          { return r }
func (r *queuedReply) Lost() error                              { return nil }

// The request of a background response belongs to its maker from when it is queued:
// what Envoy is told of it was read before. The race detector shows it.
func TestQueuedRequestIsItsMakers(t *testing.T) {
	t.Parallel()
	script(t, endpointOf(func(context.Context) api.Outcome { return api.Decoded(&queuedRequest{}) }), func(s *scripted) {
		s.postTest()
		if status, body := s.answered(); status != 200 || body != `{"status":"queued"}` || s.metadata == nil {
			t.Errorf("status %d, %s, metadata %v", status, body, s.metadata)
		}
	})
}

// An endpoint that says nothing of a request is at fault, and the client gets an error.
func TestNoOutcome(t *testing.T) {
	t.Parallel()
	script(t, endpointOf(func(context.Context) api.Outcome { return api.Outcome{} }), func(s *scripted) {
		s.postTest()
		s.expectLike("immediate 500 Internal error.")
	})
}
