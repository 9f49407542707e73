package filter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// holdingCall is a call that holds something, and notes the leases.
type holdingCall struct {
	call
	holds  bool
	leases []time.Duration
}

func (c *holdingCall) Holds() bool { return c.holds }

func (c *holdingCall) Hold(_ context.Context, lease time.Duration) error {
	c.leases = append(c.leases, lease)
	return errors.New("the store does not answer") // the next beat tries again
}

// TestHold shows that a hold is renewed until it is let go, and not after.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Server
		held, free := &holdingCall{holds: true}, &holdingCall{}
		letGo := s.hold(held)
		s.hold(free)()
		s.hold(chatCall{})()
		time.Sleep(2*holdBeat + time.Second)
		synctest.Wait()
		letGo()
		letGo()
		s.holds.Wait()
		time.Sleep(2 * holdBeat)
		if diff := cmp.Diff([]time.Duration{leaseTime, leaseTime, 0}, held.leases); diff != "" || free.leases != nil {
			t.Errorf("leases (-want +got):\n%s%v", diff, free.leases)
		}
	})
}
