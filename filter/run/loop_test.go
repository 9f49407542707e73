package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// scriptedUpstream answers model calls with given events.
type scriptedUpstream struct {
	answers  [][]Event // of each call
	attempts []Retry
	events   chan Event
	canceled int
}

func (u *scriptedUpstream) Call(_ *engine.Request, retry Retry) *apierror.Error {
	u.attempts = append(u.attempts, retry)
	u.events = make(chan Event, 100)
	if len(u.answers) > 0 {
		for _, e := range u.answers[0] {
			u.events <- e
		}
		u.answers = u.answers[1:]
	}
	return nil
}

func (u *scriptedUpstream) Events() <-chan Event { return u.events }

func (u *scriptedUpstream) Cancel() {
	if u.events != nil {
		u.canceled++
		u.events = nil
	}
}

// testOwner is an owner of a run whose own events end it, or end its being held.
type testOwner struct {
	runner *Runner
	log    []string
}

func (o *testOwner) Begin(time.Time) {}

func (o *testOwner) Handle(err error) (telemetry.MessageKind, error) {
	o.log = append(o.log, "own event")
	if err == nil {
		o.runner.Hold(false)
	}
	return telemetry.MessageStream, err
}

func (o *testOwner) Expire(name Timer) {
	o.log = append(o.log, fmt.Sprintf("timer %d", name))
	o.runner.Expire(name)
}
func (o *testOwner) Flush() error { return nil }
func (o *testOwner) Done() bool   { return o.runner.Run().Ended() }
func (o *testOwner) Canceled(cause error) bool {
	o.log = append(o.log, cause.Error())
	o.runner.Run().Cancel()
	return false
}

// served is the loop around a scripted run.
type served struct {
	owner      *testOwner
	runner     *Runner
	upstream   *scriptedUpstream
	downstream *recordingDownstream
	own        chan error
	result     error
}

// serve begins a run of steps. It has to be called in a synctest bubble.
func serve(t *testing.T, reply scriptedReply, answers ...[]Event) *served {
	t.Helper()
	env := newTestEnv(t)
	s := &served{upstream: &scriptedUpstream{answers: answers}, downstream: &recordingDownstream{}, own: make(chan error)}
	s.runner = NewRunner(t.Context(), env, time.Now())
	s.owner = &testOwner{runner: s.runner}
	dialect, _ := engine.ByKind("vllm")
	s.runner.Begin(Options{
		Request: &scriptedRequest{reply: reply}, Mode: api.Loop, Target: Target{Dialect: dialect}, Header: map[string][]string{}, Downstream: s.downstream,
	}, s.upstream, time.Now()).Start()
	return s
}

// loop serves the run until it ends, or ctx.
func (s *served) loop(ctx context.Context) {
	s.result = Serve(ctx, s.runner, s.own, s.owner)
	s.runner.Stop()
}

// The loop feeds calls, a retry and jobs to their run until its end.
func TestServe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		job := jobFunc(func(context.Context) (any, error) { time.Sleep(20 * time.Second); return "found", nil })
		s := serve(t, scriptedReply{steps: []api.Step{{Call: &engine.Request{ID: engine.CallID{Request: "1"}, N: 1, MaxTokens: 100}}, {Jobs: []api.Job{job}}, {Call: &engine.Request{ID: engine.CallID{Request: "2"}, N: 1, MaxTokens: 100}}}},
			[]Event{ok(), Broken(errBroken)}, answer("x"), answer("yz"))
		s.loop(t.Context())
		want := "data: 1 tokens\n\ndata: 1 jobs\n\n" + api.KeepAliveComment + "data: job 0: found, <nil>\n\ndata: 1 tokens\n\ndata: [DONE]\n\n"
		if diff := cmp.Diff(want, s.downstream.text.String()); diff != "" || s.result != nil || !s.downstream.ended {
			t.Errorf("%v, ended %t (-want +got):\n%s", s.result, s.downstream.ended, diff)
		}
		if diff := cmp.Diff([]Retry{{}, {Number: 1}, {}}, s.upstream.attempts); diff != "" || s.upstream.events != nil {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
	})
}

