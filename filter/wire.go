package filter

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"

	"github.com/envoy-harmony/envoy-harmony/filter/background"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/extproc"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback"
	"github.com/envoy-harmony/envoy-harmony/filter/models"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

const (
	// openTimeout bounds how long the start waits for the store.
	openTimeout = 15 * time.Second
	// restTimeout bounds how long the end waits for what streams that were
	// aborted leave to store.
	restTimeout = 15 * time.Second
)

// Options is what a [Server] takes from outside. Every field may be left out.
type Options struct {
	Log     *logrus.Logger             // default: logrus's standard logger
	Metrics prometheus.Registerer      // default: a registry of its own
	Now     func() time.Time           // default: time.Now
	NewID   func(prefix string) string // default: prefix and 128 random bits in hex
	Random  func() uint64              // default: 64 random bits
}

func (o *Options) setDefaults() {
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
}

// Server is the ext_proc service with everything that it works with. It is safe for
// concurrent use.
type Server struct {
	extproc    *extproc.Server
	models     *models.Directory
	client     *loopback.Client // nil: there is no loopback listener
	background *background.Maker
	tools      *tools.Client
	workers    *run.Workers
	store      store.Store
}

// New makes the service of a validated configuration, which must not change any
// more.
func New(cfg *config.Config, o Options) (*Server, error) {
	o.setDefaults()
	dialects, err := newDialects(cfg)
	if err != nil {
		return nil, err
	}
	metrics, err := telemetry.NewMetrics(o.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s := &Server{workers: &run.Workers{Log: o.Log}}
	if cfg.Loopback != "" {
		if s.client, err = loopback.New(cfg, dialects, o.Random); err != nil {
			return nil, fmt.Errorf("loopback: %w", err)
		}
	}
	if s.tools, err = newTools(cfg, o, metrics); err != nil {
		return nil, err
	}
	if s.store, err = openStore(cfg, o.Now, metrics.StoreFailed); err != nil {
		s.tools.Close()
		return nil, err
	}
	api, err := newResponses(cfg, s)
	if err != nil {
		s.tools.Close()
		return nil, errors.Join(err, s.store.Close())
	}
	env := newRunEnv(cfg, o, telemetry.New(o.Log, metrics, cfg.Log.Content), s.workers)
	s.models = models.New(models.Options{Config: cfg, Dialects: dialects, Client: s.client, Log: o.Log, Now: o.Now})
	s.background = background.New(background.Options{
		Store: s.store, Client: s.client, Env: env, Owner: o.NewID(""), Max: cfg.Limits.MaxBackground, TenantHeader: cfg.TenantHeader,
	})
	s.extproc = extproc.New(extproc.Options{
		Config: cfg, Dialects: dialects, Endpoints: slices.Concat(chat.Endpoints(), api.Endpoints(), s.models.Endpoints()),
		Turns: newTurnEnv(cfg, o, s.store), Models: s.models, Client: s.client, Background: s.background, Env: env, NewID: o.NewID,
	})
	return s, nil
}

// Register adds the service to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) { s.extproc.Register(g) }

// ReadModels asks the engines for the context lengths of their models: see
// [models.Directory.Refresh].
func (s *Server) ReadModels(ctx context.Context) error { return s.models.Refresh(ctx) }

// FollowModels asks the engines again and again until ctx ends: see
// [models.Directory.KeepFresh].
func (s *Server) FollowModels(ctx context.Context) { s.models.KeepFresh(ctx) }

// Drain breaks off streams that can be resumed at another replica: see
// [extproc.Server.Drain].
func (s *Server) Drain() { s.extproc.Drain() }

// Close waits for the background responses that are being made until ctx ends, then
// lets them fail, and closes the store once the ends of all replies are stored.
// ext_proc streams must have ended before.
func (s *Server) Close(ctx context.Context) error {
	s.Drain()
	s.background.Close(ctx)
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), restTimeout)
	defer cancel()
	s.workers.Wait(rest)
	if s.client != nil {
		s.client.Close()
	}
	s.tools.Close()
	s.models.Close()
	return s.store.Close()
}

// newDialects are the engines' dialects, by engine name.
func newDialects(cfg *config.Config) (map[string]engine.Dialect, error) {
	dialects := map[string]engine.Dialect{}
	for _, e := range cfg.Engines {
		d, ok := engine.ByKind(e.Kind)
		switch {
		case !ok:
			return nil, fmt.Errorf("engine %s: kind %q is not one of %v", e.Name, e.Kind, engine.Kinds())
		case len(e.Prefill) > 0 && cfg.Loopback == "":
			return nil, fmt.Errorf("engine %s has prefill endpoints: the filter reaches them through Envoy's loopback listener; set loopback to its address, or leave prefill out", e.Name)
		}
		dialects[e.Name] = d
	}
	return dialects, nil
}

