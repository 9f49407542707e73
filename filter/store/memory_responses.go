package store

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// chain is the responses that continue one another.
type chain struct {
	epoch   int64
	members map[*response]bool
}

// response is a stored response with its events.
type response struct {
	Response
	key    key
	chain  *chain
	bytes  int64
	leased time.Time // until when
	events []Batch
}

// newEpoch makes an epoch that no chain has had: it is random, so that it needs
// no memory of those that are gone.
func newEpoch() int64 { return rand.Int64() }

// find finds a response whose chain has not expired.
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
	put := &response{Response: *r, key: k, bytes: k.bytes() + r.bytes(), leased: m.now().Add(r.Lease)}
	put.Lease, put.Lapsed = 0, false
	if stored == nil {
		return m.add(put)
	}
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

// add keeps a response that is new: in the chain of the one that it continues
// or in one of its own.
func (m *Memory) add(r *response) error {
	previous, e := m.find(key{r.key.tenant, r.Previous})
	if previous == nil {
		r.chain = &chain{epoch: newEpoch(), members: map[*response]bool{}}
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

// link makes a response known.
func (m *Memory) link(r *response) {
	m.responses[r.key] = r
	r.chain.members[r] = true
	for id := range r.itemIDs() {
		k := key{r.key.tenant, id}
		m.holders[k] = append(m.holders[k], r)
	}
}

// unlink makes a response unknown.
func (m *Memory) unlink(r *response) {
	delete(m.responses, r.key)
	delete(r.chain.members, r)
	for id := range r.itemIDs() {
		k := key{r.key.tenant, id}
		left := slices.DeleteFunc(m.holders[k], func(held *response) bool { return held == r })
		if len(left) == 0 {
			delete(m.holders, k)
		} else {
			m.holders[k] = left
		}
	}
}

// forget forgets the responses of a chain that goes.
func (c *chain) forget(m *Memory) {
	for r := range c.members {
		m.unlink(r)
	}
}

// read is a response as it is now.
func (m *Memory) read(r *response) *Response {
	read := r.Response
	read.Lapsed = read.Live && m.now().After(r.leased)
	return &read
}

// Get implements [Responses].
func (m *Memory) Get(_ context.Context, tenant, id string) (*Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, _ := m.find(key{tenant, id})
	if r == nil {
		return nil, ErrNotFound
	}
	return m.read(r), nil
}

// Chain implements [Responses].
func (m *Memory) Chain(_ context.Context, tenant, id string) ([]*Response, error) {
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
	return Head{Version: r.Version, Epoch: r.chain.epoch}, nil
}

// Items implements [Responses].
func (m *Memory) Items(_ context.Context, tenant string, ids []string) (map[string]Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make(map[string]Item, len(ids))
	for _, id := range ids {
		holders := m.holders[key{tenant, id}]
		for len(holders) > 0 {
			r, _ := m.find(holders[len(holders)-1].key)
			if r != nil {
				found[id], _ = r.item(id)
				break
			}
			holders = m.holders[key{tenant, id}] // without those that have just expired
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
		r.leased = m.now().Add(lease)
		m.groups.renew(e)
	}
	return lost, nil
}

// bytes is how much memory a response takes, roughly.
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

// itemIDs is the ids of a response's items.
func (r *Response) itemIDs() map[string]bool {
	ids := make(map[string]bool, len(r.Input)+len(r.Output))
	for _, items := range [][]Item{r.Input, r.Output} {
		for _, i := range items {
			ids[i.ID] = true
		}
	}
	return ids
}

// item finds an item of a response.
func (r *Response) item(id string) (Item, bool) {
	for _, items := range [][]Item{r.Output, r.Input} {
		for _, i := range items {
			if i.ID == id {
				return i, true
			}
		}
	}
	return Item{}, false
}
