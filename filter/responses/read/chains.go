package read

import (
	"container/list"
	"sync"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// chain is what a stored response and all responses that it continues come to.
type chain struct {
	tenant string
	id     string
	prefix *turn.Prefix
	own    int // how many of the items are the response's own
	bytes  int // of the items in the store
	state  serverState

	// head is what the store had when the chain was read. That of a response that
	// continues none and was written here has no epoch yet: nothing that can be
	// deleted or overwritten comes before it.
	head     store.Head
	newEpoch bool
}

// valid reports whether the chain is what the store has now.
func (c *chain) valid(now store.Head) bool {
	return c.head.Version == now.Version && (c.newEpoch || c.head.Epoch == now.Epoch)
}

// at is the chain with what the store has now as its head.
func (c *chain) at(now store.Head) *chain {
	return &chain{tenant: c.tenant, id: c.id, prefix: c.prefix, own: c.own, bytes: c.bytes, state: c.state, head: now}
}

// Chains remembers, in the memory of the process, what the last responses of
// chains come to. At each turn the store's head of the chain shows whether that is
// still valid, so that nothing else has to be read and rendered again. It is safe
// for concurrent use.
type Chains struct {
	limit int64

	mu     sync.Mutex
	bytes  int64
	chains map[store.Key]*list.Element // of *chain
	recent list.List                   // the chain that was used last in front
}

// NewChains makes a memory of at most limit bytes, in which the chain that was
// unused for longest makes room.
func NewChains(limit int64) *Chains {
	return &Chains{limit: limit, chains: map[store.Key]*list.Element{}}
}

// chainOverhead is roughly what a chain takes beside its prefix.
const chainOverhead = 512

func (c *chain) memory() int64 {
	return chainOverhead + int64(2*(len(c.tenant)+len(c.id))) + c.prefix.Bytes() + c.state.bytes()
}

// get returns the chain that ends with a response; nil if it is not remembered.
func (m *Chains) get(tenant, id string) *chain {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.chains[store.Key{Tenant: tenant, ID: id}]
	if e == nil {
		return nil
	}
	m.recent.MoveToFront(e)
	return e.Value.(*chain)
}

// put remembers a chain in place of the shorter one that it continues: a
// conversation rarely goes back, and the longer chain has the tokens of both.
func (m *Chains) put(c, before *chain) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The longer chain has the tokens of both, and a conversation rarely goes back.
	if before != nil {
		m.remove(store.Key{Tenant: before.tenant, ID: before.id})
	}

	key := store.Key{Tenant: c.tenant, ID: c.id}
	m.remove(key)
	// It would push out all others, and itself.
	if c.memory() > m.limit {
		return
	}

	m.chains[key] = m.recent.PushFront(c)
	m.bytes += c.memory()
	for m.bytes > m.limit {
		last := m.recent.Back().Value.(*chain)
		m.remove(store.Key{Tenant: last.tenant, ID: last.id})
	}
}

func (m *Chains) remove(key store.Key) {
	if e := m.chains[key]; e != nil {
		m.bytes -= m.recent.Remove(e).(*chain).memory()
		delete(m.chains, key)
	}
}

// ownItems is how many items a response adds to a conversation.
func ownItems(r *store.Response) int {
	return len(r.Input) + len(item.WithoutCutCalls(r.Output))
}
