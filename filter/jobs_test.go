package filter

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// Jobs that are stopped before they have begun never begin.
func TestStoppedJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int32
		client := tools.New(tools.Options{Metrics: tools.Metrics{Done: func(tools.Job, time.Duration, tools.Result) { made.Add(1) }}})
		j := newJobs(t.Context(), client)
		j.stop()
		j.start(make([]tools.Job, 4*maxParallelJobs))
		synctest.Wait()
		client.Close()
		if n := made.Load(); n != 0 {
			t.Errorf("%d jobs are done though they are stopped", n)
		}
	})
}

// withTool is a script whose server has a tool to list.
func withTool(t *testing.T) *script {
	t.Helper()
	return newScript(t, func(c *Config) {
		c.Loopback = "127.0.0.1:1"
		c.Tools.Servers = []ToolServer{{Label: "docs", URL: "http://127.0.0.1:1"}}
		c.Limits.TotalTimeout.Duration = time.Minute
	})
}

const toolBody = `{"model":"gpt-oss","input":"hi","tools":[{"type":"mcp","server_label":"docs"}]`

// What tools do for a reply ends with it, though Envoy's stream goes on.
func TestJobsEndWithTheReply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields string
		end    func(s *script)
	}{
		"out of time":         {"", func(s *script) { s.wait(time.Minute) }},
		"out of time, stream": {`,"stream":true`, func(s *script) { s.wait(time.Minute) }},
		"ended by Envoy":      {"", func(s *script) { s.answer(true, ":status=503") }},
		"stream ended by Envoy": {`,"stream":true`, func(s *script) {
			s.wait(10 * time.Second)
			s.answer(true, ":status=503")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withTool(t)
			s.request(false, ":method=POST", ":path=/v1/responses", "content-type=application/json", "x-request-id=abc")
			s.body(toolBody+c.fields+"}", true)
			if s.x.jobs.ctx == nil || s.x.jobs.ctx.Err() != nil {
				t.Fatal("no tool is at work")
			}
			c.end(s)
			if s.x.jobs.ctx.Err() == nil {
				t.Error("the tool goes on")
			}
			if s.x.phase != phaseAnswered && s.x.phase != phaseOver {
				t.Error("the reply goes on")
			}
			s.x.close(s.now)
		})
	}
}

// lateShelf is a journal in the store that is looked at before it is written to.
type lateShelf struct {
	store.Store
	look func()
}

func (s *lateShelf) Append(context.Context, string, string, string, store.Batch) error {
	s.look()
	return nil
}

// The tools of a background response end with it, whatever time the store takes
// to take it.
func TestJobsEndWithABackgroundResponse(t *testing.T) {
	t.Parallel()
	s := withTool(t)
	x := s.x
	m, _ := x.s.cfg.Model("gpt-oss")
	x.target = target{true, m, x.s.dialects[m.Engine]}
	call, err := x.s.apis.responses.decode(t.Context(), []byte(toolBody+`,"stream":true}`), x.s.scope(x))
	if err != nil {
		t.Fatal(err)
	}
	looked := false
	r := &backgroundRun{subject: subject{s: x.s, target: x.target}, jobs: newJobs(t.Context(), x.s.tools)}
	r.rec.started = x.s.now().Add(-2 * time.Minute) // it is out of time at once
	r.journal = journal{reply: &counter{n: 1}, timers: &r.timers, now: x.s.now, store: &lateShelf{look: func() {
		looked = true
		if r.jobs.ctx.Err() == nil {
			t.Error("the tool goes on")
		}
	}}}
	run := newRun(x.s, &r.journal, call, x.target, &r.rec, &r.timers, "abc", x.s.now())
	run.begun = true
	run.start(&toolRoom{}, http.Header{})
	if run.jobs != 1 || r.jobs.ctx.Err() != nil {
		t.Fatal("no tool is at work")
	}
	r.loop(t.Context(), run)
	if !looked {
		t.Error("nothing is stored")
	}
}
