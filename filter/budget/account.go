package budget

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// storeTimeout bounds an access to the store.
const storeTimeout = 2 * time.Second

// Account is what a reply takes of the budgets that apply to it. It is safe for
// concurrent use: what one access takes, a later one returns. Methods without a context
// do not wait for the store.
//
//	state      what may follow
//	open       Reserve, or Reserved, begins a model call: its prompt and output are taken
//	           Grow takes more output of that call
//	           Settle: the account is settled
//	settled    nothing is taken any more; Reserve and Grow succeed, for a reply that is ending
//
// A call that follows another needs only what the first one has left over: units that were taken
// are never returned before Settle.
type Account struct {
	store store.Budgets
	// access is held during an access to the store. It is taken before mu.
	access sync.Mutex

	// mu protects what follows.
	mu      sync.Mutex
	entries []entry
	// used is what was used when the call began.
	used    Usage
	call    Call
	left    apierror.TokenLimit
	settled bool
}

// entry is what an account takes of one budget.
type entry struct {
	budget *Budget
	count  string // in the store
	output int    // output tokens of the call that are reserved
	leaves int64  // units that have to be left when the call begins
	taken  []piece
}

// piece is units that were taken in a window.
type piece struct{ units, number int64 }

// charge returns a charge of nothing to the budget.
func (e *entry) charge() store.Charge {
	return store.Charge{Budget: e.budget.Name, Name: e.count, Window: e.budget.Window}
}

// units returns what was taken.
func (e *entry) units() (n int64) {
	for _, p := range e.taken {
		n += p.units
	}
	return n
}

// needs returns what has to be taken for a call after what was used before, with as
// many output tokens as are reserved.
func (e *entry) needs(used Usage, call Call) int64 {
	w := &e.budget.Weights
	return w.used(used) + w.prompt(call.Prompt) + w.output(e.output)
}

// first returns how many output tokens of a call are reserved at its beginning.
func (e *entry) first(call Call) int {
	if e.budget.Reserve == 0 {
		return call.Output
	}
	return min(call.Output, e.budget.Reserve)
}

// Reserve reserves what a model call can use, beyond what the reply has used before, and
// returns how many output tokens it may have: call.Output, or fewer if the call has no limit
// of its own (share.go). The error is for the client: a 429, or a 503 if the store fails.
func (a *Account) Reserve(ctx context.Context, used Usage, call Call) (output int, _ *apierror.Error) {
	a.access.Lock()
	defer a.access.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()

	if call.Least > 0 && a.bounds() {
		return a.takeShare(ctx, used, call)
	}
	_, refusal := a.take(ctx, func() { a.begin(used, call) })
	return call.Output, refusal
}

// Reserved reports whether enough is reserved for a model call with the whole of its output,
// which begins then.
func (a *Account) Reserved(used Usage, call Call) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.entries {
		e := a.entries[i]
		if e.output = e.first(call); e.needs(used, call) > e.units() {
			return false
		}
	}
	a.begin(used, call)
	return true
}

// begin begins a model call. The mutex is the caller's.
func (a *Account) begin(used Usage, call Call) {
	a.used, a.call = used, call
	for i := range a.entries {
		e := &a.entries[i]
		e.output, e.leaves = e.first(call), 0
	}
}

// Low returns the number of output tokens of the call from which on [Account.Grow] has
// to be called. It is half a step before the reservation ends.
func (a *Account) Low() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	low := math.MaxInt
	for i := range a.entries {
		if e := &a.entries[i]; e.budget.End && e.output < a.call.Output {
			low = min(low, e.output-e.budget.Reserve/2)
		}
	}
	return low
}

// Ends reports whether output ends when a budget has no more tokens.
func (a *Account) Ends() bool {
	for i := range a.entries {
		if a.entries[i].budget.End {
			return true
		}
	}
	return false
}

