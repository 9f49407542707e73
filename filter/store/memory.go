package store

import (
	"context"
	"sync"
	"time"
)

// maxApprovalBytes is the most bytes of approval records. It is separate, so
// that other data cannot displace them.
const maxApprovalBytes = 64 << 20

// Memory is a [Store] in the memory of the process with limits on bytes and
// age. The least recently used chains, conversations, texts and approval
// records are dropped first.
type Memory struct {
	mu        sync.Mutex
	now       func() time.Time
	texts     *lru[key, string]
	approvals *lru[key, string]

	groups        *lru[group, struct{}] // chains and conversations
	responses     map[key]*response
	itemResponses map[key][]*response // by item id: the responses with the item, in the order of writing
	conversations map[key]*conversation
	journals      notifier[key]
}

var _ Store = (*Memory)(nil)

// group is a unit of expiry: a chain or a conversation.
type group interface{ drop(m *Memory) }

// NewMemory returns an empty store. With a limit of 0 bytes it keeps no data of
// that kind; approval records have their own limit.
func NewMemory(o Options) *Memory {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Memory{
		now:           o.Now,
		texts:         newLRU[key, string](o.TextBytes, o.TextTTL, o.Now),
		approvals:     newLRU[key, string](maxApprovalBytes, o.ResponseTTL, o.Now),
		groups:        newLRU[group, struct{}](o.ResponseBytes, o.ResponseTTL, o.Now),
		responses:     map[key]*response{},
		itemResponses: map[key][]*response{},
		conversations: map[key]*conversation{},
	}
	m.groups.removed = func(e *entry[group, struct{}]) { e.key.drop(m) }
	return m
}

// Close does nothing. The data is freed with the store.
func (m *Memory) Close() error { return nil }

// Texts implements [Texts].
func (m *Memory) Texts(_ context.Context, tenant string, names []string) (map[string]string, error) {
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

func putText(texts *lru[key, string], k key, text string) {
	texts.put(k, text, textBytes(k, text))
}

func textBytes(k key, text string) int64 { return k.bytes() + int64(len(text)) + entryOverhead }

// PutTextIfAbsent implements [Texts].
func (m *Memory) PutTextIfAbsent(_ context.Context, tenant, name, text string) (string, error) {
	return m.putIfAbsent(m.texts, key{tenant, name}, text), nil
}

func (m *Memory) putIfAbsent(texts *lru[key, string], k key, text string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := texts.get(k); e != nil {
		texts.renew(e)
		return e.value
	}
	putText(texts, k, text)
	return text
}

// BeginApproval implements [Approvals].
func (m *Memory) BeginApproval(_ context.Context, tenant, name, text string) (string, error) {
	return m.putIfAbsent(m.approvals, key{tenant, name}, text), nil
}

// CompleteApproval implements [Approvals]. If the text exceeds the limit of all
// approval records, the stored text does not change.
func (m *Memory) CompleteApproval(_ context.Context, tenant, name, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{tenant, name}
	if textBytes(k, text) > m.approvals.limit {
		return ErrTooLarge
	}
	putText(m.approvals, k, text)
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
