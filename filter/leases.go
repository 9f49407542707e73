package filter

import (
	"context"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/responses"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

const (
	// leaseTime is how long after its process has died a response ends as
	// failed, and its conversation is free.
	leaseTime = responses.HoldLease
	// leaseBeat is how often leases are renewed, which also tells what other
	// processes have cancelled.
	leaseBeat = 500 * time.Millisecond
)

// leases renews what this process holds in the store, all of it in one query,
// and tells what it has lost. It is safe for concurrent use.
type leases struct {
	store store.Responses
	owner string

	mu   sync.Mutex
	held map[store.Key]func() // what is told of the loss
	stop context.CancelFunc   // ends the beat; nil while nothing is held
	done sync.WaitGroup
}

func newLeases(s store.Responses, owner string) *leases {
	return &leases{store: s, owner: owner, held: map[store.Key]func(){}}
}

// hold renews a response's lease until drop; lost is called, once, if it is not
// this process's any more.
func (l *leases) hold(k store.Key, lost func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[k] = lost
	if l.stop == nil {
		var ctx context.Context
		ctx, l.stop = context.WithCancel(context.Background())
		l.done.Go(func() { l.beat(ctx) })
	}
}

// drop lets a lease run out.
func (l *leases) drop(k store.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, k)
	if len(l.held) == 0 && l.stop != nil {
		l.stop()
		l.stop = nil
	}
}

func (l *leases) beat(ctx context.Context) {
	ticker := time.NewTicker(leaseBeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.renew(ctx)
		}
	}
}

// renew renews all leases. A store that does not answer takes none away: the
// next beat tries again.
func (l *leases) renew(ctx context.Context) {
	l.mu.Lock()
	keys := make([]store.Key, 0, len(l.held))
	for k := range l.held {
		keys = append(keys, k)
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	lost, err := l.store.Renew(ctx, l.owner, keys, leaseTime)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range lost {
		if tell := l.held[k]; tell != nil {
			tell()
			l.held[k] = nil
		}
	}
}
