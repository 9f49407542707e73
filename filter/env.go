package filter

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// newEnv makes what the turns of all exchanges share.
func newEnv(cfg *Config, o Options) *turn.Env {
	limits := turn.DefaultLimits()
	limits.Tools = cfg.Limits.MaxTools
	return &turn.Env{
		Renderer: harmony.NewRenderer(harmony.WithCacheBytes(cfg.Limits.CacheBytes)),
		Now:      o.Now,
		NewID:    o.NewID,
		Memory:   store.NewMemory(cfg.Limits.KeptReasoningBytes, cfg.Limits.KeptReasoningTTL.Duration, o.Now),
		Limits:   limits,
	}
}

// newResponses makes the Responses API with its store.
func newResponses(cfg *Config, o Options) (*responses.API, error) {
	api := &responses.API{Responses: store.NewMemoryResponses(cfg.Responses.StoreBytes, cfg.Responses.StoreTTL.Duration, o.Now)}
	if len(cfg.Responses.SealKeys) == 0 {
		return api, nil
	}
	keys := make([][]byte, len(cfg.Responses.SealKeys))
	for i, text := range cfg.Responses.SealKeys {
		var err error
		if keys[i], err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("responses.seal_keys[%d]: not base64", i)
		}
	}
	var err error
	if api.Sealer, err = responses.NewSealer(keys, rand.Reader); err != nil {
		return nil, fmt.Errorf("responses.seal_keys: %w: write 32 random bytes in base64, as openssl rand -base64 32 prints them", err)
	}
	return api, nil
}

// scope is the circumstances of an exchange's turn.
func (s *Server) scope(x *exchange) *turn.Scope {
	m := &x.target.model
	contextLength := m.ContextLength
	if contextLength == 0 {
		contextLength = s.models.length(m.UpstreamModel)
	}
	return &turn.Scope{
		Env:       s.env,
		Tenant:    x.tenant,
		RequestID: x.id,
		Model: &turn.Model{
			Upstream:        m.UpstreamModel,
			Identity:        m.Identity,
			KnowledgeCutoff: m.KnowledgeCutoff,
			Effort:          harmony.Effort(m.Effort),
			ContextLength:   contextLength,
			Images:          s.cfg.Images,
			Date:            s.cfg.Date,
			OnMalformed:     s.cfg.OnMalformed,
			ReasoningFields: s.cfg.ReasoningFields,
		},
	}
}
