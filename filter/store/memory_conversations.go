package store

import (
	"context"
	"slices"
	"time"
)

// conversation is a stored conversation with its items.
type conversation struct {
	Conversation
	key         key
	items       []Item
	ids         map[string]bool
	lockOwner   string
	lockedUntil time.Time
}

func (c *conversation) tenant() string { return c.key.tenant }

func (c *conversation) inUse(now time.Time) bool { return c.lockedByOther("", now) }

// drop removes an expired or deleted conversation.
func (c *conversation) drop(m *Memory) { delete(m.conversations, c.key) }

// lockedByOther reports whether the conversation is locked by an owner other
// than lockOwner.
func (c *conversation) lockedByOther(lockOwner string, now time.Time) bool {
	return c.lockOwner != "" && c.lockOwner != lockOwner && !now.After(c.lockedUntil)
}

// findConversation returns a conversation that has not expired and its entry,
// or nil.
func (m *Memory) findConversation(tenant, id string) (*conversation, *entry[group, struct{}]) {
	if c := m.conversations[key{tenant, id}]; c != nil {
		if e := m.groups.get(c); e != nil {
			return c, e
		}
	}
	return nil, nil
}

// PutConversation implements [Conversations].
func (m *Memory) PutConversation(_ context.Context, tenant string, c *Conversation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if stored, _ := m.findConversation(tenant, c.ID); stored != nil {
		return ErrConflict
	}
	added := &conversation{Conversation: *c, key: key{tenant, c.ID}, ids: map[string]bool{}}
	if !m.groups.put(added, struct{}{}, added.key.bytes()+int64(len(c.Metadata))+entryOverhead) {
		return ErrTooLarge
	}
	m.conversations[added.key] = added
	return nil
}

// PutMetadata implements [Conversations].
func (m *Memory) PutMetadata(_ context.Context, tenant, id string, metadata []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	c, e := m.findConversation(tenant, id)
	if c == nil {
		return ErrNotFound
	}
	if !m.groups.grow(e, int64(len(metadata)-len(c.Metadata))) {
		return ErrTooLarge
	}

	c.Metadata = metadata
	m.groups.renew(e)
	return nil
}

// Conversation implements [Conversations].
func (m *Memory) Conversation(_ context.Context, tenant, id string) (*Conversation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, _ := m.findConversation(tenant, id)
	if c == nil {
		return nil, ErrNotFound
	}
	// A copy: PutMetadata changes the stored one.
	found := c.Conversation
	return &found, nil
}

// DeleteConversation implements [Conversations].
func (m *Memory) DeleteConversation(_ context.Context, tenant, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, _ := m.findConversation(tenant, id)
	if c == nil {
		return ErrNotFound
	}
	// This drops the conversation too, as the end of every group does.
	m.groups.delete(c)
	return nil
}

// AddItems implements [Conversations].
func (m *Memory) AddItems(_ context.Context, tenant, id, lockOwner string, items []Item) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	c, e := m.findConversation(tenant, id)
	if c == nil {
		return ErrNotFound
	}

	// All or none: ids are compared with those that are stored, and with one another.
	added := make(map[string]bool, len(items))
	for _, i := range items {
		if c.ids[i.ID] || added[i.ID] {
			return ErrConflict
		}
		added[i.ID] = true
	}

	if lockOwner != "" && c.lockOwner != lockOwner || c.lockedByOther(lockOwner, m.now()) {
		return ErrConflict
	}
	if !m.groups.grow(e, int64(itemBytes(items))) {
		return ErrTooLarge
	}

	// A client's items, without an owner, end an expired lock: its owner must not renew it.
	c.lockOwner = lockOwner
	for id := range added {
		c.ids[id] = true
	}
	c.items = append(c.items, items...)
	m.groups.renew(e)
	return nil
}

func (m *Memory) readPage(tenant, id string, p Page) ([]Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	c, e := m.findConversation(tenant, id)
	if c == nil {
		return nil, ErrNotFound
	}

	// A copy: callers keep it while items are added and deleted.
	m.groups.renew(e)
	items := slices.Clone(c.items)
	if p.Descending {
		slices.Reverse(items)
	}
	if p.After != "" {
		at := slices.IndexFunc(items, func(i Item) bool { return i.ID == p.After })
		if at < 0 {
			return nil, ErrNotFound
		}
		items = items[at+1:]
	}
	if p.Limit > 0 {
		items = items[:min(p.Limit, len(items))]
	}

	return items, nil
}

// ConversationSize implements [Conversations].
func (m *Memory) ConversationSize(_ context.Context, tenant, id string) (Size, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, _ := m.findConversation(tenant, id)
	if c == nil {
		return Size{}, ErrNotFound
	}
	size := Size{Items: len(c.items)}
	for i := range c.items {
		size.Bytes += int64(len(c.items[i].JSON))
	}
	return size, nil
}

func (m *Memory) readItem(tenant, id, item string) (Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, _ := m.findConversation(tenant, id)
	if c == nil || !c.ids[item] {
		return Item{}, ErrNotFound
	}
	return c.items[c.index(item)], nil
}

// DeleteItem implements [Conversations].
func (m *Memory) DeleteItem(_ context.Context, tenant, id, item string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, e := m.findConversation(tenant, id)
	if c == nil || !c.ids[item] {
		return ErrNotFound
	}
	at := c.index(item)
	m.groups.grow(e, -int64(itemBytes(c.items[at:at+1])))
	c.items = slices.Delete(c.items, at, at+1)
	delete(c.ids, item)
	return nil
}

func (c *conversation) index(item string) int {
	return slices.IndexFunc(c.items, func(i Item) bool { return i.ID == item })
}

// Lock implements [Conversations].
func (m *Memory) Lock(_ context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	c, e := m.findConversation(tenant, id)
	switch {
	case c == nil:
		return ErrNotFound
	case c.lockedByOther(lockOwner, m.now()):
		return ErrConflict
	case lease <= 0:
		if c.lockOwner == lockOwner {
			c.lockOwner = ""
		}
	default:
		c.lockOwner, c.lockedUntil = lockOwner, m.now().Add(lease)
		m.groups.renew(e)
	}

	return nil
}

// RenewLock implements [Conversations].
func (m *Memory) RenewLock(_ context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	c, e := m.findConversation(tenant, id)
	switch {
	case c == nil:
		return ErrNotFound
	case c.lockOwner != lockOwner:
		return ErrConflict
	}

	c.lockedUntil = m.now().Add(lease)
	m.groups.renew(e)
	return nil
}
