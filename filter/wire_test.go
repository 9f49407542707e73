package filter

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// patience bounds waiting for events that must happen, also on a loaded machine.
const patience = 5 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestServer makes the service of the defaults with a change.
func newTestServer(change func(c *config.Config)) (*Server, error) {
	cfg := config.Defaults()
	cfg.Engines = []config.Engine{{Name: "main", Kind: "vllm"}}
	change(cfg)
	log := logrus.New()
	log.SetOutput(io.Discard)
	return New(cfg, Options{Log: log})
}

// startTestServer makes that service, and closes it when the test ends.
func startTestServer(t *testing.T, change func(c *config.Config)) *Server {
	t.Helper()
	s, err := newTestServer(change)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// What only the parts find wrong with a configuration is an error that names the
// setting.
func TestNewErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(c *config.Config)
		want   string
	}{
		"seal key, no base64": {func(c *config.Config) { c.Responses.SealKeys = []string{"not base64!"} }, "responses.seal_keys"},
		"seal key, too short": {func(c *config.Config) { c.Responses.SealKeys = []string{"c2hvcnQ="} }, "responses.seal_keys"},
		"engine":              {func(c *config.Config) { c.Engines[0].Kind = "other" }, `engine main: kind "other" is not one of`},
		"store":               {func(c *config.Config) { c.StoreURL = "ftp://x" }, "store_url"},
		"prefill without a listener": {func(c *config.Config) {
			c.Engines[0].Prefill = []config.Prefill{{URL: "http://p0"}}
		}, "engine main has prefill endpoints: the filter reaches them through Envoy's loopback listener; set loopback to its address"},
		"kept prefixes without a listener": {func(c *config.Config) {
			c.ModelDefaults.EffortUpdates = "keep_prefix"
		}, "effort_updates: keep_prefix lowers efforts by budgets of reasoning, which need Envoy's loopback listener"},
		"a model's kept prefix without a listener": {func(c *config.Config) {
			c.Models = []config.Model{{Match: "120b", EffortUpdates: "keep_prefix"}}
		}, "effort_updates: keep_prefix lowers efforts by budgets of reasoning, which need Envoy's loopback listener"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := newTestServer(c.change)
			if err == nil {
				_ = s.Close(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "not base64!") {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// A service with everything that there is begins and ends.
func TestNewAndClose(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *config.Config){
		"defaults":   func(*config.Config) {},
		"no store":   func(c *config.Config) { c.Responses.StoreBytes = 0 },
		"a listener": func(c *config.Config) { c.Loopback = "unix:///nowhere" },
		"disaggregated": func(c *config.Config) {
			c.Loopback = "unix:///nowhere"
			c.Engines[0].Prefill = []config.Prefill{{URL: "http://p0"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := newTestServer(change)
			if err != nil {
				t.Fatal(err)
			}
			g := grpc.NewServer(grpc.ForceServerCodecV2(Codec()))
			s.Register(g)
			if _, ok := g.GetServiceInfo()["envoy.service.ext_proc.v3.ExternalProcessor"]; !ok {
				t.Error("the service is not registered")
			}
			if err := s.ReadModels(t.Context()); (err != nil) != (s.current.Load().client != nil) { // nobody listens
				t.Errorf("the engines' models: %v", err)
			}
			s.Drain()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// What aborted streams leave to store is stored before the store is closed, though
// there is no time left for background responses.
func TestCloseWaitsForTheRest(t *testing.T) {
	t.Parallel()
	s, err := newTestServer(func(*config.Config) {})
	if err != nil {
		t.Fatal(err)
	}
	var stored atomic.Bool
	s.workers.Go(func() {
		time.Sleep(50 * time.Millisecond)
		stored.Store(true)
	})
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(now); err != nil || !stored.Load() {
		t.Errorf("%v, stored %t", err, stored.Load())
	}
}
