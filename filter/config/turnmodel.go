package config

import (
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TurnModel returns the settings of a model as turns take them. contextLength is how
// many tokens prompt and output may have together; 0: as many as gpt-oss. tenant is that
// of the request.
func (c *Config) TurnModel(m *Model, contextLength int, tenant string) *turn.Model {
	return &turn.Model{
		Upstream:        m.UpstreamModel,
		Identity:        m.Identity,
		KnowledgeCutoff: m.KnowledgeCutoff,
		Effort:          harmony.Effort(m.Effort),
		EffortUpdates:   m.EffortUpdates,
		ContextLength:   contextLength,
		Images:          c.Images,
		Date:            c.Date,
		Canonical:       c.CanonicalSchemas,
		OnMalformed:     c.OnMalformed,
		ReasoningFields: c.ReasoningFields,
		UnknownTools:    c.UnknownTools,
		ToolArguments:   m.ToolArguments,
		History:         m.History,
		Reasoning:       c.reasoningLimits(m, tenant),
	}
}

// reasoningLimits returns the bounds of reasoning of a tenant's request.
func (c *Config) reasoningLimits(m *Model, tenant string) turn.ReasoningLimits {
	r := &m.Reasoning
	limits := turn.ReasoningLimits{Budget: r.Budget, ReserveFinal: r.ReserveFinalTokens, MaxRepeats: r.MaxRepeats}
	if r.BudgetLow > 0 || r.BudgetMedium > 0 || r.BudgetHigh > 0 {
		limits.ByEffort = map[harmony.Effort]int{
			harmony.EffortLow: r.BudgetLow, harmony.EffortMedium: r.BudgetMedium, harmony.EffortHigh: r.BudgetHigh,
		}
	}
	for _, b := range c.ReasoningBudgets {
		if (b.Match == "" || matches(b.Match, m.UpstreamModel)) && (b.Tenant == "" || b.Tenant == tenant) {
			// The tighter bound holds: an entry for a tenant does not loosen that of the model.
			if limits.Budget == 0 || b.Tokens < limits.Budget {
				limits.Budget = b.Tokens
			}
			break
		}
	}
	return limits
}
