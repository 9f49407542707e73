package run

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the tests of this package share: a run without a loop, whose client,
// executor and clock are the test's.

// recordingDownstream is a client that keeps what it gets.
type recordingDownstream struct {
	header []engine.Header
	text   strings.Builder
	ended  bool
	err    *apierror.Error
}

func (d *recordingDownstream) SendHeaders(header []engine.Header) { d.header = header }
func (d *recordingDownstream) SendError(err *apierror.Error)      { d.err = err }
func (d *recordingDownstream) SendBody(p []byte, end bool) {
	d.text.Write(p)
	d.ended = end
}

// recordingExecutor keeps what a run begins, and does none of it.
type recordingExecutor struct {
	calls    []*engine.Request
	ids      []string // of the calls, as the engine gets them
	attempts []Retry  // of the calls
	jobs     []api.Job
	beside   []api.Job
	detached []api.Job
}

func (e *recordingExecutor) Call(req *engine.Request, retry Retry) *apierror.Error {
	e.calls, e.attempts = append(e.calls, req), append(e.attempts, retry)
	e.ids = append(e.ids, req.ID.String())
	return nil
}
func (e *recordingExecutor) Start(list []api.Job)  { e.jobs = append(e.jobs, list...) }
func (e *recordingExecutor) Beside(job api.Job)    { e.beside = append(e.beside, job) }
func (e *recordingExecutor) Detach(list []api.Job) { e.detached = append(e.detached, list...) }

// testRun is a run with everything around it.
type testRun struct {
	*Run
	downstream *recordingDownstream
	executor   *recordingExecutor
}

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newTestEnv is the environment of runs that log nothing.
func newTestEnv(t *testing.T) *Env {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	metrics, err := telemetry.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	workers := &Workers{Log: log}
	return &Env{
		Telemetry: telemetry.New(log, metrics, false),
		Limits:    Limits{FirstToken: 5 * time.Minute, Idle: 2 * time.Minute, Total: time.Hour, HeaderHold: 2 * time.Second, KeepAlive: 15 * time.Second},
		Now:       time.Now,
		Locks:     &Locks{Workers: workers},
		Workers:   workers,
	}
}

// newTestRun is a run of a request at an engine of a kind. It has not begun.
func newTestRun(t *testing.T, request api.Request, mode api.Mode, kind string) *testRun {
	t.Helper()
	dialect, ok := engine.ByKind(kind)
	if !ok {
		t.Fatalf("no engine of kind %s", kind)
	}
	r := &testRun{downstream: &recordingDownstream{}, executor: &recordingExecutor{}}
	t.Cleanup(func() { checkCallIDs(t, r.executor) })
	r.Run = newRun(newTestEnv(t), Options{
		Request: request, Mode: mode, Target: Target{Engine: "main", Model: "gpt-oss", Dialect: dialect},
		RequestID: "abc", Header: http.Header{}, Downstream: r.downstream, Executor: r.executor,
	}, &telemetry.Record{Started: testStart}, &Timers{}, testStart)
	return r
}

// checkCallIDs shows that no call of a run has an id that begins with that of another call:
// whatever made the test's run leave a call and make the next, SGLang would end both.
func checkCallIDs(t *testing.T, made *recordingExecutor) {
	t.Helper()
	for i, id := range made.ids {
		for j, other := range made.ids {
			if i != j && strings.HasPrefix(id, other) {
				t.Errorf("call %d has the id %s, which begins with that of call %d: %s", i, id, j, other)
			}
		}
	}
}

// startChat begins the run of a chat request whose model calls the filter makes.
func startChat(t *testing.T, fields string) *testRun {
	t.Helper()
	r := newTestRun(t, chatRequest(t, fields, false), api.Loop, "vllm")
	r.Start()
	return r
}

// chatRequest is a decoded chat request. checked says that the engine takes no
// grammar.
func chatRequest(t *testing.T, fields string, checked bool) *chat.Request {
	t.Helper()
	return decodeChat(t, fields, checked, &turn.Model{})
}

func decodeChat(t *testing.T, fields string, checked bool, model *turn.Model) *chat.Request {
	t.Helper()
	return decodeAccounted(t, fields, checked, model, nil)
}

