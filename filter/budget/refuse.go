package budget

import (
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
	for i, c := range charges {
		e := &a.entries[i]
		if c.Limit == 0 || counts[i].Used+c.Amount <= c.Limit {
			continue
		}
		limit := limitOf(e.budget, counts[i])
		limit.Never = e.needs(a.used, a.call) > c.Limit
		return refused(&limit, (counts[i].Used+unit-1)/unit, (c.Amount+unit-1)/unit)
	}
	// This cannot be: a store that refuses has a count over its limit.
	return refused(&apierror.TokenLimit{}, 0, 0)
}

func refused(l *apierror.TokenLimit, used, requested int64) *apierror.Error {
	var err *apierror.Error
	if l.Never {
		err = apierror.New(
			http.StatusTooManyRequests, "rate_limit_exceeded", "",
			"Request too large for the token budget %q: Limit %d, Requested %d. Shorten the input or lower "+
				"the limit of output tokens.",
			l.Budget, l.Limit, requested,
		)
		// The request does not get smaller by waiting.
		err.RetryAfter = 0
	} else {
		// Rounded up: a client that waits for as long finds the next window.
		seconds := int64((l.Reset + time.Second - 1) / time.Second)
		err = apierror.New(
			http.StatusTooManyRequests, "rate_limit_exceeded", "",
			"Rate limit reached for the token budget %q: Limit %d, Used %d, Requested %d. Please try again "+
				"in %ds, or shorten the input, or lower the limit of output tokens.",
			l.Budget, l.Limit, used, requested, seconds,
		)
		err.RetryAfter = time.Duration(seconds) * time.Second
	}

	err.Type, err.Limit = apierror.TypeTokens, l
	return err
}

// limitOf returns what a count leaves of a budget.
func limitOf(b *Budget, c store.Count) apierror.TokenLimit {
	return apierror.TokenLimit{
		Budget: b.Name, Limit: b.Tokens, Remaining: max(0, b.Tokens*unit-c.Used) / unit, Reset: c.Left,
	}
}
