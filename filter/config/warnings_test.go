package config

import (
	"strings"
	"testing"
)

// A budget that refuses requests which clients take for ordinary ones is a warning that names the
// number to change.
func TestWarningsOfBudgets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ budget, more, want string }{
		"enough":              {"tokens: 200000", "", ""},
		"no bound":            {"tokens: 0", "", ""},
		"less than a context": {"tokens: 100000", "", "token_budgets[0] (b): 100000 tokens are less than the context of its models, 131072"},
		"a short context":     {"tokens: 100000", "model_defaults: {context_length: 32768}", ""},
		"a longer model":      {"tokens: 100000", "model_defaults: {context_length: 32768}\nmodels: [{match: gpt-oss-120b, context_length: 131072}]", "131072"},
		"one of other models": {"tokens: 100000, match: oss-20b", "model_defaults: {context_length: 32768}\nmodels: [{match: =gpt-oss-120b, context_length: 131072}]", ""},
		"cached is cheap":     {"tokens: 100000, weights: {input: 50, cached: 10}", "", ""},
		"input is dear":       {"tokens: 200000, weights: {input: 200}", "", "200000 tokens are less"},
		"no answer fits":      {"tokens: 2048", "", "a request that names no limit of its output is always refused: at least 2048 tokens"},
		"output is dear":      {"tokens: 8000, weights: {output: 400}", "", "always refused: at least 2048"},
		"reasoning is dear":   {"tokens: 8000, weights: {reasoning: 400}", "", "always refused: at least 2048"},
		"steps too long":      {"tokens: 4000, reserve_tokens: 4096", "", "reserve_tokens, 4096, takes all of the 4000 tokens"},
		"steps that fit":      {"tokens: 1000, reserve_tokens: 512", "model_defaults: {context_length: 900}", ""},
	} {
		text := "engines: [{kind: vllm}]\n" + c.more + "\ntoken_budgets: [{name: b, window: 1m, " + c.budget + "}]"
		parsed, err := Parse("", []byte(text))
		if err == nil {
			err = parsed.Validate()
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := strings.Join(parsed.Warnings(), "\n")
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
