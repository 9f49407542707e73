package harmony

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
)

// cacheShards is the number of parts of a cache, which have a lock each.
const cacheShards = 16

// entryOverhead is the memory of an entry in addition to its key and tokens, in
// bytes: the structs, its map slot, unused capacity, and the struct of a dropped
// entry that it may refer to.
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
	// limit is that of one generation, in bytes.
	limit int
	// generation is the number of the young one. It is read without the lock.
	generation atomic.Uint64

	// mu guards the generations.
	mu         sync.Mutex
	young      map[uint64]*cacheEntry
	old        map[uint64]*cacheEntry
	youngBytes int
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

// cacheEntry is an entry of the cache.
type cacheEntry struct {
	hash uint64
	// size is its memory in bytes.
	size int
	// generation is that in which it was put last.
	generation atomic.Uint64
	// content is nil once the cache has dropped the entry: the entry that preceded
	// it may keep this struct in memory, but no text.
	content atomic.Pointer[cacheContent]
	// next is the entry of the message that followed.
	next atomic.Pointer[cacheEntry]
}

// cacheContent is what an entry caches. It is immutable.
type cacheContent struct {
	// key is head and text.
	key    string
	tokens []Token
}

// follow notes that next follows e. Both may be nil.
func (e *cacheEntry) follow(next *cacheEntry) {
	if e != nil && next != nil && e.next.Load() != next {
		e.next.Store(next)
	}
}

// matching returns the tokens of the entry if its key is k, and nil if it is not,
// if the entry was dropped, or if e is nil. No message has no tokens.
func (e *cacheEntry) matching(k messageKey) []Token {
	if e == nil {
		return nil
	}
	if c := e.content.Load(); c != nil && k.matches(c.key) {
		return c.tokens
	}
	return nil
}

// drop releases what the entry refers to.
func (e *cacheEntry) drop() {
	e.content.Store(nil)
	e.next.Store(nil)
}

func newMessageCache(limit int) *messageCache {
	c := &messageCache{seed: maphash.MakeSeed()}

	// Half for each generation.
	for i := range c.shards {
		c.shards[i].limit = limit / (2 * cacheShards)
		c.shards[i].young = make(map[uint64]*cacheEntry)
	}
	return c
}

func (c *messageCache) hash(k messageKey) uint64 {
	return maphash.Bytes(c.seed, k.head)*0x9E3779B97F4A7C15 + maphash.String(c.seed, k.text)
}

// after returns the entry that followed last, and its tokens, if it has the key k
// and need not be moved to the young generation. Otherwise, and if last is nil, it
// returns nil.
func (c *messageCache) after(last *cacheEntry, k messageKey) (e *cacheEntry, tokens []Token) {
	if last == nil {
		return nil, nil
	}

	e = last.next.Load()

	// An entry of the old generation has to be found by its hash: that moves it, and one in use
	// must not be dropped.
	if e == nil || e.generation.Load() != c.shards[e.hash%cacheShards].generation.Load() {
		return nil, nil
	}

	tokens = e.matching(k)
	return e, tokens
}

// find returns the entry with the key k and its tokens. They are nil if there is none.
func (c *messageCache) find(hash uint64, k messageKey) (e *cacheEntry, tokens []Token) {
	e = c.shards[hash%cacheShards].get(hash)
	tokens = e.matching(k)
	return e, tokens
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

	content := &cacheContent{key: string(k.head) + k.text, tokens: slices.Clone(tokens)}
	e := &cacheEntry{hash: hash, size: len(content.key) + 4*cap(content.tokens) + entryOverhead}
	e.content.Store(content)

	shard.put(hash, e)
	return e
}

func (s *cacheShard) get(hash uint64) *cacheEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.young[hash]; e != nil {
		return e
	}

	// An entry that is used moves to the young generation, so the next change does not drop it.
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

	// Another goroutine may have encoded the same message, or another message has the same hash:
	// the last one stays.
	if before := s.old[hash]; before != nil {
		delete(s.old, hash)
		before.drop()
	}
	if before := s.young[hash]; before != nil {
		delete(s.young, hash)
		s.youngBytes -= before.size
		before.drop()
	}

	s.insert(hash, e)
}

// insert puts the entry, which is in neither generation, into the young one.
func (s *cacheShard) insert(hash uint64, e *cacheEntry) {
	if s.youngBytes+e.size > s.limit {
		// An entry that preceded one of these may keep its struct in memory. It must not keep its text.
		for _, dropped := range s.old {
			dropped.drop()
		}
		s.old, s.young, s.youngBytes = s.young, make(map[uint64]*cacheEntry), 0
		s.generation.Add(1)
	}

	e.generation.Store(s.generation.Load())
	s.young[hash] = e
	s.youngBytes += e.size
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
	buf = appendKeyBool(buf, m.RecipientLast)

	for i, c := range m.Content {
		switch c := c.(type) {
		case Text:
			if i == len(m.Content)-1 {
				// Its own letter tells that a text follows the head, which matches relies on.
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

	// A developer message with functions adds a sentence to the system message.
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
