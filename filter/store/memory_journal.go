package store

import (
	"context"
	"sort"
	"time"
)

// Append implements [Journal].
func (m *Memory) Append(_ context.Context, tenant, id, owner string, b Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	r, e := m.find(key{tenant, id})
	if r == nil {
		return ErrNotFound
	}
	if r.Live && r.Owner != owner || !r.Live && !b.End {
		return ErrConflict
	}
	// A batch that is stored twice does not follow itself.
	if n := len(r.events); n > 0 && (r.events[n-1].End || b.First <= r.events[n-1].Last) {
		return ErrConflict
	}
	if !m.groups.grow(e, b.bytes()) {
		return ErrTooLarge
	}

	r.bytes += b.bytes()
	r.events = append(r.events, b)
	m.journals.notify(r.key)
	return nil
}

// Events implements [Journal].
func (m *Memory) Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]Batch, error) {
	k := key{tenant, id}
	return handOut(ctx, batchBytes)(
		m.journals.follow(ctx, k, wait, func() ([]Batch, error) { return m.eventsAfter(k, after), nil }),
	)
}

func (m *Memory) eventsAfter(k key, after int) []Batch {
	m.mu.Lock()
	defer m.mu.Unlock()

	r, _ := m.find(k)
	if r == nil {
		return nil
	}

	at := sort.Search(len(r.events), func(i int) bool { return r.events[i].Last > after })
	end, size := at, 0
	for end < len(r.events) {
		if size += len(r.events[end].SSE); size > eventsBytes && end > at {
			break
		}
		end++
	}

	// Without spare capacity, so that an append of the caller does not write into the journal.
	return r.events[at:end:end]
}

// bytes returns a rough estimate of the memory of a batch.
func (b *Batch) bytes() int64 { return int64(len(b.SSE)) + 64 }
