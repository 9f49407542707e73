package filter

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/extproc"
	"github.com/envoy-harmony/envoy-harmony/filter/messages"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/websocket"
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
	Version string                     // of the program, for records
	// OwnEnvoy says that Envoy's configuration was made from the same
	// configuration, so that keys that both depend on cannot change.
	OwnEnvoy bool
	// StoreReached is called once, when the store has answered for the first time: for most
	// stores before New returns.
	StoreReached func() // default: nothing is done

	// OpenTelemetry: see docs/telemetry.md.
	Tracers trace.TracerProvider // default: no spans are made
	Meters  metric.MeterProvider // default: no metrics are made for it
	Content bool                 // spans have prompts, replies, and arguments and results of tools
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
	if o.StoreReached == nil {
		o.StoreReached = func() {}
	}
	if o.Random == nil {
		o.Random = randomBits
	}
}

// Server is the ext_proc service with everything that it works with. It is safe for
// concurrent use. What it has is of two kinds: what lives as long as the process is
// here, what follows from the configuration is the current generation's.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer

	o         Options
	telemetry *telemetry.Telemetry
	workers   *run.Workers
	store     store.Store
	owner     string // this process, in the store
	seals     sealing
	records   *records

	sockets *websocket.Server

	apply   sync.Mutex // held while a configuration is applied
	closed  bool
	current atomic.Pointer[generation]
}

// New makes the service of a validated configuration, which must not change any
// more.
func New(cfg *config.Config, o Options) (*Server, error) {
	o.setDefaults()
	metrics, err := telemetry.NewMetrics(o.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s := &Server{
		o:         o,
		telemetry: telemetry.New(o.Log, metrics, cfg.Log.Content),
		workers:   &run.Workers{Log: o.Log},
		owner:     o.NewID(""),
	}
	s.seals = newSealing(metrics)

	otel := telemetry.OTelOptions{Tracers: o.Tracers, Meters: o.Meters, Content: o.Content, Labels: metrics}
	if s.telemetry.OTel, err = telemetry.NewOTel(otel); err != nil {
		return nil, fmt.Errorf("make the metrics of OpenTelemetry: %w", err)
	}

	// The parts come first: a configuration that is wrong is said without waiting for the store.
	none := &generation{cfg: cfg}
	p, err := newParts(cfg, none, o.Random, s.seals)
	if err != nil {
		return nil, err
	}
	if s.store, err = s.openStore(cfg, metrics); err != nil {
		return nil, err
	}
	if s.records, err = openRecords(cfg, s.o, metrics.Recorded); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}

	s.current.Store(s.newGeneration(cfg, &p, none))
	s.sockets = s.newSockets()
	return s, nil
}

// Codec returns the codec for the gRPC server of a [Server], for
// [grpc.ForceServerCodecV2]. It is optional: it writes the same bytes as gRPC's own, and
// the message that a streamed token takes faster.
func Codec() encoding.CodecV2 { return extproc.Codec() }

// Register adds the service to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	extprocv3.RegisterExternalProcessorServer(g, s)
}

// Process runs one exchange, from its beginning to its end by the configuration
// that is the current one at its beginning. It implements Envoy's ExternalProcessor
// service.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	return s.current.Load().extproc.Process(stream)
}

// ReadModels asks the engines for the context lengths of their models: see
// Directory.Refresh of package models.
func (s *Server) ReadModels(ctx context.Context) error {
	return s.current.Load().models.Refresh(ctx)
}

// FollowModels asks the engines again and again until ctx ends: see
// Directory.KeepFresh of package models.
func (s *Server) FollowModels(ctx context.Context) {
	// Each generation ends its following when it is replaced: then it is the next one's.
	for ctx.Err() == nil {
		s.current.Load().followModels(ctx)
	}
}

// Drain ends streams that can be resumed at another replica, and has WebSocket connections take
// no more responses: see Server.Drain of packages extproc and websocket.
func (s *Server) Drain() {
	s.sockets.Drain()
	s.current.Load().extproc.Drain()
}

// Abort ends the replies that are being made, with an error: see Server.Abort of
// package extproc.
func (s *Server) Abort() { s.current.Load().extproc.Abort() }

// Close waits for the background responses that are being made until ctx ends, then
// lets them fail, and closes the store once the ends of all replies are stored.
// ext_proc streams must have ended before.
func (s *Server) Close(ctx context.Context) error {
	s.apply.Lock()
	// No other generation begins.
	s.closed = true
	s.apply.Unlock()
	g := s.current.Load()
	s.Drain()
	s.sockets.Close(ctx)
	g.background.Close(ctx)

	// What is left stores how replies have ended. The store is closed after it, and so are the
	// connections that it may use.
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), restTimeout)
	defer cancel()
	s.workers.Wait(rest)

	if g.client != nil {
		g.client.Close()
	}
	g.tools.Close()
	g.models.Close()
	s.records.close()
	return s.store.Close()
}

