package store

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// bell wakes those of this process who wait for news of something.
type bell[K comparable] struct {
	mu      sync.Mutex
	waiting map[K]map[chan struct{}]bool
}

// listen gives what tells of news from now until done is called.
func (b *bell[K]) listen(k K) (news <-chan struct{}, done func()) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[K]map[chan struct{}]bool{}
	}
	if b.waiting[k] == nil {
		b.waiting[k] = map[chan struct{}]bool{}
	}
	b.waiting[k][c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiting[k], c)
		if len(b.waiting[k]) == 0 {
			delete(b.waiting, k)
		}
	}
}

// ring tells of news.
func (b *bell[K]) ring(k K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.waiting[k] {
		select {
		case c <- struct{}{}:
		default: // has news already
		}
	}
}

// awaited is all that is waited for.
func (b *bell[K]) awaited() []K {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.waiting))
}

// follow reads batches when the bell rings for k, until there are some, at most
// for the time of wait.
func (b *bell[K]) follow(ctx context.Context, k K, wait time.Duration, read func() ([]Batch, error)) ([]Batch, error) {
	if wait <= 0 {
		return read()
	}
	news, done := b.listen(k)
	defer done()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		batches, err := read()
		if err != nil || len(batches) > 0 {
			return batches, err
		}
		select {
		case <-news:
		case <-deadline.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
