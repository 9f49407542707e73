package responses

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/write"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// committing is a reply whose model call has ended.
type committing struct {
	*write.Reply
	request *write.Request
}

// committing is a reply whose model call has ended, and the commit that its step asks
// for.
func (s *server) committing(t *testing.T, body string) (r committing, out []byte, commits []api.Job) {
	t.Helper()
	request, err := s.decode([]byte(body), s.rc)
	if err != nil {
		t.Fatal(err)
	}
	r = committing{newReply(request, api.SingleCall), request}
	if out, err = r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop}); err != nil {
		t.Fatal(err)
	}
	out, step, err := r.Step(out)
	if err != nil || step.Call != nil {
		t.Fatalf("step %+v, %v", step, err)
	}
	return r, out, step.Jobs
}

// stored is the status of the stored response; "" if there is none.
func (s *server) stored(request *write.Request) string {
	got, err := s.do(http.MethodGet, Path+"/"+request.ResponseID)
	if err != nil {
		return ""
	}
	return gjson.Get(got, "status").Str
}

// done hands the result of a reply's commit back, and expects that no step follows.
func done(t *testing.T, r *write.Reply, out []byte, result any, err error) []byte {
	t.Helper()
	out, step, apiErr := r.Step(r.JobDone(out, 0, result, err))
	if apiErr != nil || step.Call != nil || len(step.Jobs) > 0 {
		t.Fatalf("after the commit there is %+v, %v", step, apiErr)
	}
	return out
}

// TestCommitBeforeEnd shows that the client gets the end only when the response
// is stored.
func TestCommitBeforeEnd(t *testing.T) {
	t.Parallel()
	s := newServer()
	r, out, commits := s.committing(t, ask(`,"stream":true`))
	if len(commits) != 1 {
		t.Fatalf("%d jobs", len(commits))
	}
	if !strings.Contains(string(out), "response.output_item.done") || strings.Contains(string(out), "response.completed") {
		t.Errorf("before the commit the client gets\n%s", out)
	}
	if got := s.stored(r.request); got != "" {
		t.Errorf("before the job is done, %s is stored", got)
	}
	result, err := commits[0].Do(context.Background())
	if got := s.stored(r.request); got != "completed" {
		t.Errorf("when the job is done, %q is stored", got)
	}
	out = done(t, r.Reply, out, result, err)
	if strings.Contains(string(out), "response.completed") {
		t.Errorf("before its end the client gets\n%s", out)
	}
	out, _ = r.End(out)
	if got := gjson.Parse(final(t, r.request, string(out))); got.Get("status").Str != "completed" || !got.Get("store").Bool() {
		t.Errorf("the end is %s", got.Raw)
	}
	if more, err := r.End(nil); len(more) > 0 || err != nil {
		t.Errorf("the reply ends again: %s, %v", more, err)
	}
}

// TestCommitFails shows that the client gets its response, and what it says of the
// store, if the store fails or the job has no result.
func TestCommitFails(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		for name, do := range map[string]func(api.Job) (any, error){
			"the store fails":   func(j api.Job) (any, error) { return j.Do(context.Background()) },
			"there is no value": func(api.Job) (any, error) { return nil, errBroken },
		} {
			s := newServer()
			s.Store = brokenStore{}
			r, out, commits := s.committing(t, ask(`,"stream":`+stream))
			result, err := do(commits[0])
			out, _ = r.End(done(t, r.Reply, out, result, err))
			got := gjson.Parse(final(t, r.request, string(out)))
			if got.Get("status").Str != "completed" || got.Get("store").Bool() || !errors.Is(r.Fault(), errBroken) {
				t.Errorf("%s, stream %s: %s, fault %v", name, stream, got.Raw, r.Fault())
			}
		}
	}
}

// TestCancelWhileCommitting shows that what is being stored is not stored again.
func TestCancelWhileCommitting(t *testing.T) {
	t.Parallel()
	s := newServer()
	r, out, commits := s.committing(t, ask(`,"stream":true`))
	if more := r.Cancel(); len(more) > 0 {
		t.Errorf("a second commit: %v", more)
	}
	result, err := commits[0].Do(context.Background())
	out = done(t, r.Reply, out, result, err)
	if end, err := r.End(nil); len(end) > 0 || err != nil {
		t.Errorf("a cancelled reply ends with %s, %v behind\n%s", end, err, out)
	}
	if got := s.stored(r.request); got != "completed" {
		t.Errorf("%q is stored", got)
	}
}

// TestFailWhileCommitting shows that an error of the filter's, such as that time is up,
// is the end that the client gets though the store has not answered.
func TestFailWhileCommitting(t *testing.T) {
	t.Parallel()
	late := apierror.New(http.StatusGatewayTimeout, "engine_timeout", "", "Too late.")
	for _, stream := range []bool{true, false} {
		s := newServer()
		r, out, commits := s.committing(t, apitest.With(t, ask(""), "stream", stream))
		out = r.Fail(out, late)
		out, step, err := r.Step(out)
		if err != nil || len(step.Jobs) > 0 {
			t.Fatalf("a second commit: %v, %v", step.Jobs, err)
		}
		result, doErr := commits[0].Do(context.Background())
		if out, err = r.End(r.JobDone(out, 0, result, doErr)); stream {
			if got := final(t, r.request, string(out)); gjson.Get(got, "status").Str != "failed" {
				t.Errorf("the stream ends with %s", got)
			}
		} else if err != late || len(out) > 0 {
			t.Errorf("the whole object is %s, %v", out, err)
		}
	}
}