// newDialects are the engines' dialects, by engine name.
func newDialects(cfg *config.Config) (map[string]engine.Dialect, error) {
	dialects := map[string]engine.Dialect{}
	for _, e := range cfg.Engines {
		d, ok := engine.ByKind(e.Kind)
		if !ok {
			return nil, fmt.Errorf("engine %s: kind %q is not one of %v", e.Name, e.Kind, engine.Kinds())
		}
		dialects[e.Name] = d
	}
	return dialects, nil
}

// Check returns what [New] finds wrong with a configuration that is valid in itself:
// keys that do not fit each other once the command has added its own.
func Check(cfg *config.Config) error {
	errs := []error{config.CheckListeners(cfg.Listeners()...)}
	for _, e := range cfg.Engines {
		if len(e.Prefill) > 0 && cfg.Loopback == "" {
			errs = append(errs, fmt.Errorf(
				"engine %s has prefill endpoints: the filter reaches them through Envoy's loopback listener; set "+
					"loopback to its address, or leave prefill out", e.Name))
		}
	}
	if cfg.WebSocket.Listen != "" && cfg.Loopback == "" {
		errs = append(errs, errors.New("websocket.listen is set: model calls of WebSocket connections go through "+
			"Envoy's loopback listener; set loopback to its address, or leave websocket.listen out"))
	}

	if cfg.Loopback == "" && (keepsPrefix(cfg.ModelDefaults) || slices.ContainsFunc(cfg.Models, keepsPrefix)) {
		errs = append(errs, errors.New(
			"effort_updates: keep_prefix lowers efforts by budgets of reasoning, which need Envoy's loopback "+
				"listener; set loopback to its address, or effort_updates to exact"))
	}
	return errors.Join(errs...)
}

func keepsPrefix(m config.Model) bool { return m.EffortUpdates == turn.EffortKeepPrefix }

