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

// Keep renews a lock until unlock is called, which may be more than once; with nil
// there is nothing to renew. Should the lock be lost all the same, the end of the reply
// shows it.
func (l *Locks) Keep(lock api.Lock) (unlock func()) {
	if lock == nil {
		return func() {}
	}
	ctx, unlock := context.WithCancel(context.Background())
	l.Workers.Go(func() { renew(ctx, lock) })
	return unlock
}

func renew(ctx context.Context, lock api.Lock) {
	ticker := time.NewTicker(lockBeat)
	defer ticker.Stop()
	for {
		// The release is an access like the others, after the last renewal: two at a time could
		// arrive in another order.
		access := lock.Renew
		done := false
		select {
		case <-ticker.C:
		case <-ctx.Done():
			access, done = lock.Unlock, true
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
