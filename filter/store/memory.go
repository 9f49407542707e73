package store

import (
	"context"
	"sync"
	"time"
)

// maxClaimBytes bounds the claims, whatever there may be of all else.
const maxClaimBytes = 64 << 20

// Memory keeps everything in the memory of the process, bounded by bytes and
// age: the chain, conversation, text or claim that was used longest ago makes
// room. It is a [Store].
type Memory struct {
	mu     sync.Mutex
	now    func() time.Time
	texts  *lru[key, string]
	claims *lru[key, string]

	groups        *lru[group, struct{}] // of chains and conversations
	responses     map[key]*response
	holders       map[key][]*response // by an item's id, the responses that have it, the one written last in the end
	conversations map[key]*conversation
	bell          bell[key]
}

var _ Store = (*Memory)(nil)

// group is what is forgotten as a whole: a chain or a conversation.
type group interface{ forget(m *Memory) }

// NewMemory makes a store in the memory of the process. Of what has 0 bytes it
// keeps nothing; claims it keeps always.
func NewMemory(o Options) *Memory {
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Memory{
		now:           o.Now,
		texts:         newLRU[key, string](o.TextBytes, o.TextTTL, o.Now),
		claims:        newLRU[key, string](maxClaimBytes, o.ResponseTTL, o.Now),
		groups:        newLRU[group, struct{}](o.ResponseBytes, o.ResponseTTL, o.Now),
		responses:     map[key]*response{},
		holders:       map[key][]*response{},
		conversations: map[key]*conversation{},
	}
	m.groups.removed = func(e *entry[group, struct{}]) { e.key.forget(m) }
	return m
}

// Close does nothing: what is stored goes with the store.
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

// PutTexts implements [Texts]. A text that is larger than the whole store is
// not kept.
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

// FirstText implements [Texts].
func (m *Memory) FirstText(_ context.Context, tenant, name, text string) (string, error) {
	return m.first(m.texts, key{tenant, name}, text), nil
}

func (m *Memory) first(texts *lru[key, string], k key, text string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := texts.get(k); e != nil {
		texts.renew(e)
		return e.value
	}
	putText(texts, k, text)
	return text
}

// Claim implements [Claims].
func (m *Memory) Claim(_ context.Context, tenant, name, text string) (string, error) {
	return m.first(m.claims, key{tenant, name}, text), nil
}

// Settle implements [Claims]. Where the text is larger than all claims may be, the
// claim stays as it was.
func (m *Memory) Settle(_ context.Context, tenant, name, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := key{tenant, name}
	if textBytes(k, text) > m.claims.limit {
		return ErrTooLarge
	}
	putText(m.claims, k, text)
	return nil
}
