package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// chain is a set of responses that continue one another.
type chain struct {
	of      string // tenant
	epoch   int64
	members map[*response]bool
}

// response is a stored response with its events.
type response struct {
	Response
	key         key
	chain       *chain
	bytes       int64
	leasedUntil time.Time
	events      []Batch
}

// itemOf is an item of a response.
type itemOf struct {
	response *response
	item     Item
}

// newEpoch returns an epoch that no chain has had. It is random, so that the
// epochs of deleted chains need not be kept.
func newEpoch() int64 { return rand.Int64() }

// find returns a response whose chain has not expired and the chain's entry, or
// nil.
func (m *Memory) find(k key) (*response, *entry[group, struct{}]) {
	if r := m.responses[k]; r != nil {
		if e := m.groups.get(r.chain); e != nil {
			return r, e
		}
	}
	return nil, nil
}

// Put implements [Responses].
func (m *Memory) Put(_ context.Context, tenant string, r *Response) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	k := key{tenant, r.ID}
	stored, e := m.find(k)
	if stored == nil && r.Version != 1 || stored != nil && r.Version != stored.Version+1 {
		return ErrConflict
	}

	put := &response{Response: *r, key: k, bytes: k.bytes() + r.bytes(), leasedUntil: m.now().Add(r.Lease)}
	// What is read has no duration, and whether the lease has lapsed depends on when it is read.
	put.Lease, put.Lapsed = 0, false
	if stored == nil {
		return m.add(put)
	}

	// Its events stay: followers read them while the end is written.
	put.chain, put.events = stored.chain, stored.events
	for _, b := range put.events {
		put.bytes += b.bytes()
	}

	if !m.groups.grow(e, put.bytes-stored.bytes) {
		return ErrTooLarge
	}

	m.unlink(stored)
	m.link(put)
	put.chain.epoch++
	m.groups.renew(e)
	return nil
}

// add stores a new response, in the chain of the response that it continues or
// in a new one.
func (m *Memory) add(r *response) error {
	previous, e := m.find(key{r.key.tenant, r.Previous})

	// The room is taken before the response is linked: another entry may have to go for it, but
	// not the chain that was just used.
	if previous == nil {
		r.chain = &chain{of: r.key.tenant, epoch: newEpoch(), members: map[*response]bool{}}
		if !m.groups.put(r.chain, struct{}{}, r.bytes) {
			return ErrTooLarge
		}
	} else {
		r.chain = previous.chain
		if !m.groups.grow(e, r.bytes) {
			return ErrTooLarge
		}
		m.groups.renew(e)
	}
	m.link(r)
	return nil
}

// link adds a response to the indexes.
func (m *Memory) link(r *response) {
	m.responses[r.key] = r
	r.chain.members[r] = true
	for id, item := range r.itemsByID() {
		k := key{r.key.tenant, id}
		m.items[k] = append(m.items[k], itemOf{r, item})
	}
}

// unlink removes a response from the indexes.
func (m *Memory) unlink(r *response) {
	delete(m.responses, r.key)
	delete(r.chain.members, r)
	for id := range r.itemsByID() {
		k := key{r.key.tenant, id}
		left := slices.DeleteFunc(m.items[k], func(other itemOf) bool { return other.response == r })
		if len(left) == 0 {
			delete(m.items, k)
		} else {
			m.items[k] = left
		}
	}
}

func (c *chain) tenant() string { return c.of }

func (c *chain) inUse(now time.Time) bool {
	for r := range c.members {
		if r.Live && !now.After(r.leasedUntil) {
			return true
		}
	}
	return false
}

// drop removes the responses of an expired or deleted chain.
func (c *chain) drop(m *Memory) {
	for r := range c.members {
		m.unlink(r)
	}
}

// read returns a copy of a response with its current state.
func (m *Memory) read(r *response) *Response {
	// The lease is compared with the clock at each read: nothing waits for it to expire.
	read := r.Response
	read.Lapsed = read.Live && m.now().After(r.leasedUntil)
	return &read
}

func (m *Memory) readResponse(tenant, id string) (*Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, _ := m.find(key{tenant, id})
	if r == nil {
		return nil, ErrNotFound
	}
	return m.read(r), nil
}

func (m *Memory) readChain(tenant, id string) ([]*Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	r, e := m.find(key{tenant, id})
	if r == nil {
		return nil, ErrNotFound
	}

	m.groups.renew(e)
	var found []*Response
	for {
		found = append(found, m.read(r))
		if r.Previous == "" {
			slices.Reverse(found)
			return found, nil
		}
		previous := m.responses[key{tenant, r.Previous}]
		// A response may have been deleted and made anew, in another chain or as its own successor:
		// the walk ends at the latest when it has seen as many as there are.
		if previous == nil || previous.chain != r.chain || len(found) > len(r.chain.members) {
			return nil, ErrNotFound
		}
		r = previous
	}
}

// Head implements [Responses].
func (m *Memory) Head(_ context.Context, tenant, id string) (Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, e := m.find(key{tenant, id})
	if r == nil {
		return Head{}, ErrNotFound
	}
	m.groups.renew(e)
	return Head{Version: r.Version, Epoch: r.chain.epoch, Live: r.Live && !m.now().After(r.leasedUntil)}, nil
}

func (m *Memory) readItems(tenant string, ids []string) (map[string]Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	found := make(map[string]Item, len(ids))
	for _, id := range ids {
		candidates := m.items[key{tenant, id}]
		for len(candidates) > 0 {
			last := candidates[len(candidates)-1]
			if r, _ := m.find(last.response.key); r != nil {
				found[id] = last.item
				break
			}
			// The look-up has removed the expired ones.
			candidates = m.items[key{tenant, id}]
		}
	}

	return found, nil
}

// Delete implements [Responses].
func (m *Memory) Delete(_ context.Context, tenant, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	r, e := m.find(key{tenant, id})
	if r == nil {
		return ErrNotFound
	}

	// An empty chain would keep its place among the groups until it expires.
	m.unlink(r)
	if len(r.chain.members) == 0 {
		m.groups.delete(r.chain)
		return nil
	}

	m.groups.grow(e, -r.bytes)
	r.chain.epoch++
	return nil
}

// Renew implements [Responses].
func (m *Memory) Renew(_ context.Context, owner string, live []Key, lease time.Duration) (lost []Key, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for _, k := range live {
		r, e := m.find(key{k.Tenant, k.ID})
		if r == nil || !r.Live || r.Owner != owner {
			lost = append(lost, k)
			continue
		}
		r.leasedUntil = m.now().Add(lease)
		m.groups.renew(e)
	}

	return lost, nil
}

// bytes returns a rough estimate of the memory of a response.
func (r *Response) bytes() int64 {
	n := len(r.ID) + len(r.Previous) + len(r.Conversation) + len(r.Owner) + len(r.Object) + entryOverhead
	for _, items := range [][]Item{r.Input, r.Output} {
		n += itemBytes(items)
	}
	return int64(n)
}

func itemBytes(items []Item) (n int) {
	for _, i := range items {
		n += len(i.ID) + len(i.JSON) + entryOverhead
	}
	return n
}

// itemsByID returns the items of a response. Of several with one id it has the last.
func (r *Response) itemsByID() map[string]Item {
	items := make(map[string]Item, len(r.Input)+len(r.Output))
	for _, list := range [][]Item{r.Input, r.Output} {
		for _, i := range list {
			items[i.ID] = i
		}
	}
	return items
}
