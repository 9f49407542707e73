package store

import (
	"container/list"
	"time"
)

// entryOverhead is roughly what an entry costs beside what it holds.
const entryOverhead = 256

// key is a name of one tenant.
type key struct{ tenant, name string }

// lru holds values up to a number of bytes and up to an age: what was used
// longest ago makes room. It is not safe for concurrent use.
type lru[V any] struct {
	limit   int64
	ttl     time.Duration
	now     func() time.Time
	removed func(*entry[V]) // told of what goes; may be nil

	bytes   int64
	entries map[key]*list.Element // of *entry[V]
	recent  list.List             // used last in front
}

type entry[V any] struct {
	key
	value   V
	bytes   int64
	expires time.Time
}

func newLRU[V any](limit int64, ttl time.Duration, now func() time.Time) *lru[V] {
	return &lru[V]{limit: limit, ttl: ttl, now: now, entries: map[key]*list.Element{}}
}

// get finds an entry that has not expired and marks it as used.
func (l *lru[V]) get(k key) *entry[V] {
	element, ok := l.entries[k]
	if !ok {
		return nil
	}
	e := element.Value.(*entry[V])
	if l.now().After(e.expires) {
		l.remove(element)
		return nil
	}
	l.recent.MoveToFront(element)
	return e
}

// renew begins an entry's age anew.
func (l *lru[V]) renew(e *entry[V]) { e.expires = l.now().Add(l.ttl) }

// put holds a value of so many bytes, in place of what was there. It tells
// whether there is room for it at all.
func (l *lru[V]) put(k key, value V, bytes int64) bool {
	l.delete(k)
	e := &entry[V]{key: k, value: value, bytes: bytes + int64(len(k.tenant)+len(k.name)) + entryOverhead}
	if e.bytes > l.limit {
		return false
	}
	l.renew(e)
	l.entries[k] = l.recent.PushFront(e)
	l.bytes += e.bytes
	for l.bytes > l.limit {
		l.remove(l.recent.Back())
	}
	return true
}

func (l *lru[V]) delete(k key) {
	if element, ok := l.entries[k]; ok {
		l.remove(element)
	}
}

func (l *lru[V]) remove(element *list.Element) {
	e := l.recent.Remove(element).(*entry[V])
	delete(l.entries, e.key)
	l.bytes -= e.bytes
	if l.removed != nil {
		l.removed(e)
	}
}