// openStore opens the store that the configuration names. failed counts accesses
// that it does not answer.
func openStore(cfg *config.Config, now func() time.Time, failed func(operation string)) (store.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	s, err := store.Open(ctx, cfg.StoreURL, store.Options{
		ResponseTTL: cfg.Responses.StoreTTL.Duration, ResponseBytes: cfg.Responses.StoreBytes,
		TextTTL: cfg.Limits.KeptReasoningTTL.Duration, TextBytes: cfg.Limits.KeptReasoningBytes,
		Now: now,
	})
	if err != nil {
		return nil, fmt.Errorf("store_url: %w", err)
	}
	return telemetry.CountErrors(s, failed), nil
}

// newTools makes the client of MCP servers.
func newTools(cfg *config.Config, o Options, metrics *telemetry.Metrics) (*tools.Client, error) {
	options, err := cfg.Tools.Options(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	options.Log, options.Now = o.Log, o.Now
	options.Metrics = tools.Metrics{Done: metrics.ToolDone, Sessions: metrics.ToolSessions}
	return tools.New(options), nil
}

// newRunEnv is what all runs share.
func newRunEnv(cfg *config.Config, o Options, t *telemetry.Telemetry, workers *run.Workers) *run.Env {
	l := cfg.Limits
	return &run.Env{
		Telemetry: t,
		Limits:    run.Limits{FirstToken: l.FirstTokenTimeout.Duration, Idle: l.IdleTimeout.Duration, Total: l.TotalTimeout.Duration, HeaderHold: l.HeaderHold.Duration, KeepAlive: l.KeepAlive.Duration},
		Keys:      run.Keys{Prefix: cfg.Routing.PrefixHeader, Session: cfg.Routing.SessionHeader, Selection: cfg.Routing.SelectionHeader},
		Now:       o.Now,
		Locks:     &run.Locks{Workers: workers},
		Workers:   workers,
		Explain:   cfg.ReplyHeaders,
	}
}

// newTurnEnv is what the turns of all requests share.
func newTurnEnv(cfg *config.Config, o Options, texts store.Texts) *turn.Env {
	limits := turn.DefaultLimits()
	limits.Tools, limits.Turns = cfg.Limits.MaxTools, cfg.Tools.MaxTurns
	limits.LastUserTextBytes = cfg.Routing.SelectionTextBytes
	limits.Bytes = int(min(int64(cfg.Limits.MaxConversationBytes), cfg.Limits.MaxInflightBytes)) // there is never room for more
	return &turn.Env{
		Renderer: harmony.NewRenderer(harmony.WithCacheBytes(cfg.Limits.CacheBytes)),
		Now:      o.Now,
		NewID:    o.NewID,
		Memory:   texts,
		Limits:   limits,
	}
}

// The configuration checks the keys that the Responses API seals with.
var _ [config.SealKeyBytes]byte = [responses.SealKeyBytes]byte{}

// newResponses makes the Responses API.
func newResponses(cfg *config.Config, s *Server) (*responses.API, error) {
	api := &responses.API{Approvals: s.store}
	if cfg.Responses.StoreBytes > 0 {
		api.Store = s.store
		if cfg.Responses.ChainCacheBytes > 0 {
			api.Chains = responses.NewChains(cfg.Responses.ChainCacheBytes)
		}
	}
	if s.client != nil {
		api.Tools, api.Builtins = s.tools, cfg.Tools.Builtins()
	}
	api.UsagePerTurn = cfg.Responses.UsagePerTurn
	api.ToolTimeout = cfg.Responses.ToolTimeout.Duration
	api.OpenReasoningEvents = cfg.Responses.ReasoningEvents == config.ReasoningEventsOpen
	keys, err := cfg.Responses.Keys()
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		key := make([]byte, config.SealKeyBytes) // compactions can be opened as long as the process lives
		_, _ = rand.Read(key)                    // never fails: see crypto/rand
		api.Compactor, err = responses.NewSealer([][]byte{key}, rand.Reader)
		return api, err
	}
	if api.Sealer, err = responses.NewSealer(keys, rand.Reader); err != nil {
		return nil, fmt.Errorf("responses.seal_keys: %w", err)
	}
	api.Compactor = api.Sealer
	return api, nil
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