// decodeAccounted is decodeChat with an account of work.
func decodeAccounted(t *testing.T, fields string, checked bool, model *turn.Model, account *work.Account) *chat.Request {
	t.Helper()
	body := fmt.Sprintf(`{"model":"openai/gpt-oss-20b","messages":[{"role":"user","content":"Hi"}]%s}`, fields)
	request, err := chat.Decode(t.Context(), []byte(body), &turn.RequestContext{
		Env: &turn.Env{
			Renderer: harmony.NewRenderer(), Now: func() time.Time { return testStart },
			NewID: func(prefix string) string { return prefix + "id" }, Limits: turn.DefaultLimits(),
		},
		Model: model, RequestID: "abc", Checked: checked, Work: account,
	})
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// retries is how many calls have been made beside the first.
func (r *testRun) retries() int { return len(r.executor.calls) - 1 }

// feed hands events of the model call to the run, one after the other.
func (r *testRun) feed(events ...Event) {
	for _, e := range events {
		r.At(r.now)
		r.EngineEvent(e)
	}
}

// wait moves the clock on, and lets a timer expire.
func (r *testRun) wait(d time.Duration, name Timer) {
	r.At(r.now.Add(d))
	r.timers.Clear(name)
	r.expired(name)
}

var errBroken = errors.New("connection reset")

// ok is the beginning of an engine's answer.
func ok() Event { return Answered(200, http.Header{}, nil) }

func bytesOf(text string) Event { return Bytes([]byte(text)) }

// answer is an engine's whole answer: the model's output as Harmony text.
func answer(output string) []Event {
	return []Event{ok(), bytesOf(event("stop", tokens(output)...)), Ended(nil)}
}

// An engine's output: tokens of Harmony text, and their events.
var (
	tokens = apitest.Tokens
	event  = apitest.VLLMEvent
)

// scriptedRequest is a request for a stream whose reply takes given steps.
type scriptedRequest struct {
	api.Request
	reply scriptedReply
}

func (r *scriptedRequest) Info() api.Info {
	return api.Info{ID: "resp_1", Stream: true, KeepAlive: api.KeepAliveComment}
}
func (r *scriptedRequest) Affinity() turn.Affinity     { return turn.Affinity{} }
func (r *scriptedRequest) Ignored() []string           { return nil }
func (r *scriptedRequest) NewReply(api.Mode) api.Reply { return &r.reply }

// scriptedReply writes an event for everything that happens to it.
type scriptedReply struct {
	api.Reply
	steps    []api.Step
	onFail   []api.Step // in place of the steps that are left, once the reply fails
	onCancel []api.Job
}

func (r *scriptedReply) Step(dst []byte) ([]byte, api.Step, *apierror.Error) {
	if len(r.steps) == 0 {
		return dst, api.Step{}, nil
	}
	step := r.steps[0]
	r.steps = r.steps[1:]
	if n := len(step.Jobs); n > 0 {
		dst = fmt.Appendf(dst, "data: %d jobs\n\n", n)
	}
	return dst, step, nil
}

func (r *scriptedReply) Push(dst []byte, c *engine.Chunk) ([]byte, *apierror.Error) {
	return fmt.Appendf(dst, "data: %d tokens\n\n", len(c.Tokens)), nil
}

func (r *scriptedReply) JobDone(dst []byte, i int, result any, err error) []byte {
	return fmt.Appendf(dst, "data: job %d: %v, %v\n\n", i, result, err)
}

func (r *scriptedReply) Fail(dst []byte, err *apierror.Error) []byte {
	r.steps = r.onFail
	return fmt.Appendf(dst, "data: failed: %s\n\n", err.Code)
}

func (r *scriptedReply) End(dst []byte) ([]byte, *apierror.Error) {
	return append(dst, "data: [DONE]\n\n"...), nil
}

func (r *scriptedReply) Done() bool            { return false }
func (r *scriptedReply) Cancel() []api.Job     { return r.onCancel }
func (r *scriptedReply) Summary() turn.Summary { return turn.Summary{} }
func (r *scriptedReply) Fault() error          { return nil }
func (r *scriptedReply) Turn() *turn.Turn      { return nil }

type jobFunc = apitest.JobFunc
