package config

import (
	"fmt"
	"slices"
	"strings"
)

// Rollout is the share of the sessions of some models and tenants that the filter
// handles. The others pass through to the upstream that Envoy's route has.
type Rollout struct {
	// Match selects models as an entry of HarmonyModels does. Empty: all.
	Match string `json:"match"`
	// Tenant is the tenant, as TenantHeader has it. Empty: all.
	Tenant string `json:"tenant"`
	// Percent is the share, from 0 to 100.
	Percent *int `json:"percent"`
}

// RolloutOf returns the entry of a Harmony model, which may be named by an alias, and
// a tenant; nil if there is none.
func (c *Config) RolloutOf(model, tenant string) *Rollout {
	model = c.unaliased(model)
	for i := range c.Rollout {
		r := &c.Rollout[i]
		if (r.Match == "" || matches(r.Match, model)) && (r.Tenant == "" || r.Tenant == tenant) {
			return r
		}
	}
	return nil
}

func (c *Config) checkRollout() (errs faults) {
	bad := func(i int, key, format string, args ...any) {
		errs.add("rollout[%d].%s: %w", i, key, fmt.Errorf(format, args...))
	}

	for i, r := range c.Rollout {
		switch {
		case r.Percent == nil:
			bad(i, "percent", "write the share of the sessions that the filter handles, from 0 to 100")
		case *r.Percent < 0 || *r.Percent > 100:
			bad(i, "percent", "must be from 0 to 100, not %d", *r.Percent)
		}
		if r.Tenant != "" && c.TenantHeader == "" {
			bad(i, "tenant", "tenant_header is not set, so that no request has a tenant: set it, or leave tenant out")
		}

		harmony := func(entry string) bool { return meet(entry, r.Match) }
		switch first := slices.IndexFunc(c.Rollout[:i], func(before Rollout) bool { return before.covers(r) }); {
		case r.Match == "=":
			bad(i, "match", "write a part of the model's name, or =name, or leave it out for all models")
		case first >= 0:
			bad(i, "match",
				"the entry is never reached: rollout[%d] takes all that it matches; put the narrower one first", first)
		case r.Match != "" && !slices.ContainsFunc(c.HarmonyModels, harmony):
			bad(i, "match", "%q is never reached: harmony_models has no such model; add it there", r.Match)
		}
	}
	return errs
}

// covers reports whether r takes all that another entry takes.
func (r Rollout) covers(other Rollout) bool {
	// An entry of = alone is wrong by itself, and reported as that.
	models := r.Match == "" || strings.TrimPrefix(other.Match, "=") != "" && covers(r.Match, other.Match)
	return models && (r.Tenant == "" || r.Tenant == other.Tenant)
}
