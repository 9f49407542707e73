package store

import (
	"container/list"
	"time"
)

// entryOverhead is roughly what an entry costs beside what it holds.
const entryOverhead = 256

// key is a name of one tenant.
type key struct{ tenant, name string }

func (k key) bytes() int64 { return int64(len(k.tenant) + len(k.name)) }

// lru holds values up to a number of bytes and up to an age: what was used
// longest ago makes room. It is not safe for concurrent use.
type lru[K comparable, V any] struct {
	limit   int64
	ttl     time.Duration
	now     func() time.Time
	removed func(*entry[K, V]) // told of what goes; may be nil

	bytes   int64
	entries map[K]*list.Element // of *entry[K, V]
	recent  list.List           // used last in front
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

// get finds an entry that has not expired and marks it as used.
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

// renew begins an entry's age anew.
func (l *lru[K, V]) renew(e *entry[K, V]) { e.expires = l.now().Add(l.ttl) }

// put holds a value of so many bytes, in place of what was there. It tells
// whether there is room for it at all.
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

// grow notes that the entry used last takes so many bytes more. It tells
// whether there is room for them; where there is not, nothing changes.
func (l *lru[K, V]) grow(e *entry[K, V], bytes int64) bool {
	if e.bytes+bytes > l.limit {
		return false
	}
	e.bytes += bytes
	l.bytes += bytes
	l.shrink()
	return true
}

// shrink makes room, first of what has expired.
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