// Grow reserves more output tokens of the call, where output ends with the budget. The
// error says that there are none. If the store fails, the output goes on: it is charged
// at its end.
func (a *Account) Grow(ctx context.Context) *apierror.Error {
	a.access.Lock()
	defer a.access.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()

	before := make([]int, len(a.entries))
	_, err := a.take(ctx, func() {
		for i := range a.entries {
			e := &a.entries[i]
			before[i] = e.output
			if e.budget.End {
				e.output = min(a.call.Output, e.output+e.budget.Reserve)
			}
		}
	})
	if err == nil || err.Status != http.StatusTooManyRequests {
		return nil
	}

	// Nothing was taken, so that what was reserved before is all there is.
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.entries {
		a.entries[i].output = before[i]
	}

	return err
}

// take takes what the entries need and do not have, after change has changed what they
// need, and returns the counts. The access, and the time for it, are the caller's.
func (a *Account) take(ctx context.Context, change func()) ([]store.Count, *apierror.Error) {
	charges := a.missing(change)
	if charges == nil {
		return nil, nil
	}

	// Only access is held here: methods without a context must not wait for the store.
	charged, err := a.store.Charge(ctx, charges)

	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		return nil, a.storeFailed(err)
	}
	if !charged.OK {
		return charged.Counts, a.refusal(charges, charged.Counts)
	}

	for i, c := range charged.Counts {
		e := &a.entries[i]
		if charges[i].Amount > 0 {
			e.taken = append(e.taken, piece{charges[i].Amount, c.Number})
		}
		// The client is told of the quota that it reaches first.
		if left := limitOf(e.budget, c); i == 0 || left.Remaining < a.left.Remaining {
			a.left = left
		}
	}

	return charged.Counts, nil
}

// missing returns the charges of what the entries need and do not have, after a change of
// what they need; nil if the account is settled.
func (a *Account) missing(change func()) []store.Charge {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.settled {
		return nil
	}

	change()
	charges := make([]store.Charge, len(a.entries))
	for i := range a.entries {
		e := &a.entries[i]
		charges[i] = e.charge()
		charges[i].Limit = e.budget.Tokens*unit - e.leaves
		if charges[i].Amount = max(0, e.needs(a.used, a.call)-e.units()); charges[i].Amount == 0 {
			// A count that is over its limit refuses nothing to those who take nothing.
			charges[i].Limit = 0
		}
	}

	return charges
}

// Left returns what is left of the budget that has the least; ok is false if the store
// has failed so far.
func (a *Account) Left() (l apierror.TokenLimit, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left, a.left.Budget != ""
}

// Settle returns what was reserved and not used, once. What was used and not reserved is
// charged, also beyond a limit. The reply takes nothing after it.
func (a *Account) Settle(ctx context.Context, used Usage) error {
	a.access.Lock()
	defer a.access.Unlock()
	return a.charge(ctx, a.settlement(used))
}

// settlement returns the charges that settle the account; none if it is settled.
func (a *Account) settlement(used Usage) (charges []store.Charge) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.settled {
		return nil
	}

	a.settled = true

	// What was taken last is returned first. An amount goes back to the window that it was taken
	// in: a later one does not owe it.
	for i := range a.entries {
		e := &a.entries[i]
		more := e.budget.Weights.used(used) - e.units()
		if more > 0 {
			charge := e.charge()
			charge.Amount = more
			charges = append(charges, charge)
			continue
		}
		for n := len(e.taken) - 1; n >= 0 && more < 0; n-- {
			back := min(-more, e.taken[n].units)
			more += back
			charge := e.charge()
			charge.Amount, charge.Number = -back, e.taken[n].number
			charges = append(charges, charge)
		}
	}

	return charges
}

// charge makes charges that have no limits. Those of one count have different windows: a
// store makes charges of different counts at once.
func (a *Account) charge(ctx context.Context, charges []store.Charge) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()

	for len(charges) > 0 {
		var now, later []store.Charge
		names := map[string]bool{}
		for _, c := range charges {
			if names[c.Name] {
				later = append(later, c)
			} else {
				now, names[c.Name] = append(now, c), true
			}
		}
		if _, err := a.store.Charge(ctx, now); err != nil {
			return err
		}
		charges = later
	}

	return nil
}
