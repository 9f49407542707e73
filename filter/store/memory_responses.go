package store

import (
	"context"
	"slices"
	"sync"
	"time"
)

// MemoryResponses keeps responses in the memory of the process, bounded by
// bytes and age as [Memory] is. It is a [Responses].
type MemoryResponses struct {
	mu        sync.Mutex
	responses *lru[*Response]
	holders   map[key][]*Response // by an item's id, the responses that have it, the newest last
}

// NewMemoryResponses makes a store of at most limit bytes, whose responses are
// forgotten ttl after they were last written or continued. With limit 0 it
// keeps nothing.
func NewMemoryResponses(limit int64, ttl time.Duration, now func() time.Time) *MemoryResponses {
	m := &MemoryResponses{responses: newLRU[*Response](limit, ttl, now), holders: map[key][]*Response{}}
	m.responses.removed = m.forget
	return m
}

// Put keeps a response.
func (m *MemoryResponses) Put(_ context.Context, tenant string, r *Response) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.responses.put(key{tenant, r.ID}, r, r.bytes()) {
		return ErrTooLarge
	}
	for id := range r.itemIDs() {
		k := key{tenant, id}
		m.holders[k] = append(m.holders[k], r)
	}
	return nil
}

// Get gives a response.
func (m *MemoryResponses) Get(_ context.Context, tenant, id string) (*Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.responses.get(key{tenant, id}); e != nil {
		return e.value, nil
	}
	return nil, ErrNotFound
}

// Chain gives a response and all that it continues.
func (m *MemoryResponses) Chain(_ context.Context, tenant, id string) ([]*Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var chain []*Response
	for seen := map[string]bool{}; id != "" && !seen[id]; {
		seen[id] = true
		e := m.responses.get(key{tenant, id})
		if e == nil {
			return nil, ErrNotFound
		}
		m.responses.renew(e)
		chain = append(chain, e.value)
		id = e.value.Previous
	}
	slices.Reverse(chain)
	return chain, nil
}

// Items gives the items of these ids.
func (m *MemoryResponses) Items(_ context.Context, tenant string, ids []string) (map[string]Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make(map[string]Item, len(ids))
	for _, id := range ids {
		for _, r := range slices.Backward(slices.Clone(m.holders[key{tenant, id}])) {
			if m.responses.get(key{tenant, r.ID}) != nil {
				found[id], _ = r.item(id)
				break
			}
		}
	}
	return found, nil
}

// Delete forgets a response.
func (m *MemoryResponses) Delete(_ context.Context, tenant, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{tenant, id}
	if m.responses.get(k) == nil {
		return ErrNotFound
	}
	m.responses.delete(k)
	return nil
}

// Bytes is how much memory the responses take, roughly.
func (m *MemoryResponses) Bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.responses.bytes
}

// forget takes the items of a response that goes out of the index.
func (m *MemoryResponses) forget(e *entry[*Response]) {
	for id := range e.value.itemIDs() {
		k := key{e.tenant, id}
		left := slices.DeleteFunc(m.holders[k], func(r *Response) bool { return r == e.value })
		if len(left) == 0 {
			delete(m.holders, k)
		} else {
			m.holders[k] = left
		}
	}
}

// itemIDs is the ids of a response's items.
func (r *Response) itemIDs() map[string]bool {
	ids := make(map[string]bool, len(r.Input)+len(r.Output))
	for _, list := range [][]Item{r.Input, r.Output} {
		for _, i := range list {
			ids[i.ID] = true
		}
	}
	return ids
}

// item finds an item of a response.
func (r *Response) item(id string) (Item, bool) {
	for _, list := range [][]Item{r.Output, r.Input} {
		for _, i := range list {
			if i.ID == id {
				return i, true
			}
		}
	}
	return Item{}, false
}
