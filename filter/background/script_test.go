package background

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"go.uber.org/goleak"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore is a store that has journals and leases only.
type fakeStore struct {
	store.Store
	onAppend func(context.Context) error // nil: the batch is stored

	mu      sync.Mutex
	batches []store.Batch
	lost    bool // the leases are another process's
}

func (s *fakeStore) Append(ctx context.Context, _, _, _ string, b store.Batch) error {
	s.mu.Lock()
	onAppend := s.onAppend
	s.mu.Unlock()
	if onAppend != nil {
		if err := onAppend(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, b)
	return nil
}

func (s *fakeStore) Renew(_ context.Context, _ string, live []store.Key, _ time.Duration) ([]store.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return live, nil
	}
	return nil, nil
}

// text is what is stored of all streams, and whether it has its end.
func (s *fakeStore) text() (sse string, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []byte
	for _, b := range s.batches {
		all = append(all, b.SSE...)
		end = b.End
	}
	return string(all), end
}

// newTestMaker is a maker of at most two responses, and its log.
func newTestMaker(t *testing.T, s store.Store, limits run.Limits) (*Maker, *test.Hook) {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	metrics, err := telemetry.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Defaults()
	cfg.Loopback = "unix:///nowhere"
	client, err := loopback.New(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	workers := &run.Workers{Log: log}
	return New(Options{
		Store: s, Client: client, Owner: "me", Max: 2,
		Env: &run.Env{Telemetry: telemetry.New(log, metrics, false), Limits: limits, Now: time.Now, Locks: &run.Locks{Workers: workers}, Workers: workers},
	}), test.NewLocal(log)
}

// scriptedRequest is a request for a background response whose reply takes given
// steps.
type scriptedRequest struct {
	api.Request
	api.Background
	reply scriptedReply
	err   *apierror.Error // of Queue
}

func (r *scriptedRequest) Info() api.Info {
	return api.Info{ID: "resp_1", Stream: true, KeepAlive: api.KeepAliveComment, Background: r}
}
func (r *scriptedRequest) Ignored() []string           { return nil }
func (r *scriptedRequest) Affinity() turn.Affinity     { return turn.Affinity{} }
func (r *scriptedRequest) NewReply(api.Mode) api.Reply { return &r.reply }

func (r *scriptedRequest) Queue(context.Context, string, time.Duration) (store.Key, []byte, *apierror.Error) {
	return store.Key{Tenant: "a", ID: "resp_1"}, []byte(`{"id":"resp_1"}`), r.err
}

// scriptedReply writes an event for everything that happens to it.
type scriptedReply struct {
	api.BackgroundReply
	steps   []api.Step
	onFail  []api.Step // in place of the steps that are left, once the reply fails
	events  int
	lost    error
	panics  bool
	ending  bool
	commits bool // the last step stores the end
}

func (r *scriptedReply) Background() api.BackgroundReply { return r }
func (r *scriptedReply) ToolCalls() (int, int)           { return 0, 0 }

func (r *scriptedReply) Start()        { r.events = 2 }
func (r *scriptedReply) Sequence() int { return r.events }
func (r *scriptedReply) Lost() error   { return r.lost }
func (r *scriptedReply) Ending() bool  { return r.ending || r.commits && len(r.steps) == 0 }

func (r *scriptedReply) write(dst []byte, format string, args ...any) []byte {
	r.events++
	return fmt.Appendf(dst, format+"\n", args...)
}

func (r *scriptedReply) Step(dst []byte) ([]byte, api.Step, *apierror.Error) {
	if r.panics {
		panic("bug")
	}
	if len(r.steps) == 0 {
		return dst, api.Step{}, nil
	}
	step := r.steps[0]
	r.steps = r.steps[1:]
	return r.write(dst, "%d jobs", len(step.Jobs)), step, nil
}

func (r *scriptedReply) JobDone(dst []byte, _ int, result any, err error) []byte {
	return r.write(dst, "job done: %v, %v", result, err)
}

func (r *scriptedReply) Fail(dst []byte, err *apierror.Error) []byte {
	r.steps = r.onFail
	return r.write(dst, "failed: %s", err.Code)
}

func (r *scriptedReply) End(dst []byte) ([]byte, *apierror.Error) { return r.write(dst, "end"), nil }
func (r *scriptedReply) Cancel() []api.Job                        { return nil }
func (r *scriptedReply) Summary() turn.Summary                    { return turn.Summary{} }
func (r *scriptedReply) Fault() error                             { return nil }

type jobFunc = apitest.JobFunc
