package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/budget"
)

// The values of the keys of a token budget that take one of a few words.
const (
	PerTenant = "tenant" // per: the tenant of tenant_header
	PerKey    = "key"    // per: the client's credentials
	PerModel  = "model"  // per: the model's name at the engine

	ExhaustedRefuse = "refuse" // on_exhausted: requests are refused
	ExhaustedEnd    = "end"    // on_exhausted: output that is being made ends, too

	StoreFailureOpen   = "open"   // on_store_failure: requests are admitted
	StoreFailureClosed = "closed" // on_store_failure: requests are a 503
)

const (
	minWindow = time.Second
	maxWindow = 366 * 24 * time.Hour
	// maxBudget is the greatest number of tokens of a budget.
	maxBudget = 1_000_000_000_000
	maxWeight = 100_000 // percent
)

// TokenBudget bounds the tokens of a window of time.
type TokenBudget struct {
	// Name is the budget's name in errors, logs and the store. Of entries with the
	// same name a request has the first that matches.
	Name string `json:"name"`
	// Per says which requests share the tokens: those of the same tenant, key and
	// model. Empty: all.
	Per []string `json:"per"`
	// Match selects models as an entry of HarmonyModels does. Empty: all.
	Match string `json:"match"`
	// Tenant is the tenant. Empty: all.
	Tenant string `json:"tenant"`
	// Tokens is how many tokens a window has. 0: requests that the entry matches have
	// no bound.
	Tokens int64 `json:"tokens"`
	// Window is the length of the windows, which begin at its multiples in UTC.
	Window Duration `json:"window"`
	// Weights are what tokens count, in percent.
	Weights TokenWeights `json:"weights"`
	// ReserveTokens is how many output tokens are reserved at once. 0: the request's
	// limit.
	ReserveTokens int `json:"reserve_tokens"`
	// OnExhausted is what happens if the tokens are used up: refuse or end. Empty:
	// refuse.
	OnExhausted string `json:"on_exhausted"`
	// OnStoreFailure is what happens if the store fails: open or closed. Empty: open.
	OnStoreFailure string `json:"on_store_failure"`
}

// TokenWeights are what tokens count in a budget, in percent. One that is not written is
// 100.
type TokenWeights struct {
	Input     *int `json:"input"` // prompt tokens that are not in the engine's cache
	Cached    *int `json:"cached"`
	Output    *int `json:"output"` // output tokens that are not reasoning
	Reasoning *int `json:"reasoning"`
}

// Budgets returns the token budgets of a validated configuration.
func (c *Config) Budgets() []budget.Budget {
	budgets := make([]budget.Budget, len(c.TokenBudgets))
	for i := range c.TokenBudgets {
		b := &c.TokenBudgets[i]

		// A store that fails lets requests pass, unless the entry says otherwise.
		budgets[i] = budget.Budget{
			Name:   b.Name,
			Tenant: slices.Contains(b.Per, PerTenant),
			Key:    slices.Contains(b.Per, PerKey),
			Model:  slices.Contains(b.Per, PerModel),
			// The name is that at the engine: an alias has no tokens of its own.
			Applies: func(s budget.Subject) bool {
				return (b.Match == "" || matches(b.Match, s.Model)) && (b.Tenant == "" || b.Tenant == s.Tenant)
			},
			Tokens: b.Tokens,
			Window: b.Window.Duration,
			Weights: budget.Weights{
				Input:     weight(b.Weights.Input),
				Cached:    weight(b.Weights.Cached),
				Output:    weight(b.Weights.Output),
				Reasoning: weight(b.Weights.Reasoning),
			},
			Reserve: b.ReserveTokens,
			End:     b.OnExhausted == ExhaustedEnd,
			Open:    b.OnStoreFailure != StoreFailureClosed,
		}
	}
	return budgets
}

func weight(percent *int) int {
	if percent == nil {
		return 100
	}
	return *percent
}

// BudgetPrices returns the prices of a validated configuration's model.
func (m *Model) BudgetPrices() budget.Prices {
	if m.Prices == (Prices{}) {
		return budget.Prices{}
	}
	// The errors were those of the check.
	p, _ := m.Prices.parse("")
	return p
}

// parse returns the prices. The errors name the keys at fault.
func (p *Prices) parse(path string) (prices budget.Prices, errs faults) {
	for _, f := range []struct {
		key, text string
		to        *int64
	}{
		{"input", p.Input, &prices.Input},
		{"cached_input", p.CachedInput, &prices.Cached},
		{"output", p.Output, &prices.Output},
	} {
		var err error
		if *f.to, err = budget.ParsePrice(f.text); err != nil {
			errs.add("%s.%s: %w", path, f.key, err)
		}
	}

	// Without a price of its own, cached input costs what other input does.
	if p.CachedInput == "" {
		prices.Cached = prices.Input
	}
	return prices, errs
}

func (c *Config) checkTokenBudgets() (errs faults) {
	windows := map[string]TokenBudget{}
	for i, b := range c.TokenBudgets {
		path := fmt.Sprintf("token_budgets[%d]", i)
		errs = append(errs, b.check(path)...)
		if slices.Contains(b.Per, PerTenant) && c.TenantHeader == "" {
			errs.add("%s.per: there are no tenants: set tenant_header", path)
		}
		if first, ok := windows[b.Name]; ok && (first.Window != b.Window || !slices.Equal(first.Per, b.Per)) {
			errs.add("%s: entries of the same name, %q, need the same per and window", path, b.Name)
		} else if !ok {
			windows[b.Name] = b
		}
	}
	return errs
}

func (b *TokenBudget) check(path string) (errs faults) {
	if !engineName.MatchString(b.Name) {
		errs.add("%s.name: %q: write a name of letters, digits, dots, - and _", path, b.Name)
	}
	for i, per := range b.Per {
		errs.oneOf(fmt.Sprintf("%s.per[%d]", path, i), per, PerTenant, PerKey, PerModel)
	}

	if b.Tokens < 0 || b.Tokens > maxBudget {
		errs.add("%s.tokens: must be from 0 to %d, not %d", path, int64(maxBudget), b.Tokens)
	}
	if b.Window.Duration < minWindow || b.Window.Duration > maxWindow || b.Window.Duration%minWindow != 0 {
		errs.add(
			"%s.window: must be whole seconds from %v to %v, such as 1m or 24h, not %v",
			path, minWindow, maxWindow, b.Window)
	}

	for _, w := range []struct {
		key   string
		value *int
	}{
		{"input", b.Weights.Input},
		{"cached", b.Weights.Cached},
		{"output", b.Weights.Output},
		{"reasoning", b.Weights.Reasoning},
	} {
		if n := weight(w.value); n < 0 || n > maxWeight {
			errs.add("%s.weights.%s: must be from 0 to %d percent, not %d", path, w.key, maxWeight, n)
		}
	}

	errs.optional(path+".on_exhausted", b.OnExhausted, ExhaustedRefuse, ExhaustedEnd)
	errs.optional(path+".on_store_failure", b.OnStoreFailure, StoreFailureOpen, StoreFailureClosed)

	errs = append(errs, atLeast(path+".reserve_tokens", b.ReserveTokens, 0)...)
	if b.OnExhausted == ExhaustedEnd && b.ReserveTokens == 0 {
		errs.add("%s.reserve_tokens: on_exhausted end reserves output in steps: write their length, such as 1024", path)
	}
	return errs
}
