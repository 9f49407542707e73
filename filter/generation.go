package filter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/background"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/extproc"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback"
	"github.com/envoy-harmony/envoy-harmony/filter/models"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/retention"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// generation is the service as one configuration has it. An exchange and a
// background response belong to the generation that they began in; nothing ends a
// generation except the end of the last of them. What must not begin anew with a
// configuration (connections, sessions of tools, counts, caches) is shared by the
// parts of one kind: their method With makes one from the one before.
type generation struct {
	cfg      *config.Config
	replaced chan struct{} // closed when the next one has begun

	// Its parts.
	extproc    *extproc.Server
	models     *models.Directory
	client     *loopback.Client // nil: there is no loopback listener
	background *background.Maker
	tools      *tools.Client
	recorder   *record.Recorder // nil: nothing is recorded

	// Its caches.
	renderer *harmony.Renderer
	chains   *responses.Chains  // nil: none are remembered
	prompts  *diagnosis.Prompts // nil: none are compared
	// Nil: no engine takes hints.
	retention *retention.Memory
}

// parts are the parts of a generation whose making can fail. Making them changes
// nothing.
type parts struct {
	dialects map[string]engine.Dialect
	client   *loopback.Client
	tools    tools.Options
	sealer   *seal.Sealer
}

// newParts makes the parts of a configuration's generation after before. random
// returns 64 random bits.
func newParts(cfg *config.Config, before *generation, random func() uint64, seals sealing) (p parts, err error) {
	if err := Check(cfg); err != nil {
		return p, err
	}
	if p.dialects, err = newDialects(cfg); err != nil {
		return p, err
	}
	if cfg.Loopback != "" {
		if p.client, err = before.client.With(cfg, p.dialects, random); err != nil {
			return p, fmt.Errorf("loopback: %w", err)
		}
	}
	if p.tools, err = cfg.Tools.Options(os.LookupEnv); err != nil {
		return p, err
	}
	p.sealer, err = seals.newSealer(cfg)
	return p, err
}

// dialer makes the model calls; nil: Envoy sends the clients' own requests on.
func (g *generation) dialer() run.Dialer {
	if g.client == nil {
		return nil // a nil client in an interface would not be nil
	}
	return g.client
}

// newGeneration makes the generation after before.
func (s *Server) newGeneration(cfg *config.Config, p *parts, before *generation) *generation {
	g := &generation{cfg: cfg, client: p.client, replaced: make(chan struct{})}
	g.keepCaches(before)

	metrics := s.telemetry.Metrics
	// What the configuration itself cannot say of tools.
	p.tools.Log, p.tools.Now = s.o.Log, s.o.Now
	p.tools.Metrics = tools.Metrics{Done: metrics.ToolDone, Sessions: metrics.ToolSessions}
	p.tools.Trace = s.telemetry.OTel.Tools()
	p.tools.Around = record.Tools
	g.tools = before.tools.With(p.tools)
	g.recorder = s.records.recorder(cfg, before.recorder, s.o)

	env := newRunEnv(cfg, s.o, s.telemetry.With(cfg.Log.Content, g.recorder), s.workers)
	g.models = before.models.With(models.Options{
		Config:   cfg,
		Dialects: p.dialects,
		Client:   g.client,
		Log:      s.o.Log,
		Now:      s.o.Now,
	})
	g.background = before.background.With(background.Options{
		Store:        s.store,
		Client:       g.dialer(),
		Env:          env,
		Owner:        s.owner,
		Max:          cfg.Limits.MaxBackground,
		TenantHeader: cfg.TenantHeader,
	})

	api := newResponses(cfg, s.store, g, p.sealer)
	g.extproc = before.extproc.With(extproc.Options{
		Config:   cfg,
		Dialects: p.dialects,
		Endpoints: withRoom(slices.Concat(
			chat.Endpoints(), chat.CompletionsEndpoints(cfg.Routing.Opens(chat.CompletionsPath)), api.Endpoints(),
			newMessages(cfg, g, p.sealer).Endpoints(), g.models.Endpoints(), newRender(cfg, p.sealer),
		)),
		Turns:      newTurnEnv(cfg, s.o, s.store, g),
		Models:     g.models,
		Client:     g.dialer(),
		Background: g.background,
		Budgets:    budget.New(s.store, cfg.Budgets()),
		Stored:     api.Stored,
		OwnEnvoy:   s.o.OwnEnvoy,
		Env:        env,
		NewID:      s.o.NewID,
		Recording:  recordedConfig(cfg, s.o.Version),
	})
	return g
}

// keepCaches takes over the caches of the generation before, if what is in them and
// their size do not depend on what has changed.
func (g *generation) keepCaches(before *generation) {
	g.renderer, g.chains, g.prompts, g.retention = before.renderer, before.chains, before.prompts, before.retention
	was, is := before.cfg, g.cfg

	if g.renderer == nil || was.Limits.CacheBytes != is.Limits.CacheBytes {
		g.renderer = harmony.NewRenderer(harmony.WithCacheBytes(is.Limits.CacheBytes))
	}
	switch {
	case is.Limits.DiagnosisBytes == 0:
		g.prompts = nil
	case g.prompts == nil || was.Limits.DiagnosisBytes != is.Limits.DiagnosisBytes:
		g.prompts = diagnosis.NewPrompts(is.Limits.DiagnosisBytes)
	}

	hinted := func(e config.Engine) bool { return is.KVHinted(e.Name) }
	if g.retention == nil && slices.ContainsFunc(is.Engines, hinted) {
		g.retention = retention.NewMemory()
	}

	// Chains have read messages, in which images and texts for routing are as these keys say.
	same := was.Responses.ChainCacheBytes == is.Responses.ChainCacheBytes && was.Images == is.Images &&
		was.Routing.SelectionTextBytes == is.Routing.SelectionTextBytes
	switch {
	case is.Responses.ChainCacheBytes == 0:
		g.chains = nil
	case g.chains == nil || !same:
		g.chains = responses.NewChains(is.Responses.ChainCacheBytes)
	}
}

// followModels keeps the models' context lengths fresh until ctx ends, or the
// generation is replaced.
func (g *generation) followModels(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-g.replaced:
			cancel()
		case <-ctx.Done():
		}
	}()
	g.models.KeepFresh(ctx)
}

// Apply has new exchanges handled by another validated configuration, which must
// not change any more. Those that have begun go on by the one that they began with.
// An error names what a running process cannot change, or what is wrong; then
// nothing has changed.
func (s *Server) Apply(cfg *config.Config) error {
	s.apply.Lock()
	defer s.apply.Unlock()
	if s.closed {
		return errors.New("the service is closed")
	}

	// Everything that can fail comes before anything is replaced.
	before := s.current.Load()
	if err := before.cfg.CheckReload(cfg, s.o.OwnEnvoy); err != nil {
		return err
	}
	p, err := newParts(cfg, before, s.o.Random, s.seals)
	if err != nil {
		return err
	}

	s.current.Store(s.newGeneration(cfg, &p, before))
	close(before.replaced)
	return nil
}

// Config returns the current configuration, which must not be changed.
func (s *Server) Config() *config.Config { return s.current.Load().cfg }
