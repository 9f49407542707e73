package filter

import (
	"context"
	"time"
)

// holder is a call that holds something in the store while its reply is made:
// its conversation.
type holder interface {
	Holds() bool
	// Hold holds it for another lease; one of 0 lets it go.
	Hold(ctx context.Context, lease time.Duration) error
}

// holdBeat is how often a hold is renewed for another leaseTime.
const holdBeat = leaseTime / 3

// hold renews what a call holds until letGo is called, which may be done more
// than once. Should it be lost all the same, the end of the reply tells.
func (s *Server) hold(k call) (letGo func()) {
	h, ok := k.(holder)
	if !ok || !h.Holds() {
		return func() {}
	}
	ctx, letGo := context.WithCancel(context.Background())
	s.holds.Go(func() {
		ticker := time.NewTicker(holdBeat)
		defer ticker.Stop()
		for {
			lease := leaseTime
			select {
			case <-ticker.C:
			case <-ctx.Done():
				lease = 0
			}
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
			_ = h.Hold(within, lease)
			cancel()
			if lease == 0 {
				return
			}
		}
	})
	return letGo
}
