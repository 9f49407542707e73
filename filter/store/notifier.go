package store

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// notifier wakes goroutines of this process that wait for new data of a key.
type notifier[K comparable] struct {
	mu      sync.Mutex
	waiting map[K]map[chan struct{}]bool
}

// subscribe returns a channel that receives a value for each notification about
// k, until the caller calls cancel. Notifications that follow each other
// quickly may be merged.
func (n *notifier[K]) subscribe(k K) (notified <-chan struct{}, cancel func()) {
	// One notification may wait: a second one says nothing new, and the caller of notify must not wait.
	c := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.waiting == nil {
		n.waiting = map[K]map[chan struct{}]bool{}
	}
	if n.waiting[k] == nil {
		n.waiting[k] = map[chan struct{}]bool{}
	}

	n.waiting[k][c] = true
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.waiting[k], c)
		// Clients name the keys: without this the map would keep each of them.
		if len(n.waiting[k]) == 0 {
			delete(n.waiting, k)
		}
	}
}

// notify wakes the subscribers of k.
func (n *notifier[K]) notify(k K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.waiting[k] {
		select {
		case c <- struct{}{}:
		default:
			// A notification is pending already.
		}
	}
}

// subscribed returns the keys that have subscribers.
func (n *notifier[K]) subscribed() []K {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.waiting))
}

// follow calls read until it returns batches, at first and after each
// notification about k, at most for the time wait.
func (n *notifier[K]) follow(
	ctx context.Context, k K, wait time.Duration, read func() ([]Batch, error),
) ([]Batch, error) {
	if wait <= 0 {
		return read()
	}

	notified, cancel := n.subscribe(k)
	defer cancel()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()

	// The subscription comes before the first read, so that no event falls between the two.
	for {
		batches, err := read()
		if err != nil || len(batches) > 0 {
			return batches, err
		}
		select {
		case <-notified:
		case <-deadline.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