// While a job ignores its context, the run keeps its deadlines and receives from its owner.
func TestServeWithAJobThatHangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after  time.Duration // of the owner's event; 0: there is none
		want   string
		result string
	}{
		"out of time": {0, "data: failed: engine_timeout\n\ndata: 1 jobs\n\ndata: failed: engine_timeout\n\ndata: [DONE]\n\n", ""},
		"its owner":   {40 * time.Second, strings.Repeat(api.KeepAliveComment, 2), "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				free := make(chan struct{})
				job := jobFunc(func(context.Context) (any, error) { <-free; return nil, nil })
				s := serve(t, scriptedReply{
					steps: []api.Step{{Call: &engine.Request{ID: engine.CallID{Request: "1"}, N: 1, MaxTokens: 100}}, {Jobs: []api.Job{job}}}, onFail: []api.Step{{Jobs: []api.Job{job}}},
				}, answer("x"))
				if c.after > 0 {
					go func() {
						time.Sleep(c.after)
						s.own <- errors.New("gone")
					}()
				}
				s.loop(t.Context())
				if text := s.downstream.text.String(); !strings.HasPrefix(text, "data: 1 tokens\n\ndata: 1 jobs\n\n"+api.KeepAliveComment) || !strings.HasSuffix(text, c.want) {
					t.Errorf("sent %q", text)
				}
				if got := fmt.Sprint(s.result); (s.result != nil) != (c.result != "") || s.result != nil && got != c.result {
					t.Errorf("the loop ends with %v", s.result)
				}
				close(free)
				s.runner.env.Workers.Wait(t.Context())
			})
		})
	}
}

// Of a client that leaves, the rest is stored by a job that Workers.Wait waits for.
func TestServeACanceledRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored := false
		save := jobFunc(func(ctx context.Context) (any, error) {
			time.Sleep(5 * time.Second)
			stored = ctx.Err() == nil
			return nil, nil
		})
		s := serve(t, scriptedReply{steps: []api.Step{{Call: &engine.Request{ID: engine.CallID{Request: "1"}, N: 1, MaxTokens: 100}}}, onCancel: []api.Job{save}}, []Event{ok(), bytesOf(event("", tokens("x")...))})
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		s.loop(ctx)
		if s.upstream.canceled != 1 || s.downstream.ended || s.owner.log[len(s.owner.log)-1] != context.DeadlineExceeded.Error() {
			t.Errorf("%d calls canceled, ended %t, log %q", s.upstream.canceled, s.downstream.ended, s.owner.log)
		}
		if s.runner.env.Workers.Wait(t.Context()); !stored {
			t.Error("the rest is not stored")
		}
	})
}

// While the runner is held, events of the model call wait, and deadlines of the engine
// do not expire. The reply's own deadline does.
func TestHold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held  time.Duration
		text  string
		error string
	}{
		"for longer than the engine may be silent": {30 * time.Minute, "data: 1 tokens\n\ndata: [DONE]\n\n", ""},
		"for longer than the reply may take":       {2 * time.Hour, "", "The reply was not complete within 1h0m0s. Send the request again, or ask for less."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, scriptedReply{steps: []api.Step{{Call: &engine.Request{ID: engine.CallID{Request: "1"}, N: 1, MaxTokens: 100}}}}, answer("x"))
				s.runner.Hold(true)
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					released := time.NewTimer(c.held)
					defer released.Stop()
					select {
					case <-released.C:
						s.own <- nil
					case <-ctx.Done():
					}
				}()
				s.loop(ctx)
				cancel()
				var message string
				if s.downstream.err != nil {
					message = s.downstream.err.Message
				}
				if text := s.downstream.text.String(); text != c.text || message != c.error || s.result != nil {
					t.Errorf("sent %q, error %q, %v", text, message, s.result)
				}
			})
		})
	}
}
