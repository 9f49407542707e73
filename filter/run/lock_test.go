package run

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// countingLock is a lock that counts the accesses to the store.
type countingLock struct {
	renewals, unlocked int
	hangs              bool // the store does not answer
}

func (r *countingLock) Renew(ctx context.Context) error {
	r.renewals++
	if r.hangs {
		<-ctx.Done()
	}
	return errors.New("the store does not answer") // the next beat tries again
}

func (r *countingLock) Unlock(ctx context.Context) error {
	r.unlocked++
	if r.hangs {
		<-ctx.Done()
	}
	return ctx.Err()
}

// A lock is renewed until it is released, and not after.
func TestLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := &Locks{Workers: &Workers{}}
		locked := &countingLock{}
		unlock := locks.Keep(locked)
		locks.Keep(nil)()
		time.Sleep(2*lockBeat + time.Second)
		synctest.Wait()
		unlock()
		unlock()
		locks.Workers.Wait(t.Context())
		time.Sleep(2 * lockBeat)
		if locked.renewals != 2 || locked.unlocked != 1 {
			t.Errorf("%d renewals, %d times unlocked", locked.renewals, locked.unlocked)
		}
	})
}

// A store that hangs bounds neither the renewals nor the release for ever.
func TestLocksOfAStoreThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := &Locks{Workers: &Workers{}}
		r := &countingLock{hangs: true}
		unlock := locks.Keep(r)
		time.Sleep(lockBeat + time.Second) // while the first renewal hangs
		unlock()
		locks.Workers.Wait(t.Context()) // a deadlock fails the test
		if r.renewals == 0 || r.unlocked != 1 {
			t.Errorf("%d renewals, %d times unlocked", r.renewals, r.unlocked)
		}
	})
}
