package filter

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// openTimeout bounds how long the start waits for the store.
const openTimeout = 15 * time.Second

// openStore opens the store that the configuration names. What it does not answer
// is told to failed.
func openStore(cfg *Config, now func() time.Time, failed func(operation string)) (store.Store, error) {
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
	return countedStore{s, failed}, nil
}

// newEnv makes what the turns of all exchanges share.
func newEnv(cfg *Config, o Options, texts store.Texts) *turn.Env {
	limits := turn.DefaultLimits()
	limits.Tools, limits.Turns = cfg.Limits.MaxTools, cfg.Tools.MaxTurns
	limits.Bytes = int(min(int64(cfg.Limits.MaxConversationBytes), cfg.Limits.MaxInflightBytes)) // more than that never has room
	limits.QuestionBytes = cfg.Routing.SelectionTextBytes
	return &turn.Env{
		Renderer: harmony.NewRenderer(harmony.WithCacheBytes(cfg.Limits.CacheBytes)),
		Now:      o.Now,
		NewID:    o.NewID,
		Memory:   texts,
		Limits:   limits,
	}
}

// newTools makes the client of MCP servers.
func (s *Server) newTools() (*tools.Client, error) {
	o, err := s.cfg.Tools.options(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	o.Log, o.Now = s.log, s.now
	o.Metrics = tools.Metrics{Done: s.metrics.toolDone, Sessions: func(open int) { s.metrics.toolSessions.Set(float64(open)) }}
	return tools.New(o), nil
}

// newResponses makes the Responses API with its store.
func newResponses(cfg *Config, s store.Store) (*responses.API, error) {
	api := &responses.API{Claims: s}
	if cfg.Responses.StoreBytes > 0 {
		api.Store = s
		if cfg.Responses.ChainCacheBytes > 0 {
			api.Chains = responses.NewChains(cfg.Responses.ChainCacheBytes)
		}
	}
	api.UsagePerTurn = cfg.Responses.UsagePerTurn
	api.ToolTimeout = cfg.Responses.ToolTimeout.Duration
	api.OpenReasoningEvents = cfg.Responses.ReasoningEvents == ReasoningEventsOpen
	if len(cfg.Responses.SealKeys) == 0 {
		key := make([]byte, responses.SealKeyBytes) // compactions are good for the life of the process
		_, _ = rand.Read(key)                       // never fails: see crypto/rand
		var err error
		api.Compactor, err = responses.NewSealer([][]byte{key}, rand.Reader)
		return api, err
	}
	keys, err := cfg.Responses.sealKeys()
	if err != nil {
		return nil, err
	}
	if api.Sealer, err = responses.NewSealer(keys, rand.Reader); err != nil {
		return nil, fmt.Errorf("responses.seal_keys: %w", err)
	}
	api.Compactor = api.Sealer
	return api, nil
}

// sealKeys are the keys as bytes. An error names those at fault and shows none.
func (r *Responses) sealKeys() ([][]byte, error) {
	keys := make([][]byte, len(r.SealKeys))
	var errs []error
	for i, text := range r.SealKeys {
		var err error
		if keys[i], err = base64.StdEncoding.DecodeString(text); err != nil || len(keys[i]) != responses.SealKeyBytes {
			errs = append(errs, fmt.Errorf("responses.seal_keys[%d]: write %d random bytes in base64, as openssl rand -base64 %[2]d prints them", i, responses.SealKeyBytes))
		}
	}
	return keys, errors.Join(errs...)
}

// scope is the circumstances of an exchange's turn.
func (s *Server) scope(x *exchange) *turn.Scope {
	m := &x.target.model
	return &turn.Scope{
		Env:       s.env,
		Tenant:    x.tenant,
		RequestID: x.id,
		Session:   x.session,
		Hold:      held(x.share),
		Checked:   x.target.dialect != nil && !x.target.dialect.Constrains(),
		Model: &turn.Model{
			Upstream:        m.UpstreamModel,
			Identity:        m.Identity,
			KnowledgeCutoff: m.KnowledgeCutoff,
			Effort:          harmony.Effort(m.Effort),
			ContextLength:   s.contextLength(m),
			Images:          s.cfg.Images,
			Date:            s.cfg.Date,
			OnMalformed:     s.cfg.OnMalformed,
			ReasoningFields: s.cfg.ReasoningFields,
			UnknownTools:    s.cfg.UnknownTools,
		},
	}
}

// held takes bytes of the store for a request.
func held(by *share) func(bytes int) *apierror.Error {
	return func(bytes int) *apierror.Error {
		if !by.take(bytes) {
			return overloaded()
		}
		return nil
	}
}

// contextLength is a model's as configured, else as its engine tells it; 0
// where nobody does.
func (s *Server) contextLength(m *Model) int {
	e, known := s.lists[m.Engine] // what needs no model has none
	if m.ContextLength > 0 || !known {
		return m.ContextLength
	}
	return e.length(m.UpstreamModel)
}
