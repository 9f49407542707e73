package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Client is whose request it is.
type Client struct {
	Tenant string
	// Key is the beginning of the SHA-256 of the client's key, in hex; "": it is not known.
	Key string
}

// TurnModel returns the settings of a model as turns take them, for a client's request.
// contextLength is how many tokens prompt and output may have together; 0: as many as gpt-oss.
func (c *Config) TurnModel(m *Model, contextLength int, client Client) *turn.Model {
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
		ReasoningEvents: c.reasoningEvents(client),
		UnknownTools:    c.UnknownTools,
		ToolArguments:   m.ToolArguments,
		ToolStrictness:  c.toolStrictness(m, client.Tenant),
		History:         m.History,
		Reasoning:       c.reasoningLimits(m, client.Tenant),
	}
}

// NeedsKey reports whether settings of a model need the key of a client.
func (c *Config) NeedsKey() bool {
	return slices.ContainsFunc(c.Responses.ReasoningEventsFor, func(e ReasoningEvents) bool { return e.Key != "" })
}

// reasoningEvents returns the names of the events of reasoning for a client.
func (c *Config) reasoningEvents(client Client) string {
	for _, e := range c.Responses.ReasoningEventsFor {
		// Nobody is known by the beginning of no key.
		known := e.Key == "" || client.Key != "" && strings.HasPrefix(e.Key, client.Key)
		if known && cmp.Or(e.Tenant, client.Tenant) == client.Tenant {
			return e.Events
		}
	}
	return c.Responses.ReasoningEvents
}

// toolStrictness returns what is enforced of calls of a tenant's request.
func (c *Config) toolStrictness(m *Model, tenant string) string {
	for _, s := range c.ToolStrictnessFor {
		if concerns(s.Match, s.Tenant, m, tenant) {
			return s.Strictness
		}
	}
	return m.ToolStrictness
}

// concerns reports whether an entry for some models and a tenant is about a tenant's request for a model.
func concerns(match, whose string, m *Model, tenant string) bool {
	return (match == "" || matches(match, m.UpstreamModel)) && (whose == "" || whose == tenant)
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
		if concerns(b.Match, b.Tenant, m, tenant) {
			// The tighter bound holds: an entry for a tenant does not loosen that of the model.
			if limits.Budget == 0 || b.Tokens < limits.Budget {
				limits.Budget = b.Tokens
			}
			break
		}
	}
	return limits
}
