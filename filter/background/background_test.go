package background

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// A place is taken before a response is queued, so no more are made at a time
// than may be.
func TestPlaces(t *testing.T) {
	t.Parallel()
	m, _ := newTestMaker(t, &fakeStore{}, run.Limits{})
	full := apierror.New(http.StatusInsufficientStorage, "", "", "full")
	for i, c := range []struct {
		err    *apierror.Error // of the store
		status int
	}{{nil, 0}, {full, 507}, {nil, 0}, {nil, 503}, {full, 503}} {
		status := 0
		if _, err := m.Queue(t.Context(), &Response{Request: &scriptedRequest{err: c.err}}); err != nil {
			status = err.Status
		}
		if status != c.status {
			t.Errorf("response %d: status %d, want %d", i, status, c.status)
		}
	}
	m.leave()
	if err := m.admit(); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	m.leave()
	m.closed = true
	if err := m.admit(); err == nil || err.Status != 503 {
		t.Errorf("closed: %v", err)
	}
	m.o.Max = 0
	if err := m.admit(); err == nil || err.Status != 400 {
		t.Errorf("switched off: %v", err)
	}
	m.o.Client = nil
	if err := m.admit(); err == nil || err.Status != 400 {
		t.Errorf("without a listener: %v", err)
	}
}

// How responses end, by the numbers in the package's doc. The fifth way is that of
// the next process.
func TestHowResponsesEnd(t *testing.T) {
	t.Parallel()
	job := func(d time.Duration, err error) []api.Step {
		return []api.Step{{Jobs: []api.Job{jobFunc(func(ctx context.Context) (any, error) {
			select {
			case <-time.After(d):
				return "x", err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})}}}
	}
	for name, c := range map[string]struct {
		reply   scriptedReply
		drive   func(m *Maker, s *fakeStore)
		text    string
		outcome string
	}{
		"1. complete":                 {scriptedReply{steps: job(time.Minute, nil)}, nil, "1 jobs\njob done: x, <nil>\nend\n", "ok"},
		"1. complete, not stored":     {scriptedReply{steps: job(time.Minute, nil), lost: errors.New("down")}, nil, "1 jobs\njob done: x, <nil>\nend\n", "failed"},
		"1. complete, ended by other": {scriptedReply{steps: job(time.Minute, nil), lost: store.ErrConflict}, nil, "1 jobs\njob done: x, <nil>\nend\n", "canceled"},
		"2. out of time":              {scriptedReply{steps: job(2*time.Hour, nil), onFail: job(time.Second, nil)}, nil, "1 jobs\nfailed: engine_timeout\n1 jobs\njob done: x, <nil>\nend\n", "failed"},
		"3. lost": {scriptedReply{steps: job(time.Minute, nil)}, func(_ *Maker, s *fakeStore) {
			time.Sleep(time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lost = true
		}, "1 jobs\n", "canceled"},
		"3. lost while the end is stored": {scriptedReply{steps: job(time.Minute, nil), ending: true}, func(_ *Maker, s *fakeStore) {
			time.Sleep(time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lost = true
		}, "1 jobs\njob done: x, <nil>\nend\n", "ok"},
		"3. lost while the last events are stored": {scriptedReply{steps: job(time.Second, nil)}, func(_ *Maker, s *fakeStore) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.onAppend = func(context.Context) error {
				time.Sleep(4 * time.Second)
				s.mu.Lock()
				defer s.mu.Unlock()
				s.lost = true
				return nil
			}
		}, "1 jobs\njob done: x, <nil>\nend\n", "ok"},
		"4. shutdown, complete in time": {scriptedReply{steps: job(time.Minute, nil)}, func(m *Maker, _ *fakeStore) { m.Close(context.Background()) }, "1 jobs\njob done: x, <nil>\nend\n", "ok"},
		"4. shutdown": {scriptedReply{steps: job(time.Minute, nil), onFail: job(time.Second, nil)}, func(m *Maker, _ *fakeStore) {
			soon, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			m.Close(soon)
		}, "1 jobs\nfailed: shutdown\n1 jobs\njob done: x, <nil>\nend\n", "drain"},
		"4. shutdown while the end is stored": {scriptedReply{steps: job(20*time.Second, nil), ending: true}, func(m *Maker, _ *fakeStore) {
			soon, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			m.Close(soon)
		}, "1 jobs\njob done: x, <nil>\nend\n", "ok"},
		"4. shutdown, the response cannot be stored": {scriptedReply{steps: job(time.Minute, nil), onFail: job(time.Hour, nil)}, func(m *Maker, _ *fakeStore) {
			soon, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			m.Close(soon)
		}, "1 jobs\nfailed: shutdown\n1 jobs\nfailed: shutdown\nend\n", "drain"},
		"4. shutdown while the last events are stored": {scriptedReply{steps: job(time.Minute, nil)}, func(m *Maker, s *fakeStore) {
			time.Sleep(time.Second) // the first events are stored
			s.mu.Lock()
			s.onAppend = func(context.Context) error { time.Sleep(4 * time.Second); return nil }
			s.mu.Unlock()
			soon, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			m.Close(soon)
		}, "1 jobs\njob done: x, <nil>\nend\n", "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &fakeStore{}
				m, logged := newTestMaker(t, s, run.Limits{Total: time.Hour})
				released := 0
				r := &Response{Request: &scriptedRequest{reply: c.reply}, API: "responses", Started: time.Now(), Release: func() { released++ }}
				if object, err := m.Queue(t.Context(), r); err != nil || string(object) != `{"id":"resp_1"}` {
					t.Fatalf("%s, %v", object, err)
				}
				m.Start(r)
				if c.drive != nil {
					c.drive(m, s)
				}
				m.Close(context.Background())
				m.o.Env.Workers.Wait(context.Background())
				text, end := s.text()
				if text != c.text || end != (c.reply.lost == nil && strings.HasSuffix(text, "end\n")) {
					t.Errorf("stored %q, end %t", text, end)
				}
				if e := logged.LastEntry(); e == nil || e.Data["outcome"] != c.outcome || e.Data["background"] != true || e.Data["response"] != "resp_1" {
					t.Errorf("logged %v", e)
				}
				if released != 1 || m.places != 0 || len(m.running) > 0 {
					t.Errorf("released %d times, %d places taken", released, m.places)
				}
			})
		})
	}
}

