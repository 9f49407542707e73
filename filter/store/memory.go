package store

import (
	"context"
	"sync"
	"time"
)

// maxApprovalBytes is the most bytes of approvals. It is separate, so
// that other data cannot displace them.
const maxApprovalBytes = 64 << 20

// Memory is a [Store] in the memory of the process with limits on bytes and
// age. The least recently used chains, conversations, texts and approvals are
// dropped first, of the tenant that has the most bytes of them.
//
// It is large because it implements all methods of Store.
type Memory struct {
	mu        sync.Mutex
	now       func() time.Time
	texts     *lru[key, string]
	approvals *lru[key, string]
	counts    counts

	// groups are the chains and conversations: what expires together.
	groups    *lru[group, struct{}]
	responses map[key]*response
	// items are, by item id, in the responses with the item, in the order of writing.
	items         map[key][]itemOf
	conversations map[key]*conversation
	journals      notifier[key]
}

var _ Store = (*Memory)(nil)

// group is a unit of expiry: a chain or a conversation.
type group interface {
	tenant() string
	// inUse reports whether a response is being made in it.
	inUse(now time.Time) bool
	drop(m *Memory)
}

// NewMemory returns an empty store. With a limit of 0 bytes it keeps no data of
// that kind; approvals have their own limit.
func NewMemory(o Options) *Memory {
	if o.Now == nil {
		o.Now = time.Now
	}

	m := &Memory{
		now:           o.Now,
		texts:         newLRU[key, string](o.TextBytes, o.TextTTL, o.Now, keyTenant),
		approvals:     newLRU[key, string](maxApprovalBytes, o.ResponseTTL, o.Now, keyTenant),
		groups:        newLRU[group, struct{}](o.ResponseBytes, o.ResponseTTL, o.Now, group.tenant),
		responses:     map[key]*response{},
		items:         map[key][]itemOf{},
		conversations: map[key]*conversation{},
		counts:        counts{dropped: o.CountDropped},
	}

	m.groups.inUse = func(g group) bool { return g.inUse(m.now()) }
	m.groups.removed = func(e *entry[group, struct{}]) { e.key.drop(m) }
	return m
}

// Close does nothing. The data is freed with the store.
func (m *Memory) Close() error { return nil }

func (m *Memory) readTexts(tenant string, names []string) (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	texts := make(map[string]string, len(names))
	for _, name := range names {
		if e := m.texts.get(key{tenant, name}); e != nil {
			texts[name] = e.value
		}
	}
	return texts, nil
}

// PutTexts implements [Texts]. It drops texts that exceed the limit of the
// store.
func (m *Memory) PutTexts(_ context.Context, tenant string, texts map[string]string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, text := range texts {
		putText(m.texts, key{tenant, name}, text)
	}
	return nil
}

// putText reports whether it stored the text.
func putText(texts *lru[key, string], k key, text string) bool {
	return texts.put(k, text, textBytes(k, text))
}

func keyTenant(k key) string { return k.tenant }

func textBytes(k key, text string) int64 { return k.bytes() + int64(len(text)) + entryOverhead }

// PutTextIfAbsent implements [Texts].
func (m *Memory) PutTextIfAbsent(_ context.Context, tenant, name, text string) (string, error) {
	kept, _ := m.putIfAbsent(m.texts, key{tenant, name}, text)
	return kept, nil
}

// putIfAbsent returns the stored text, and whether there is one.
func (m *Memory) putIfAbsent(texts *lru[key, string], k key, text string) (kept string, stored bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := texts.get(k); e != nil {
		texts.renew(e)
		return e.value, true
	}
	return text, putText(texts, k, text)
}

// BeginApproval implements [Approvals]. If there is no room for the approval, it returns
// [ErrTooLarge].
func (m *Memory) BeginApproval(_ context.Context, tenant, name, text string) (string, error) {
	kept, stored := m.putIfAbsent(m.approvals, key{tenant, name}, text)
	if !stored {
		return "", ErrTooLarge
	}
	return kept, nil
}

// CompleteApproval implements [Approvals]. If there is no room for the text, the stored
// text does not change.
func (m *Memory) CompleteApproval(_ context.Context, tenant, name, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	k := key{tenant, name}
	e := m.approvals.get(k)
	if e == nil && putText(m.approvals, k, text) {
		return nil
	}
	// The approval stays begun where its result has no room: the call must not be made again.
	if e == nil || !m.approvals.grow(e, int64(len(text)-len(e.value))) {
		return ErrTooLarge
	}

	e.value = text
	m.approvals.renew(e)
	return nil
}

// WithdrawApproval implements [Approvals].
func (m *Memory) WithdrawApproval(_ context.Context, tenant, name, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{tenant, name}
	if e := m.approvals.get(k); e != nil && e.value == text {
		m.approvals.delete(k)
	}
	return nil
}
