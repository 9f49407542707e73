package request

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// StoreTimeout bounds one access to the store that must be completed.
const StoreTimeout = 5 * time.Second

// LockLease is how long a conversation stays locked unless [Lock.Renew]
// renews the lock.
const LockLease = 15 * time.Second

// Lock is the lock of the conversation in which a response is made: only the
// Response can add items.
type Lock struct {
	Store        store.Conversations
	Tenant       string
	Conversation string
	Response     string

	// Committing says that a commit, which may outlive the reply, releases the lock.
	Committing atomic.Bool
}

// ID is the id of the conversation; "" where none is locked.
func (l *Lock) ID() string {
	if l == nil {
		return ""
	}
	return l.Conversation
}

// Acquire locks the conversation for [LockLease].
func (l *Lock) Acquire(ctx context.Context) error {
	return l.Store.Lock(ctx, l.Tenant, l.Conversation, l.Response, LockLease)
}

func (l *Lock) release(ctx context.Context) error {
	if err := l.Store.Lock(ctx, l.Tenant, l.Conversation, l.Response, 0); err != nil {
		return fmt.Errorf("unlock the conversation: %w", err)
	}
	return nil
}

// Renew extends the lock of the conversation by [LockLease]. An error that is
// store.ErrConflict means that the lock is lost: the response can add nothing to
// the conversation any more.
func (l *Lock) Renew(ctx context.Context) error {
	if err := l.Store.RenewLock(ctx, l.Tenant, l.Conversation, l.Response, LockLease); err != nil {
		return fmt.Errorf("renew the lock of the conversation: %w", err)
	}
	return nil
}

// Unlock releases the lock of the conversation, unless the commit of the response is
// about to: the commit extends the conversation first. It may be called more than once.
func (l *Lock) Unlock(ctx context.Context) error {
	// Between an unlock here and the commit another response could add its items.
	if l.Committing.Load() {
		return nil
	}
	return l.release(ctx)
}

// Abandon releases the lock of a request that could not be decoded. If that fails
// its lease ends.
func (l *Lock) Abandon(ctx context.Context) {
	if l == nil {
		return
	}
	// Requests that are given up because their client has left must release the lock too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StoreTimeout)
	defer cancel()
	_ = l.release(ctx)
}

// Extend appends items to the conversation, and unlocks it. Items that were added
// stay so if it cannot be unlocked: the lock's lease ends.
func (l *Lock) Extend(ctx context.Context, items []store.Item) (added bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	if len(items) > 0 {
		if err = l.Store.AddItems(ctx, l.Tenant, l.Conversation, l.Response, items); err != nil {
			err = fmt.Errorf("extend the conversation: %w", err)
		}
	}
	return err == nil, errors.Join(err, l.release(ctx))
}