// TestFailedIsCommitted shows that the commit of a failed stream comes before its last
// event, and that one which is cancelled then is stored as failed.
func TestFailedIsCommitted(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		s := newServer()
		request, err := s.decode([]byte(ask(`,"stream":true`)), s.rc)
		if err != nil {
			t.Fatal(err)
		}
		r := newReply(request, api.SingleCall)
		out := r.Fail(nil, apierror.New(http.StatusBadGateway, "engine_error", "", "Broken."))
		if strings.Contains(string(out), "response.failed") {
			t.Errorf("before the commit the client gets\n%s", out)
		}
		if cancelled {
			cancel(t, r)
		} else if got := final(t, request, string(mustEnd(t, r, out))); gjson.Get(got, "status").Str != "failed" {
			t.Errorf("the stream ends with %s", got)
		}
		if got := s.stored(request); got != "failed" {
			t.Errorf("cancelled %t: %q is stored", cancelled, got)
		}
	}
}

// TestStaleResult shows that the result of a job that the reply has dropped is not
// taken for that of the commit.
func TestStaleResult(t *testing.T) {
	t.Parallel()
	s := newServer()
	r, out, commits := s.committing(t, ask(`,"stream":true`))
	out = r.JobDone(r.JobDone(out, 7, nil, nil), 0, "of another job", nil)
	result, err := commits[0].Do(context.Background())
	out, _ = r.End(done(t, r.Reply, out, result, err))
	if got := final(t, r.request, string(out)); !gjson.Get(got, "store").Bool() || r.Fault() != nil {
		t.Errorf("the end is %s, fault %v", got, r.Fault())
	}
}

// TestNothingToCommit shows a response that is not stored.
func TestNothingToCommit(t *testing.T) {
	t.Parallel()
	s := newServer()
	r, out, jobs := s.committing(t, ask(`,"stream":true,"store":false`))
	if len(jobs) > 0 {
		t.Fatalf("jobs %v", jobs)
	}
	out, _ = r.End(out)
	final(t, r.request, string(out))
}

// TestKeepReasoning shows that the reasoning of a tool turn is kept by a job, also if
// the client leaves, and that a failure of the job is a fault only.
func TestKeepReasoning(t *testing.T) {
	t.Parallel()
	const called = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>"
	for _, left := range []bool{false, true} {
		s := newServer()
		request, err := s.decode([]byte(ask(`,"store":false`+weatherTool)), s.rc)
		if err != nil {
			t.Fatal(err)
		}
		r := newReply(request, api.SingleCall)
		if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(called), Finish: engine.FinishStop}); err != nil {
			t.Fatal(err)
		}
		if left {
			if jobs := r.Cancel(); len(jobs) != 1 {
				t.Errorf("a client that leaves has the jobs %v", jobs)
			}
			continue
		}
		_, step, err := r.Step(nil)
		if err != nil || len(step.Jobs) != 1 {
			t.Fatalf("step %+v, %v", step, err)
		}
		out := done(t, r, nil, nil, errBroken)
		out, err = r.End(out)
		if object := gjson.Parse(final(t, request, string(out))); err != nil || object.Get("status").Str != "completed" || !errors.Is(r.Fault(), errBroken) {
			t.Errorf("%v, %s, fault %v", err, object.Raw, r.Fault())
		}
	}
}

// flakyStore is a store whose first writes fail.
type flakyStore struct {
	store.Store
	failing int
	err     error
}

func (s *flakyStore) Put(ctx context.Context, tenant string, r *store.Response) error {
	if s.failing > 0 {
		s.failing--
		return s.err
	}
	return s.Store.Put(ctx, tenant, r)
}

// TestBackgroundCommit shows that the store is tried again for a background response,
// unless that cannot help.
func TestBackgroundCommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		stored string
	}{{errBroken, "completed"}, {store.ErrTooLarge, "in_progress"}} {
		s := newServer()
		flaky := &flakyStore{Store: s.Store, err: c.err}
		s.Store = flaky
		request, r := s.queue(t)
		flaky.failing = 1
		if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop}); err != nil {
			t.Fatal(err)
		}
		out := mustEnd(t, r, nil)
		if got := s.stored(request); got != c.stored || (r.Lost() == nil) != (c.stored == "completed") || (r.Lost() == nil) != strings.Contains(string(out), "response.completed") {
			t.Errorf("%v: %q is stored, lost %v, and the stream ends with\n%s", c.err, got, r.Lost(), out)
		}
	}
}

// TestBackgroundGivesUpCommit shows that the stream of a background response gets no
// end while it is not known what the store has.
func TestBackgroundGivesUpCommit(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]func(r *write.Reply){
		"it fails": func(r *write.Reply) { r.Fail(nil, apierror.New(http.StatusGatewayTimeout, "", "", "Too late.")) },
		"it ends":  func(*write.Reply) {},
	} {
		s := newServer()
		_, r := s.queue(t)
		if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(said), Finish: engine.FinishStop}); err != nil {
			t.Fatal(err)
		}
		if _, step, err := r.Step(nil); err != nil || len(step.Jobs) != 1 {
			t.Fatalf("step %+v, %v", step, err)
		}
		giveUp(r)
		if out, err := r.End(nil); len(out) > 0 || err != nil || r.Lost() == nil {
			t.Errorf("%s: the end is %s, %v, lost %v", name, out, err, r.Lost())
		}
	}
}
