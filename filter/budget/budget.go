// Package budget bounds the tokens that tenants, keys and models use in a window of
// time, and says what tokens cost.
//
// What is called a token quota elsewhere is a [Budget] here, as in the configuration: its keys
// are token_budgets. It is neither the memory budget, which is bytes of this process, nor a
// reasoning budget, which is tokens of one output; this package knows neither.
//
// The words: to reserve is to charge before a model call what it can use at most; to settle is to
// return, once, what was not used, and to charge what was used without being reserved.
//
// A [Set] has the budgets of a configuration. Its [Account] is what one reply takes of
// those that apply to it. Before a model call the account reserves what the call can
// use at most: its prompt, which is counted exactly, and the limit of its output. A call
// that has no limit gets one: a share of what is left, which is its reservation (share.go).
// When the reply has ended, what it has not used is returned.
//
//	account := set.Account(budget.Subject{Tenant: "a", Model: "gpt-oss-20b"})
//	output, err := account.Reserve(ctx, budget.Usage{}, budget.Call{Prompt: 1200, Output: 800})
//	// the model call, of at most output tokens
//	err = account.Settle(ctx, budget.Usage{Input: 1200, Cached: 1024, Output: 312, Reasoning: 200})
//
// A reservation is one atomic access to the store, so that no number of replies at the
// same time exceeds a budget, also of several replicas that share the store.
package budget

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// Usage is the tokens that model calls have used.
type Usage struct {
	Input     int // of prompts
	Cached    int // of Input, from the engine's prefix cache
	Output    int
	Reasoning int // of Output
}

// Call is the most that a model call can use, in tokens.
type Call struct {
	Prompt int
	// Output is that of all choices together.
	Output int
	// Least says that the request names no limit of its output, and how many tokens of Output
	// are of use all the same. 0: it names one, and gets all of Output or nothing.
	Least int
}

// Weights are what a token of each kind counts, in percent.
type Weights struct {
	Input     int // prompt tokens that were not cached
	Cached    int
	Output    int // output tokens that are not reasoning
	Reasoning int
}

// unit is how many units of a count a token has whose weight is 100 percent.
const unit = 100

// used returns the units of what was used.
func (w *Weights) used(u Usage) int64 {
	// Engines report what they like: a part is never more than the whole.
	cached, reasoning := min(max(u.Cached, 0), u.Input), min(max(u.Reasoning, 0), u.Output)
	return int64(u.Input-cached)*int64(w.Input) + int64(cached)*int64(w.Cached) +
		int64(u.Output-reasoning)*int64(w.Output) + int64(reasoning)*int64(w.Reasoning)
}

// prompt returns the most units that the tokens of a prompt can count.
func (w *Weights) prompt(tokens int) int64 { return int64(tokens) * int64(max(w.Input, w.Cached)) }

// output returns the most units that output tokens can count.
func (w *Weights) output(tokens int) int64 { return int64(tokens) * int64(max(w.Output, w.Reasoning)) }

// Budget bounds the tokens of each of its subjects in each window. Windows follow one
// another from the beginning of 1970 on, in UTC.
type Budget struct {
	Name string
	// Tenant, Key and Model say what the subjects are. None: there is one subject.
	Tenant, Key, Model bool
	// Applies reports whether the budget is for a subject. Of budgets with the same
	// name the first that applies does.
	Applies func(s Subject) bool
	Tokens  int64 // weighted; 0: those that it applies to have no bound
	Window  time.Duration
	Weights Weights
	// Reserve is the most output tokens that are reserved at once. 0: the limit of
	// the call, which is a share of what is left if the request names none.
	Reserve int
	// End says that output ends when the budget has no more tokens. It needs Reserve.
	End bool
	// Open says that requests are admitted if the store fails.
	Open bool
}

// Subject is whose tokens a reply uses.
type Subject struct {
	Tenant string
	Key    string // digest of the client's credentials; "": it has none
	Model  string // name at the engine
}

// maxSubject is how many bytes of a tenant, key or model a count's name has. Clients may be
// able to choose longer ones, and the store keeps many names.
const maxSubject = 128

// count returns the name of a subject's count in the store.
func (b *Budget) count(s Subject) string {
	var name strings.Builder
	name.WriteString(b.Name + " " + b.Window.String())
	for _, part := range []struct {
		key, value string
		counts     bool
	}{{"tenant", s.Tenant, b.Tenant}, {"key", s.Key, b.Key}, {"model", s.Model, b.Model}} {
		switch {
		case !part.counts:
		case len(part.value) > maxSubject:
			// No shorter value has a colon, which would be escaped.
			fmt.Fprintf(&name, " %s=sha256:%x", part.key, sha256.Sum256([]byte(part.value)))
		default:
			name.WriteString(" " + part.key + "=" + url.QueryEscape(part.value))
		}
	}

	return name.String()
}

// Set is the budgets of a configuration. It is safe for concurrent use.
type Set struct {
	store   store.Budgets
	budgets []Budget
}

// New returns the set of some budgets, with their counts in a store; nil if there are
// none.
func New(s store.Budgets, budgets []Budget) *Set {
	if len(budgets) == 0 {
		return nil
	}
	return &Set{store: s, budgets: budgets}
}

// NeedsKey reports whether a budget needs the key of a subject.
func (s *Set) NeedsKey() bool {
	return s != nil && slices.ContainsFunc(s.budgets, func(b Budget) bool { return b.Key })
}

// Account returns the account of a reply; nil if no budget bounds it.
func (s *Set) Account(subject Subject) *Account {
	if s == nil {
		return nil
	}

	var entries []entry
	var names []string
	for i := range s.budgets {
		b := &s.budgets[i]
		// Operators write the special case before the general one, under the same name.
		if slices.Contains(names, b.Name) || !b.Applies(subject) {
			continue
		}
		names = append(names, b.Name)
		if b.Tokens > 0 {
			entries = append(entries, entry{budget: b, count: b.count(subject)})
		}
	}

	if len(entries) == 0 {
		return nil
	}
	return &Account{store: s.store, entries: entries}
}
