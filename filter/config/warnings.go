package config

import (
	"cmp"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Warnings returns what a valid configuration is most likely not meant to do. Each names its
// key, and says what to write there. Commands log them when they start, when they take over a
// changed file, and when they check.
func (c *Config) Warnings() (texts []string) {
	for i := range c.TokenBudgets {
		if text := c.warnOfBudget(&c.TokenBudgets[i]); text != "" {
			texts = append(texts, fmt.Sprintf("token_budgets[%d] (%s): %s", i, c.TokenBudgets[i].Name, text))
		}
	}
	return texts
}

// warnOfBudget says what the tokens of a budget are too few for; "" if they are enough.
func (c *Config) warnOfBudget(b *TokenBudget) string {
	if b.Tokens == 0 {
		return ""
	}

	context := c.longestContext(b.Match)
	has := func(tokens int, weights ...*int) bool {
		most := 0
		for _, w := range weights {
			most = max(most, weight(w))
		}
		return int64(tokens)*int64(most) < b.Tokens*100
	}

	// A request that fits nowhere is the worse: it is refused whatever its prompt is.
	output := min(cmp.Or(b.ReserveTokens, budget.LeastOutput), context)
	switch fits := has(output, b.Weights.Output, b.Weights.Reasoning); {
	case !fits && b.ReserveTokens > 0:
		return fmt.Sprintf("a request that names no limit of its output is always refused: reserve_tokens, %d, takes "+
			"all of the %d tokens. Lower it, or raise tokens", b.ReserveTokens, b.Tokens)
	case !fits:
		return fmt.Sprintf("a request that names no limit of its output is always refused: at least %d tokens of "+
			"output are reserved for it, of %d. Raise tokens", output, b.Tokens)
	case !has(context, b.Weights.Input, b.Weights.Cached):
		return fmt.Sprintf("%d tokens are less than the context of its models, %d: a prompt that is longer than the "+
			"budget is always refused. Raise tokens, or set context_length to what the engine has", b.Tokens, context)
	}
	return ""
}

// longestContext returns the longest context of the models that an entry is for, as far as it is
// configured.
func (c *Config) longestContext(match string) int {
	longest := 0
	for path, m := range c.eachModel() {
		// Entries that set no length have that of the defaults, which come first.
		if path != "model_defaults" && (m.ContextLength == 0 || match != "" && !meet(m.Match, match)) {
			continue
		}
		longest = max(longest, cmp.Or(m.ContextLength, turn.DefaultContextLength))
	}
	return longest
}