// The jobs of a background response end with it, whatever time the store takes to
// store its last events.
func TestJobsEndWithTheResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		reply := scriptedReply{steps: []api.Step{{Jobs: []api.Job{jobFunc(func(ctx context.Context) (any, error) {
			<-ctx.Done()
			ended.Store(true)
			return nil, ctx.Err()
		})}}}}
		s := &fakeStore{}
		m, _ := newTestMaker(t, s, run.Limits{Total: journalDelay / 2}) // nothing is stored before the end
		checked := false
		s.onAppend = func(context.Context) error {
			time.Sleep(time.Second)
			checked = true
			if !ended.Load() {
				t.Error("the job goes on")
			}
			return nil
		}
		r := &Response{Request: &scriptedRequest{reply: reply}, Started: time.Now(), Release: func() {}}
		if _, err := m.Queue(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		m.Start(r)
		m.Close(context.Background())
		if !checked {
			t.Error("nothing is stored")
		}
	})
}

// The end of a response is stored behind its events, because the store takes only the
// last event from then on. A store that fails delays it by drainTries accesses.
func TestEndIsStoredBehindTheEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		onAppend func(context.Context) error
		text     string        // stored before the end of the response is
		after    time.Duration // since the beginning
	}{
		"a slow store":         {func(context.Context) error { time.Sleep(time.Second); return nil }, "1 jobs\njob done: <nil>, <nil>\n1 jobs\n", 2 * time.Second},
		"a store that fails":   {func(context.Context) error { return errors.New("down") }, "", journalDelay + journalRetry}, // the second access is that of the end
		"another has ended it": {func(context.Context) error { return store.ErrConflict }, "", journalDelay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &fakeStore{onAppend: c.onAppend}
				m, _ := newTestMaker(t, s, run.Limits{Total: time.Hour})
				begun, stored := time.Now(), false
				work := jobFunc(func(context.Context) (any, error) { time.Sleep(journalDelay + time.Millisecond); return nil, nil })
				commit := jobFunc(func(context.Context) (any, error) {
					stored = true
					if text, _ := s.text(); text != c.text {
						t.Errorf("stored before the end: %q", text)
					}
					if after := time.Since(begun); after < c.after || after > c.after+time.Second { // the fake clock's
						t.Errorf("after %s", after)
					}
					return nil, nil
				})
				reply := scriptedReply{steps: []api.Step{{Jobs: []api.Job{work}}, {Jobs: []api.Job{commit}}}, commits: true}
				r := &Response{Request: &scriptedRequest{reply: reply}, Started: time.Now(), Release: func() {}}
				if _, err := m.Queue(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				m.Start(r)
				m.Close(context.Background())
				m.o.Env.Workers.Wait(context.Background())
				if !stored {
					t.Error("the end is not stored")
				}
			})
		})
	}
}

