// Package work counts what a request makes this process compute, before it is computed.
//
// Most of what is done for a request takes time in proportion to its bytes, and needs no
// count: the bytes are bounded. An [Account] counts the rest: what takes more than linear
// time (schemas, grammars, regular expressions, the checks of answers), and what is linear
// in something that a few bytes can name (stored items, lists of tool servers, tokens).
//
// A request has one account. A function that does such work takes its steps first:
//
//	if err := account.Spend(len(items)); err != nil {
//		return err // the client is told what to make smaller
//	}
//
// A loop takes them piece by piece, so that a long computation ends soon after its
// request has: after a refusal, the account refuses everything.
package work

import (
	"context"
	"errors"
	"sync/atomic"
)

// PerRequest is how many steps a request may take. A step is about 50 ns of a core, so that
// the bound is about a second.
const PerRequest = 20_000_000

// ErrExceeded is the error of a request that has used up its steps. Its text continues "the
// schema", "the grammar" and the like.
var ErrExceeded = errors.New(
	"takes too much work to read, with all else that the request asks to be read or checked: make it " +
		"smaller or simpler, or send fewer of its kind",
)

// Account counts the steps of one request, on all goroutines that work for it, and ends
// with a context. nil is an account without a bound.
type Account struct {
	ctx context.Context //nolint:containedctx // an account is what is passed in a context's place
	// left is the steps; nil: any number.
	left *atomic.Int64
	// whole is what this is a part of; nil: of none.
	whole *Account
	// after is the same, for what is done after ctx has ended; nil: not made yet.
	after *Account
}

// New returns an account of a number of steps that ends with ctx.
func New(ctx context.Context, steps int) *Account {
	r := &request{carrier: carrier{Context: ctx}}
	r.steps.Store(int64(steps))
	r.after = Account{ctx: context.Background(), left: &r.steps}
	r.Account = Account{ctx: &r.carrier, left: &r.steps, after: &r.after}
	r.carrier.account = &r.Account

	return &r.Account
}

// request is an account with its steps and its context, in one piece of memory.
type request struct {
	Account

	steps   atomic.Int64
	carrier carrier
	after   Account
}

// carrier is a context that has an account.
type carrier struct {
	context.Context //nolint:containedctx // it is a context

	account *Account
}

// accountKey is the key of the account of a context.
type accountKey struct{}

// Value implements [context.Context].
func (c *carrier) Value(key any) any {
	if key == (accountKey{}) {
		return c.account
	}

	return c.Context.Value(key)
}

// Context returns the context of the account. It has the account, for work that is done
// behind an interface without one: what a store reads.
func (a *Account) Context() context.Context { return a.ctx }

// From returns the account of ctx, as one that ends with ctx; nil: it has none.
func From(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	if a == nil {
		return nil
	}

	return a.Within(ctx)
}

// Within returns the same account for a part of the work that has a context of its own,
// such as a job. The account without a bound has none for the part either, but its
// context.
func (a *Account) Within(ctx context.Context) *Account {
	switch {
	case a == nil:
		return &Account{ctx: ctx}
	case a.ctx == ctx:
		return a
	}

	return &Account{ctx: ctx, left: a.left, whole: a.whole}
}

// After returns the same account for what is done after its context has ended. It ends
// with no context.
func (a *Account) After() *Account {
	if a != nil && a.after != nil {
		return a.after
	}

	return a.Within(context.Background())
}

// Part returns an account of at most so many of a's steps, for work that is left out where
// it takes more; nil if a does not have them. It ends with ctx, and not with a's context.
// What the part refuses, a does not count as refused.
func (a *Account) Part(ctx context.Context, steps int) *Account {
	if !a.Affords(steps) {
		return nil
	}

	// Through After, so that the part does not end with a's context.
	part := New(ctx, steps)
	if a != nil {
		part.whole = a.After()
	}

	return part
}

// Spend takes steps. The error is [ErrExceeded] if there are not that many left, or that
// of the context if it has ended. The work must not be done then.
func (a *Account) Spend(steps int) error {
	if a == nil {
		return nil
	}
	if err := a.ctx.Err(); err != nil {
		return err
	}

	// Steps that are refused are taken all the same: what has been too much once stays so,
	// and a caller that drops the error gets it again from Err.
	if a.left != nil && a.left.Add(-int64(max(steps, 0))) < 0 {
		return ErrExceeded
	}
	if a.whole != nil {
		return a.whole.Spend(steps)
	}

	return nil
}

// Affords reports whether so many steps are left, without taking them.
func (a *Account) Affords(steps int) bool {
	return a == nil || a.left == nil || a.left.Load() >= int64(steps)
}

// Err returns the error of an earlier refusal; nil if nothing was refused.
func (a *Account) Err() error { return a.Spend(0) }
