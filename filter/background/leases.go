package background

import (
	"context"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

const (
	// leaseTime is how long after the death of its process a response ends as
	// failed.
	leaseTime = 15 * time.Second
	// leaseBeat is how often leases are renewed, which also shows what other
	// processes have canceled.
	leaseBeat = 500 * time.Millisecond
)

// leases renews the leases that this process has in the store, all of them in one
// query, and reports the loss of one. It is safe for concurrent use.
//
//	a lease     begins with                      ends with
//	renewed     add                              drop
//	lost        the store: it does not know it   drop; it is asked for until then, and not reported again
//
// The beat runs while there is a lease of either kind.
type leases struct {
	store store.Responses
	owner string

	mu sync.Mutex
	// held are the leases, with what is called at the loss; nil: it was called.
	held map[store.Key]func()
	// stop ends the beat; nil while nothing is held.
	stop context.CancelFunc
	done sync.WaitGroup
}

func newLeases(s store.Responses, owner string) *leases {
	return &leases{store: s, owner: owner, held: map[store.Key]func(){}}
}

// add renews a response's lease until drop; lost is called, once, if the response
// is not this process's any more.
func (l *leases) add(k store.Key, lost func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[k] = lost
	if l.stop == nil {
		var ctx context.Context
		ctx, l.stop = context.WithCancel(context.Background())
		l.done.Go(func() { l.beat(ctx) })
	}
}

// drop renews a lease no longer.
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

// renew renews all leases. A store that fails takes none away: the next beat tries
// again.
func (l *leases) renew(ctx context.Context) {
	l.mu.Lock()
	keys := make([]store.Key, 0, len(l.held))
	for k := range l.held {
		keys = append(keys, k)
	}
	l.mu.Unlock()

	// Without the lock: add and drop must not wait for the store. No client waits for this: a lease
	// that is renewed as soon as the store answers again may still be held.
	ctx, cancel := context.WithTimeout(store.Patiently(ctx), storeTimeout)
	defer cancel()
	lost, err := l.store.Renew(ctx, l.owner, keys, leaseTime)
	if err != nil {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range lost {
		if report := l.held[k]; report != nil {
			report()
			l.held[k] = nil
		}
	}
}