// openStore opens the store that the configuration names. Accesses are counted and
// traced; a store that can hang has a breaker.
func (s *Server) openStore(cfg *config.Config, metrics *telemetry.Metrics) (store.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()

	system := store.System(cfg.StoreURL)
	opened, err := store.Open(ctx, cfg.StoreURL, store.Options{
		ResponseTTL:   cfg.Responses.StoreTTL.Duration,
		ResponseBytes: cfg.Responses.StoreBytes,
		TextTTL:       cfg.Limits.KeptReasoningTTL.Duration,
		TextBytes:     cfg.Limits.KeptReasoningBytes,
		Now:           s.o.Now,
		CountDropped:  metrics.CountDropped,
		Unreached: func(err error) {
			s.o.Log.WithError(err).Warnf("the store (%s) cannot be reached: the start waits for it for %s",
				system, openTimeout)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("store_url: %w", err)
	}

	if system == "" {
		s.o.StoreReached()
	} else {
		opened = store.WithBreaker(opened, store.BreakerOptions{
			Now: s.o.Now, Contact: s.storeContact(system, metrics),
			Changed: func(hangs bool) {
				metrics.StoreHangs(hangs)
				if hangs {
					s.o.Log.Warnf("the store (%s) does not answer: requests go on without it until it does", system)
				} else {
					s.o.Log.Infof("the store (%s) answers again", system)
				}
			},
		})
	}

	// The breaker is inside: what it refuses is observed and recorded too. So is what connections
	// keep, which a recorded exchange needs to be made again.
	opened = store.WithLocals(opened)
	return record.Store(telemetry.ObserveStore(opened, metrics.StoreFailed, system, s.telemetry.OTel)), nil
}

// storeContact returns what takes the results of the first accesses to the store. A store that
// cannot be reached is logged once: what is wrong is most likely its URL, and nobody would look
// for it before the first request that needs the store.
func (s *Server) storeContact(system string, metrics *telemetry.Metrics) func(reached bool, err error) {
	said := false
	return func(reached bool, err error) {
		if err != nil {
			metrics.StoreFailed(string(store.OpPutTexts))
		}

		log := s.o.Log.WithError(err)
		switch {
		case reached && err != nil:
			log.Errorf("the store (%s) answers and takes no writes: requests that store something get a 503. Check "+
				"that store_url names a primary, whether the server is full, and what its user may do", system)
		case !reached && !said:
			log.Errorf("the store (%s) cannot be reached: this process is not ready until it answers; requests that "+
				"need it get a 503, all others go on. Check store_url and that the server runs", system)
			said = true
		case reached && said:
			s.o.Log.Infof("the store (%s) answers: this process is ready", system)
		}
		if reached {
			s.o.StoreReached()
		}
	}
}

// newRunEnv is what all runs of a generation share.
func newRunEnv(cfg *config.Config, o Options, t *telemetry.Telemetry, workers *run.Workers) *run.Env {
	l := cfg.Limits
	return &run.Env{
		Telemetry: t,
		Now:       o.Now,

		Limits: run.Limits{
			FirstToken:    l.FirstTokenTimeout.Duration,
			Idle:          l.IdleTimeout.Duration,
			Total:         l.TotalTimeout.Duration,
			HeaderHold:    l.HeaderHold.Duration,
			KeepAlive:     l.KeepAlive.Duration,
			Continuations: l.MaxContinuations,
		},
		Keys: run.Keys{
			Prefix:    cfg.Routing.PrefixHeader,
			Session:   cfg.Routing.SessionHeader,
			Selection: cfg.Routing.SelectionHeader,
		},
		Explain: cfg.ReplyHeaders,

		Locks:   &run.Locks{Workers: workers},
		Workers: workers,
	}
}

// newTurnEnv is what the turns of all requests of a generation share.
func newTurnEnv(cfg *config.Config, o Options, texts store.Texts, g *generation) *turn.Env {
	limits := turn.DefaultLimits()
	limits.Tools, limits.Turns = cfg.Limits.MaxTools, cfg.Tools.MaxTurns
	limits.LastUserTextBytes = cfg.Routing.SelectionTextBytes
	// There is never memory for more.
	limits.Bytes = int(min(int64(cfg.Limits.MaxConversationBytes), cfg.Limits.MaxInflightBytes))
	env := &turn.Env{
		Renderer: g.renderer,
		Now:      o.Now,
		NewID:    o.NewID,
		Memory:   texts,
		Limits:   limits,
		KeptTTL:  cfg.Limits.KeptReasoningTTL.Duration,

		Retention: g.retention,
	}
	// A nil pointer in the interface would not be nil.
	if g.prompts != nil {
		env.Prompts = g.prompts
	}
	return env
}

// The configuration checks the keys that the Responses API seals with.
var _ [config.SealKeyBytes]byte = [seal.KeyBytes]byte{}

// sealing is what all sealers of a process have in common.
type sealing struct {
	key      []byte // random: it seals while no keys are configured
	unopened func() // counts the texts that no key opens
}

func newSealing(m *telemetry.Metrics) sealing {
	s := sealing{key: make([]byte, config.SealKeyBytes), unopened: m.ContentUnopened}
	// Never fails: see crypto/rand.
	_, _ = rand.Read(s.key)
	return s
}

// newSealer makes what seals by the configured keys. Without any it seals by the
// key of the process, which opens in any case what it has sealed before.
func (s sealing) newSealer(cfg *config.Config) (*seal.Sealer, error) {
	keys, err := cfg.Responses.Keys()
	if err != nil {
		return nil, err
	}
	sealer, err := seal.NewSealer(append(keys, s.key), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("responses.seal_keys: %w", err)
	}
	sealer.Unopened = s.unopened
	return sealer, nil
}

// newResponses makes the Responses API of a generation.
func newResponses(cfg *config.Config, st store.Store, g *generation, sealer *seal.Sealer) *responses.API {
	api := &responses.API{Approvals: st, Sealer: sealer, Compactor: sealer, Chains: g.chains}
	if cfg.Responses.StoreBytes > 0 {
		api.Store = st
	} else {
		// Connections keep their responses in memory all the same. What an earlier process has
		// stored is not to be had through them either: the store behind them is empty.
		api.Kept = record.Store(store.WithLocals(store.NewMemory(store.Options{})))
	}
	// What a tool returns goes into another model call, which only the loopback listener can take.
	if g.client != nil {
		api.Tools, api.Builtins = g.tools, cfg.Tools.Builtins()
	}
	api.UsagePerTurn = cfg.Responses.UsagePerTurn
	api.ToolTimeout = cfg.Responses.ToolTimeout.Duration
	return api
}

// newMessages is the Messages API of a generation.
func newMessages(cfg *config.Config, g *generation, sealer *seal.Sealer) *messages.API {
	api := &messages.API{Sealer: sealer, SessionTimeout: cfg.Tools.IdleTimeout.Duration}
	if g.client != nil {
		api.Tools, api.Builtins = g.tools, cfg.Tools.Builtins()
	}
	return api
}

// randomID is prefix and 128 random bits in hex.
func randomID(prefix string) string {
	var b [16]byte
	// Never fails: see crypto/rand.
	_, _ = rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// randomBits are 64 random bits.
func randomBits() uint64 {
	var b [8]byte
	// Never fails: see crypto/rand.
	_, _ = rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}
