package config

import (
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TurnModel returns the settings of a model as turns take them. contextLength is how
// many tokens prompt and output may have together; 0: as many as gpt-oss.
func (c *Config) TurnModel(m *Model, contextLength int) *turn.Model {
	return &turn.Model{
		Upstream:        m.UpstreamModel,
		Identity:        m.Identity,
		KnowledgeCutoff: m.KnowledgeCutoff,
		Effort:          harmony.Effort(m.Effort),
		ContextLength:   contextLength,
		Images:          c.Images,
		Date:            c.Date,
		Canonical:       c.CanonicalSchemas,
		OnMalformed:     c.OnMalformed,
		ReasoningFields: c.ReasoningFields,
		UnknownTools:    c.UnknownTools,
	}
}
