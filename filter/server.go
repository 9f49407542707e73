package filter

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Options is what a [Server] takes from outside. Every field may be left out.
type Options struct {
	Log     *logrus.Logger             // default: logrus's standard logger
	Metrics prometheus.Registerer      // default: a registry of its own
	Now     func() time.Time           // default: time.Now
	NewID   func(prefix string) string // default: prefix and 128 random bits in hex
	Random  func() uint64              // default: 64 random bits
}

// Server is the ext_proc service. It is safe for concurrent use.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer

	cfg        *Config
	log        *logrus.Logger
	metrics    *metrics
	dialects   map[string]engine.Dialect // by engine name
	env        *turn.Env
	apis       apis
	store      store.Store
	tools      *tools.Client
	loopback   *loopback // nil: Envoy sends the client's own request on to the engine
	background *background
	holds      sync.WaitGroup // of those who renew what calls hold, and who ask engines for their models
	budget     budget
	lists      map[string]*engineList // by engine name
	unlisted   atomic.Bool            // the upstream does not tell its models
	now        func() time.Time
	newID      func(prefix string) string
	drain      chan struct{} // closed by Drain
	drainOnce  sync.Once
	advised    sync.Map // engine name: its advice has been logged
}

// New makes the service of a validated configuration, which must not change
// any more.
func New(cfg *Config, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = randomID
	}
	if o.Random == nil {
		o.Random = randomBits
	}
	s := &Server{cfg: cfg, log: o.Log, now: o.Now, newID: o.NewID, dialects: map[string]engine.Dialect{}, lists: map[string]*engineList{}, drain: make(chan struct{})}
	s.budget.limit = cfg.Limits.MaxInflightBytes
	for _, e := range cfg.Engines {
		d, ok := engine.ByKind(e.Kind)
		if !ok {
			return nil, fmt.Errorf("engine %s: kind %q is not one of %v", e.Name, e.Kind, engine.Kinds())
		}
		s.dialects[e.Name], s.lists[e.Name] = d, &engineList{}
	}
	prefills, err := newPrefills(cfg, s.dialects, o.Random)
	if err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(o.Metrics); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if s.store, err = openStore(cfg, o.Now, s.metrics.storeFailed); err != nil {
		return nil, err
	}
	s.env = newEnv(cfg, o, s.store)
	api, err := newResponses(cfg, s.store)
	if err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	if s.tools, err = s.newTools(); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	if cfg.Loopback != "" {
		api.Tools, api.Builtins = s.tools, cfg.Tools.builtins()
	}
	s.apis = newAPIs(api)
	if cfg.Loopback != "" {
		s.loopback = newLoopback(cfg.Loopback)
		s.loopback.prefills = prefills
		s.loopback.keys = []string{cfg.Routing.PrefixHeader, cfg.Routing.SessionHeader}
	}
	s.background = newBackground(s)
	return s, nil
}

// Close waits for the background responses that are being made until ctx ends,
// then lets them fail, and gives up the store. Streams must have ended before.
func (s *Server) Close(ctx context.Context) error {
	s.Drain()
	s.background.close(ctx)
	if s.loopback != nil {
		s.loopback.close()
	}
	s.tools.Close()
	s.holds.Wait()
	return s.store.Close()
}

// logsContent tells whether prompts and replies may be logged.
func (s *Server) logsContent() bool {
	return s.cfg.Log.Content && s.log.IsLevelEnabled(logrus.DebugLevel)
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	extprocv3.RegisterExternalProcessorServer(g, s)
}

// randomID is prefix and 128 random bits in hex.
func randomID(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return prefix + hex.EncodeToString(b[:])
}

// randomBits are 64 random bits.
func randomBits() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return binary.BigEndian.Uint64(b[:])
}
