package run

import (
	"context"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
)

const (
	// lockBeat is how often the lock of a conversation is renewed, a third of
	// its lease.
	lockBeat = 5 * time.Second
	// lockTimeout bounds one access to the store.
	lockTimeout = 5 * time.Second
)

// Locks renews the locks of conversations while responses are made in them.
type Locks struct{ Workers *Workers }

// Keep renews the lock that a request has until unlock is called, which may be
// more than once. Should the lock be lost all the same, the end of the reply
// shows it.
func (l *Locks) Keep(r api.Request) (unlock func()) {
	locker, ok := r.(api.Locker)
	if !ok || !locker.Locked() {
		return func() {}
	}
	ctx, unlock := context.WithCancel(context.Background())
	l.Workers.Go(func() { renew(ctx, locker) })
	return unlock
}

func renew(ctx context.Context, locker api.Locker) {
	ticker := time.NewTicker(lockBeat)
	defer ticker.Stop()
	for {
		// The release is an access like the others, after the last renewal: two at a time could
		// arrive in another order.
		access := locker.RenewLock
		done := false
		select {
		case <-ticker.C:
		case <-ctx.Done():
			access, done = locker.Unlock, true
		}

		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
		// The next beat renews it; a lock that is not released expires.
		_ = access(within)
		cancel()
		if done {
			return
		}
	}
}
