package budget

import (
	"fmt"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// storeFailed returns the error for a request if a store has failed; nil if all budgets
// are open then. The account is locked.
func (a *Account) storeFailed(cause error) *apierror.Error {
	for i := range a.entries {
		if !a.entries[i].budget.Open {
			return apierror.New(
				http.StatusServiceUnavailable, "store_unavailable", "",
				"The store of token budgets cannot be reached. Send the request again.",
			).With(cause)
		}
	}
	return nil
}

// refusal returns the error for a request whose charges were refused. Its text has the
// words by which clients read limits and times from OpenAI's errors. The account is locked.
func (a *Account) refusal(charges []store.Charge, counts []store.Count) *apierror.Error {
	var limit apierror.TokenLimit
	refuses := -1
	for i, c := range charges {
		e := &a.entries[i]
		if c.Limit == 0 || counts[i].Used+c.Amount <= c.Limit {
			continue
		}

		// No waiting helps against one that is too small. Of the others the one counts whose window
		// is the last to end: before, the request would be refused again.
		here := limitOf(e.budget, counts[i])
		here.Never = e.needs(a.used, a.call) > c.Limit
		if refuses < 0 || here.Never && !limit.Never || here.Never == limit.Never && here.Reset > limit.Reset {
			limit, refuses = here, i
		}
	}

	// This cannot be: a store that refuses has a count over its limit.
	if refuses < 0 {
		return reached(&limit, 0, 0, "")
	}

	e := &a.entries[refuses]
	if limit.Never {
		return tooLarge(&limit, tokensOf(e.needs(a.used, a.call)), e.reserves(a.call))
	}
	return reached(&limit, tokensOf(counts[refuses].Used), tokensOf(charges[refuses].Amount), e.reserves(a.call))
}

// tokensOf returns how many tokens units are, rounded up.
func tokensOf(units int64) int64 { return (units + unit - 1) / unit }

// reserves says what a call has to reserve of the budget, and why. Who reads it has to know which
// number to change.
func (e *entry) reserves(call Call) string {
	var text string
	switch n := e.first(call); {
	case n < call.Output:
		text = fmt.Sprintf("Its prompt of %d tokens is reserved, and at first %d of its output. Shorten the input.",
			call.Prompt, n)
	case call.Least > 0:
		text = fmt.Sprintf("It names no limit of its output: with its prompt of %d tokens at least %d of output are "+
			"reserved. Shorten the input, or name a lower limit.", call.Prompt, n)
	default:
		text = fmt.Sprintf("Its prompt of %d tokens and the limit of its output, %d, are reserved. Shorten the input, "+
			"or lower the limit of output tokens.", call.Prompt, n)
	}

	if e.budget.Weights != (Weights{unit, unit, unit, unit}) {
		text += " Tokens count by the weights of the budget."
	}
	return text
}

// tooLarge is the error of a request that does not fit into a whole window.
func tooLarge(l *apierror.TokenLimit, requested int64, reserves string) *apierror.Error {
	err := apierror.New(
		http.StatusTooManyRequests, "rate_limit_exceeded", "",
		"Request too large for the token budget %q: Limit %d, Requested %d. %s", l.Budget, l.Limit, requested, reserves,
	)
	// The request does not get smaller by waiting.
	err.RetryAfter = 0
	err.Type, err.Limit = apierror.TypeTokens, l
	return err
}

// reached is the error of a request that fits into the next window.
func reached(l *apierror.TokenLimit, used, requested int64, reserves string) *apierror.Error {
	// Rounded up: a client that waits for as long finds the next window.
	seconds := int64((l.Reset + time.Second - 1) / time.Second)
	err := apierror.New(
		http.StatusTooManyRequests, "rate_limit_exceeded", "",
		"Rate limit reached for the token budget %q: Limit %d, Used %d, Requested %d. Please try again in %ds. %s",
		l.Budget, l.Limit, used, requested, seconds, reserves,
	)
	err.RetryAfter = time.Duration(seconds) * time.Second
	err.Type, err.Limit = apierror.TypeTokens, l
	return err
}

// limitOf returns what a count leaves of a budget.
func limitOf(b *Budget, c store.Count) apierror.TokenLimit {
	return apierror.TokenLimit{
		Budget: b.Name, Limit: b.Tokens, Remaining: max(0, b.Tokens*unit-c.Used) / unit, Reset: c.Left,
	}
}
