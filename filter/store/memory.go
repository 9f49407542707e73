// Package store keeps what outlives a request: responses with their items, the
// reasoning of unfinished tool turns, and the dates of conversations.
package store

import (
	"sync"
	"time"
)

// Memory keeps texts in the memory of the process, bounded by bytes and age:
// what was used longest ago makes room. Tenants do not see each other's texts.
// It is safe for concurrent use.
type Memory struct {
	mu    sync.Mutex
	texts *lru[string]
}

// NewMemory makes a store of at most limit bytes, whose texts are forgotten ttl
// after they were written. With limit 0 it keeps nothing.
func NewMemory(limit int64, ttl time.Duration, now func() time.Time) *Memory {
	return &Memory{texts: newLRU[string](limit, ttl, now)}
}

// Get gives the text kept under name.
func (m *Memory) Get(tenant, name string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.texts.get(key{tenant, name}); e != nil {
		return e.value, true
	}
	return "", false
}

// Put keeps text under name, in place of what was there. A text that is larger
// than the whole store is not kept.
func (m *Memory) Put(tenant, name, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.texts.put(key{tenant, name}, text, int64(len(text)))
}

// First keeps text under name unless there is one, and gives the one that is
// kept. Being asked for keeps it alive.
func (m *Memory) First(tenant, name, text string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.texts.get(key{tenant, name}); e != nil {
		m.texts.renew(e)
		return e.value
	}
	m.texts.put(key{tenant, name}, text, int64(len(text)))
	return text
}

// Bytes is how much memory the texts take, roughly.
func (m *Memory) Bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.texts.bytes
}
