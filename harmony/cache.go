package harmony

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// cacheShards is the number of parts of a cache, which have a lock each.
const cacheShards = 16

// entryOverhead is the memory of an entry in addition to its key and tokens:
// the struct, its map slot, weak pointers and unused capacity, in bytes.
const entryOverhead = 240

// messageCache caches the tokens of messages, by content, within a memory
// limit. Keys are compared in full, so that a hash collision cannot return
// another message's tokens.
//
// Each shard has two generations. New and used entries are put into the young
// one. When that is full, it becomes the old one, and the previous old one is
// dropped. This approximates least-recently-used without ordering every access.
//
// An entry refers to the one that followed it in the last conversation. So the
// messages of a conversation that is rendered again are found one by the other:
// they are compared, but not hashed, and no lock is taken.
type messageCache struct {
	seed   maphash.Seed
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu         sync.Mutex
	young, old map[uint64]*cacheEntry
	youngBytes int
	limit      int           // of one generation, in bytes
	generation atomic.Uint64 // number of the young one
}

// messageKey contains everything that the tokens of a message depend on. A text
// at the end of the message, which is most of most messages, is separate, so
// that it need not be copied for a lookup.
type messageKey struct {
	head []byte
	text string
}

// matches reports whether the key, in one string, is kept. A head determines
// whether a text follows it, so different keys are different strings.
func (k messageKey) matches(kept string) bool {
	n := len(k.head)
	return len(kept) == n+len(k.text) && kept[:n] == string(k.head) && kept[n:] == k.text
}

// cacheEntry is an entry of the cache. Key and tokens are immutable.
type cacheEntry struct {
	key        string // head and text
	tokens     []Token
	hash       uint64
	generation atomic.Uint64 // in which it was put last
	// next is the entry of the message that followed. It does not keep an entry
	// in memory that the cache has dropped.
	next atomic.Pointer[weak.Pointer[cacheEntry]]
}

// follow notes that next follows e. Both may be nil.
func (e *cacheEntry) follow(next *cacheEntry) {
	if e == nil || next == nil {
		return
	}
	if p := e.next.Load(); p == nil || p.Value() != next {
		p := weak.Make(next)
		e.next.Store(&p)
	}
}

func (e *cacheEntry) bytes() int {
	return len(e.key) + 4*cap(e.tokens) + entryOverhead
}

func newMessageCache(limit int) *messageCache {
	c := &messageCache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].limit = limit / (2 * cacheShards)
		c.shards[i].young = make(map[uint64]*cacheEntry)
	}
	return c
}

func (c *messageCache) hash(k messageKey) uint64 {
	return maphash.Bytes(c.seed, k.head)*0x9E3779B97F4A7C15 + maphash.String(c.seed, k.text)
}

// after returns the entry that followed last, if it has the key k and need not
// be moved to the young generation. Otherwise, and if last is nil, it returns nil.
func (c *messageCache) after(last *cacheEntry, k messageKey) *cacheEntry {
	if last == nil {
		return nil
	}
	p := last.next.Load()
	if p == nil {
		return nil
	}
	e := p.Value()
	if e == nil || e.generation.Load() != c.shards[e.hash%cacheShards].generation.Load() || !k.matches(e.key) {
		return nil
	}
	return e
}

// find returns the entry with the key k, or nil.
func (c *messageCache) find(hash uint64, k messageKey) *cacheEntry {
	if e := c.shards[hash%cacheShards].get(hash); e != nil && k.matches(e.key) {
		return e
	}
	return nil
}

// accepts reports whether an entry with this many bytes of text may fit into a
// generation.
func (c *messageCache) accepts(size int) bool {
	return size+entryOverhead <= c.shards[0].limit
}

// add caches a copy of the tokens and returns the entry; nil if it would be
// larger than a generation.
func (c *messageCache) add(hash uint64, k messageKey, tokens []Token) *cacheEntry {
	shard := &c.shards[hash%cacheShards]
	if len(k.head)+len(k.text)+4*len(tokens)+entryOverhead > shard.limit {
		return nil
	}
	e := &cacheEntry{key: string(k.head) + k.text, tokens: slices.Clone(tokens), hash: hash}
	shard.put(hash, e)
	return e
}

func (s *cacheShard) get(hash uint64) *cacheEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.young[hash]; e != nil {
		return e
	}
	e := s.old[hash]
	if e != nil {
		delete(s.old, hash)
		s.insert(hash, e)
	}
	return e
}

func (s *cacheShard) put(hash uint64, e *cacheEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.old, hash)
	s.insert(hash, e)
}

func (s *cacheShard) insert(hash uint64, e *cacheEntry) {
	if before := s.young[hash]; before != nil {
		s.youngBytes -= before.bytes()
	}
	if s.youngBytes+e.bytes() > s.limit {
		s.old, s.young, s.youngBytes = s.young, make(map[uint64]*cacheEntry), 0
		s.generation.Add(1)
	}
	e.generation.Store(s.generation.Load())
	s.young[hash] = e
	s.youngBytes += e.bytes()
}

// newMessageKey returns the key of a message. It uses buf as memory. Each
// string is preceded by its length, so that different messages have different
// keys.
func newMessageKey(buf []byte, m *Message, functions bool) messageKey {
	buf = appendKeyString(buf, m.Role)
	buf = appendKeyString(buf, m.Name)
	buf = appendKeyString(buf, m.Recipient)
	buf = appendKeyString(buf, m.Channel)
	buf = appendKeyString(buf, m.ContentType)
	for i, c := range m.Content {
		switch c := c.(type) {
		case Text:
			if i == len(m.Content)-1 {
				return messageKey{append(buf, 'l'), string(c)}
			}
			buf = appendKeyString(append(buf, 't'), c)
		case *SystemContent:
			buf = appendSystemKey(append(buf, 's'), c, functions)
		case *DeveloperContent:
			buf = appendDeveloperKey(append(buf, 'd'), c)
		}
	}
	return messageKey{head: buf}
}

func appendKeyString[T ~string | ~[]byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendKeyBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendSystemKey(dst []byte, s *SystemContent, functions bool) []byte {
	dst = appendKeyString(dst, s.Identity)
	dst = appendKeyString(dst, s.KnowledgeCutoff)
	dst = appendKeyString(dst, s.StartDate)
	dst = appendKeyString(dst, s.Effort)
	dst = binary.AppendUvarint(dst, uint64(len(s.Channels)))
	for _, c := range s.Channels {
		dst = appendKeyString(dst, c)
	}
	dst = appendKeyBool(appendKeyBool(dst, s.ChannelRequired), functions)
	return appendToolsKey(dst, s.Tools)
}

func appendDeveloperKey(dst []byte, d *DeveloperContent) []byte {
	dst = appendKeyString(dst, d.Instructions)
	dst = appendToolsKey(dst, d.Tools)
	dst = binary.AppendUvarint(dst, uint64(len(d.ResponseFormats)))
	for _, f := range d.ResponseFormats {
		dst = appendKeyString(dst, f.Name)
		dst = appendKeyString(dst, f.Description)
		dst = appendKeyString(dst, f.Schema)
	}
	return dst
}

func appendToolsKey(dst []byte, tools []Namespace) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(tools)))
	for _, ns := range tools {
		dst = appendKeyString(dst, ns.Name)
		dst = appendKeyString(dst, ns.Description)
		dst = binary.AppendUvarint(dst, uint64(len(ns.Tools)))
		for _, t := range ns.Tools {
			dst = appendKeyString(dst, t.Name)
			dst = appendKeyString(dst, t.Description)
			dst = appendKeyString(dst, t.Parameters)
		}
	}
	return dst
}