// A store that hangs delays the shutdown for as long as the last events may wait for
// it.
func TestJournalOfAStoreThatHangs(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(context.Context) error{
		"until its context ends": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"for 30 s":               func(context.Context) error { time.Sleep(30 * time.Second); return errors.New("down") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &fakeStore{onAppend: hang}
				m, logged := newTestMaker(t, s, run.Limits{Total: time.Hour})
				reply := scriptedReply{steps: []api.Step{{Jobs: []api.Job{jobFunc(func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() })}}}}
				r := &Response{Request: &scriptedRequest{reply: reply}, Started: time.Now(), Release: func() {}}
				if _, err := m.Queue(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				m.Start(r)
				begun := time.Now()
				soon, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				m.Close(soon)
				if took := time.Since(begun); took > time.Second+endTimeout { // the fake clock's
					t.Errorf("the shutdown took %s", took)
				}
				if e := logged.LastEntry(); e == nil || e.Data["outcome"] != "drain" || e.Data["code"] != "shutdown" || e.Data["fault"] == nil {
					t.Errorf("logged %v", e)
				}
				m.o.Env.Workers.Wait(context.Background())
			})
		})
	}
}

// The credentials of a client do not go along with the model calls of a background
// response.
func TestHeadersOfModelCalls(t *testing.T) {
	t.Parallel()
	client := http.Header{"Host": {"api.example"}, "X-Request-Id": {"abc"}, "Traceparent": {"00-1"}, "User-Agent": {""}, "X-Tenant": {"a"}, "Authorization": {"Bearer secret"}, "X-Forwarded-Access-Token": {"secret"}}
	want := http.Header{"Host": {"api.example"}, "X-Request-Id": {"abc"}, "Traceparent": {"00-1"}, "X-Tenant": {"a"}, "User-Agent": {""}}
	if diff := cmp.Diff(want, backgroundHeaders(client, "x-tenant")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

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

// A panic in the first step ends a response: its lock, lease, place and budget are
// released.
func TestFirstStepPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, logged := newTestMaker(t, &fakeStore{}, run.Limits{})
		request := &lockedRequest{scriptedRequest: scriptedRequest{reply: scriptedReply{panics: true}}}
		released := 0
		r := &Response{Request: request, Started: time.Now(), Release: func() { released++ }}
		if _, err := m.Queue(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		m.Start(r)
		m.Close(context.Background())
		soon, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		m.o.Env.Workers.Wait(soon)
		if n := request.unlocked.Load(); n != 1 || released != 1 || m.places != 0 {
			t.Errorf("unlocked %d times, released %d times, %d places taken", n, released, m.places)
		}
		if e := logged.LastEntry(); e == nil || e.Data["outcome"] != "failed" {
			t.Errorf("logged %v", e)
		}
	})
}

// Close waits for a response that is queued and is going to be started.
func TestCloseWaitsForAQueuedResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{}
		m, _ := newTestMaker(t, s, run.Limits{})
		r := &Response{Request: &scriptedRequest{}, Started: time.Now(), Release: func() {}}
		if _, err := m.Queue(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		closed := false
		go func() {
			soon, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			m.Close(soon)
			closed = true
		}()
		synctest.Wait()
		if closed {
			t.Error("closed before the response is started")
		}
		time.Sleep(2 * time.Second)
		m.Start(r)
		synctest.Wait()
		time.Sleep(time.Second)
		if text, end := s.text(); !closed || text != "end\n" || !end {
			t.Errorf("closed %t, stored %q, end %t", closed, text, end)
		}
	})
}
