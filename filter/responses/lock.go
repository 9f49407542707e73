package responses

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// storeTimeout bounds one access to the store that must be completed.
const storeTimeout = 5 * time.Second

// LockLease is how long a conversation stays locked unless [Request.RenewLock]
// renews the lock.
const LockLease = 15 * time.Second

// lock is the lock of the conversation in which a response is made: only the
// response can add items.
type lock struct {
	store        store.Conversations
	tenant       string
	conversation string
	response     string

	// committing says that a commit, which may outlive the reply, releases the lock.
	committing atomic.Bool
}

// id is the id of the conversation; "" where none is locked.
func (l *lock) id() string {
	if l == nil {
		return ""
	}
	return l.conversation
}

func (l *lock) acquire(ctx context.Context) error {
	return l.store.Lock(ctx, l.tenant, l.conversation, l.response, LockLease)
}

func (l *lock) release(ctx context.Context) error {
	if err := l.store.Lock(ctx, l.tenant, l.conversation, l.response, 0); err != nil {
		return fmt.Errorf("unlock the conversation: %w", err)
	}
	return nil
}

// Locked reports whether the request has locked its conversation.
func (r *Asked) Locked() bool { return r.lock != nil }

// RenewLock extends the lock of the conversation by [LockLease]. An error that is
// store.ErrConflict means that the lock is lost: the response can add nothing to
// the conversation any more.
func (r *Asked) RenewLock(ctx context.Context) error {
	l := r.lock
	if l == nil {
		return nil
	}
	if err := l.store.RenewLock(ctx, l.tenant, l.conversation, l.response, LockLease); err != nil {
		return fmt.Errorf("renew the lock of the conversation: %w", err)
	}
	return nil
}

// Unlock releases the lock of the conversation, unless the commit of the response is
// about to: the commit extends the conversation first. It may be called more than once.
func (r *Asked) Unlock(ctx context.Context) error {
	if r.lock == nil || r.lock.committing.Load() {
		return nil
	}
	return r.lock.release(ctx)
}

// abandon releases the lock of a request that could not be decoded. If that fails
// its lease ends.
func (l *lock) abandon(ctx context.Context) {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	_ = l.release(ctx)
}

// extend appends items to the conversation, and unlocks it. Items that were added
// stay so if it cannot be unlocked: the lock's lease ends.
func (l *lock) extend(ctx context.Context, items []store.Item) (added bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if len(items) > 0 {
		if err = l.store.AddItems(ctx, l.tenant, l.conversation, l.response, items); err != nil {
			err = fmt.Errorf("extend the conversation: %w", err)
		}
	}
	return err == nil, errors.Join(err, l.release(ctx))
}
