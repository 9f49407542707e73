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
var ErrExceeded = errors.New("takes too much work to read, with all else that the request asks to be read or checked: make it smaller or simpler, or send fewer of its kind")

// Account counts the steps of one request, on all goroutines that work for it, and ends
// with a context. nil is an account without a bound.
type Account struct {
	ctx   context.Context //nolint:containedctx // an account is what is passed in a context's place
	own   atomic.Int64
	left  *atomic.Int64 // its own, or that of the account that it is the same as
	whole *Account      // that this is a part of; nil: of none
}

// New returns an account of a number of steps that ends with ctx.
func New(ctx context.Context, steps int) *Account {
	a := &Account{ctx: ctx}
	a.left = &a.own
	a.left.Store(int64(steps))

	return a
}

// Within returns the same account for a part of the work that has a context of its own,
// such as a job. The account without a bound has none for the part either, but its
// context.
func (a *Account) Within(ctx context.Context) *Account {
	if a == nil {
		return &Account{ctx: ctx}
	}

	return &Account{ctx: ctx, left: a.left, whole: a.whole}
}

// Part returns an account of at most so many of a's steps, for work that is left out where
// it takes more; nil if a does not have them. It ends with ctx, and not with a's context.
// What the part refuses, a does not count as refused.
func (a *Account) Part(ctx context.Context, steps int) *Account {
	if !a.Affords(steps) {
		return nil
	}
	part := New(ctx, steps)
	if a != nil {
		part.whole = a.Within(context.Background())
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

// accountKey is the key of the account of a context.
type accountKey struct{}

// With returns ctx with an account, for work that is done behind an interface that does not
// have one: what a store reads.
func With(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// From returns the account of ctx, as one that ends with ctx; nil: it has none.
func From(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	if a == nil {
		return nil
	}

	return a.Within(ctx)
}

// Err returns the error of an earlier refusal; nil if nothing was refused.
func (a *Account) Err() error { return a.Spend(0) }
