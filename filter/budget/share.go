package budget

import (
	"context"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// What a call reserves whose request names no limit of its output. As much as the context has
// would be more than most budgets have, and most answers are short. So the call gets a limit,
// which is reserved before it and cannot be exceeded: of each budget an eighth of what is left
// behind its prompt, at least Call.Least.
//
// A share of what is left, and not of the budget: each of many calls at the same time leaves seven
// eighths to those that follow, and becomes smaller than Least only when the budget is nearly used
// up. The store makes sure of it when it is taken.

const (
	// shares is how many such calls could take all that is left.
	shares = 8
	// maxShares bounds how often a share is asked for because others were faster. The last is the least.
	maxShares = 4
)

// LeastOutput is the fewest output tokens of a choice that are of use to a request which names
// no limit: an answer of ordinary length, with its reasoning. Fewer would end most answers
// within it, and the client would pay for nothing.
const LeastOutput = 2048

// bounds reports whether a budget bounds the output of calls without a limit. One that reserves
// in steps does not.
func (a *Account) bounds() bool {
	for i := range a.entries {
		if a.entries[i].budget.Reserve == 0 {
			return true
		}
	}
	return false
}

// takeShare takes a share of what is left for a call without a limit, and returns its output
// tokens. The access is the caller's.
func (a *Account) takeShare(ctx context.Context, used Usage, call Call) (output int, _ *apierror.Error) {
	call.Least = min(call.Least, call.Output)
	counts, err := a.read(ctx)
	if err != nil {
		return call.Output, a.beginUnread(used, call, err)
	}

	for try := 1; ; try++ {
		share := call
		if share.Output = a.share(used, call, counts); try == maxShares {
			share.Output = call.Least
		}
		last := share.Output == call.Least

		// Others may have taken since the counts were read. Many that have read the same counts would
		// take all that there is with the first of them, so the store is told what a share leaves.
		charged, refusal := a.take(ctx, func() {
			a.begin(used, share)
			if !last {
				a.leaveOthers(share)
			}
		})
		if refusal == nil || last || refusal.Status != http.StatusTooManyRequests {
			return share.Output, refusal
		}
		counts = charged
	}
}

// leaveOthers has the call that begins leave to others what a share of its size leaves. The mutex
// is the caller's.
func (a *Account) leaveOthers(share Call) {
	for i := range a.entries {
		if e := &a.entries[i]; e.budget.Reserve == 0 {
			e.leaves = (shares - 1) * e.budget.Weights.output(share.Output)
		}
	}
}

// read returns the counts of the budgets; none if the account is settled.
func (a *Account) read(ctx context.Context) ([]store.Count, error) {
	charges := a.missing(func() {})
	if charges == nil {
		return nil, nil
	}

	// A charge of nothing, without a limit, is a look.
	for i := range charges {
		charges[i].Amount, charges[i].Limit = 0, 0
	}
	charged, err := a.store.Charge(ctx, charges)
	return charged.Counts, err
}

// beginUnread begins a call though the store has failed. The error is that of budgets that are
// closed then; in others the call has no limit, and is charged at its end.
func (a *Account) beginUnread(used Usage, call Call, cause error) *apierror.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.storeFailed(cause); err != nil {
		return err
	}
	a.begin(used, call)
	return nil
}

// share returns how many output tokens a call without a limit may have.
func (a *Account) share(used Usage, call Call, counts []store.Count) int {
	a.mu.Lock()
	defer a.mu.Unlock()

	output := call.Output
	for i, c := range counts {
		output = min(output, a.entries[i].share(used, call, c))
	}
	return max(output, call.Least)
}

// share returns how many output tokens a budget allows to a call without a limit.
func (e *entry) share(used Usage, call Call, count store.Count) int {
	w := &e.budget.Weights

	// What the reply itself has taken before is there for this call too.
	left := e.budget.Tokens*unit - count.Used + e.units() - w.used(used) - w.prompt(call.Prompt)

	switch per := int64(max(w.Output, w.Reasoning)); {
	// Where no call has room, a share that others allow is refused as the least is: asking for it
	// would only read the counts again.
	case left < 0, e.budget.Reserve > 0 && left < w.output(e.first(call)):
		return 0
	case e.budget.Reserve > 0, per == 0:
		return call.Output
	default:
		return int(min(left/shares/per, int64(call.Output)))
	}
}
