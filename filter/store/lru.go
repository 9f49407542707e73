package store

import (
	"container/list"
	"time"
)

// entryOverhead is a rough estimate of the memory of an entry in addition to
// its value, in bytes.
const entryOverhead = 256

// key is a name or id together with its tenant.
type key struct{ tenant, name string }

func (k key) bytes() int64 { return int64(len(k.tenant) + len(k.name)) }

// lru is a cache with a limit on its bytes and a TTL. Entries used least
// recently are removed first. It is not safe for concurrent use.
type lru[K comparable, V any] struct {
	limit   int64
	ttl     time.Duration
	now     func() time.Time
	removed func(*entry[K, V]) // called for each removed entry; may be nil

	bytes   int64
	entries map[K]*list.Element // values are *entry[K, V]
	recent  list.List           // most recently used first
}

type entry[K comparable, V any] struct {
	key     K
	value   V
	bytes   int64
	expires time.Time
}

func newLRU[K comparable, V any](limit int64, ttl time.Duration, now func() time.Time) *lru[K, V] {
	return &lru[K, V]{limit: limit, ttl: ttl, now: now, entries: map[K]*list.Element{}}
}

// get returns an entry that has not expired and marks it as used, or nil.
func (l *lru[K, V]) get(k K) *entry[K, V] {
	element, ok := l.entries[k]
	if !ok {
		return nil
	}
	e := element.Value.(*entry[K, V])
	if l.now().After(e.expires) {
		l.remove(element)
		return nil
	}
	l.recent.MoveToFront(element)
	return e
}

// renew restarts the TTL of an entry.
func (l *lru[K, V]) renew(e *entry[K, V]) { e.expires = l.now().Add(l.ttl) }

// put sets the value of k, which takes the given number of bytes. It returns
// false if that is more than the cache's limit; k then has no value.
func (l *lru[K, V]) put(k K, value V, bytes int64) bool {
	l.delete(k)
	if bytes > l.limit {
		return false
	}
	e := &entry[K, V]{key: k, value: value, bytes: bytes}
	l.renew(e)
	l.entries[k] = l.recent.PushFront(e)
	l.bytes += bytes
	l.shrink()
	return true
}

// grow adds bytes to the size of the entry used most recently. It returns false
// if the entry exceeds the cache's limit; nothing is changed then.
func (l *lru[K, V]) grow(e *entry[K, V], bytes int64) bool {
	if e.bytes+bytes > l.limit {
		return false
	}
	e.bytes += bytes
	l.bytes += bytes
	l.shrink()
	return true
}

// shrink removes entries that have expired and, above the limit, the least
// recently used ones.
func (l *lru[K, V]) shrink() {
	for back := l.recent.Back(); back != nil; back = l.recent.Back() {
		if l.bytes <= l.limit && !l.now().After(back.Value.(*entry[K, V]).expires) {
			return
		}
		l.remove(back)
	}
}

func (l *lru[K, V]) delete(k K) {
	if element, ok := l.entries[k]; ok {
		l.remove(element)
	}
}

func (l *lru[K, V]) remove(element *list.Element) {
	e := l.recent.Remove(element).(*entry[K, V])
	delete(l.entries, e.key)
	l.bytes -= e.bytes
	if l.removed != nil {
		l.removed(e)
	}
}
