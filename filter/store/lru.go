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

// lru is a cache with a limit on its bytes and a TTL. Entries are removed of the tenant
// with the most bytes, those used least recently first. It is not safe for concurrent use.
type lru[K comparable, V any] struct {
	limit int64
	ttl   time.Duration
	now   func() time.Time
	// removed is called for each removed entry; may be nil.
	removed func(*entry[K, V])
	tenant  func(K) string
	// inUse reports whether an entry is removed only if no other is left; may be nil.
	inUse func(K) bool

	bytes int64
	// entries have the values *entry[K, V].
	entries map[K]*list.Element
	// recent has the most recently used entry first.
	recent list.List
	// shares are those of the tenants that have entries.
	shares map[string]*share
}

type entry[K comparable, V any] struct {
	key     K
	value   V
	bytes   int64
	expires time.Time
	share   *share
	shared  *list.Element // in share.recent
}

// share has the entries of one tenant.
type share struct {
	bytes  int64
	recent list.List // most recently used first; values are elements of lru.recent
}

func newLRU[K comparable, V any](
	limit int64, ttl time.Duration, now func() time.Time, tenant func(K) string,
) *lru[K, V] {
	return &lru[K, V]{
		limit: limit, ttl: ttl, now: now, tenant: tenant, entries: map[K]*list.Element{},
		shares: map[string]*share{},
	}
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
	e.share.recent.MoveToFront(e.shared)
	return e
}

// renew restarts the TTL of an entry.
func (l *lru[K, V]) renew(e *entry[K, V]) { e.expires = l.now().Add(l.ttl) }

// put sets the value of k, which takes the given number of bytes. It returns
// false if that is more than the cache's limit, or more than the tenant may have; k then
// has no value.
func (l *lru[K, V]) put(k K, value V, bytes int64) bool {
	// What has expired must not count against the tenant.
	l.delete(k)
	l.expire()
	s := l.shares[l.tenant(k)]
	if s == nil {
		s = &share{}
	}
	if !l.fits(s, bytes) {
		return false
	}

	l.shares[l.tenant(k)] = s
	e := &entry[K, V]{key: k, value: value, bytes: bytes, share: s}
	l.renew(e)
	l.entries[k] = l.recent.PushFront(e)
	e.shared = s.recent.PushFront(l.entries[k])
	l.bytes += bytes
	s.bytes += bytes
	l.shrink()
	return true
}

// grow adds bytes to the size of the entry used most recently. It returns false
// if the entry exceeds the cache's limit, or what the tenant may have; nothing is changed
// then.
func (l *lru[K, V]) grow(e *entry[K, V], bytes int64) bool {
	if bytes > 0 {
		l.expire()
		if !l.fits(e.share, e.bytes+bytes) {
			return false
		}
	}
	e.bytes += bytes
	e.share.bytes += bytes
	l.bytes += bytes
	l.shrink()
	return true
}

// fits reports whether a tenant may have an entry of this size. If the entry alone has
// more bytes than any other tenant, there has to be room beside theirs.
func (l *lru[K, V]) fits(s *share, size int64) bool {
	if size > l.limit {
		return false
	}

	others := l.bytes - s.bytes
	if others+size <= l.limit {
		return true
	}

	// A tenant that has as much can make room. So no tenant can push out many small ones with one
	// large entry.
	for _, other := range l.shares {
		if other != s && other.bytes >= size {
			return true
		}
	}

	return false
}

// shrink removes entries above the limit. The entry used most recently stays.
func (l *lru[K, V]) shrink() {
	l.expire()
	for l.bytes > l.limit {
		// A response that is being made would fail; it goes only if all others have gone.
		unused := l.largest(l.inUse)
		if unused == nil {
			unused = l.largest(nil)
		}
		if unused == nil {
			return
		}
		l.remove(unused)
	}
}

// expire removes entries that have expired. Those behind others that have not stay.
func (l *lru[K, V]) expire() {
	for {
		back := l.recent.Back()
		if back == nil || !l.now().After(back.Value.(*entry[K, V]).expires) {
			break
		}
		l.remove(back)
	}
}

// largest returns the entry used least recently, of the tenant with the most bytes that
// has one that is not in use, or nil.
func (l *lru[K, V]) largest(inUse func(K) bool) (found *list.Element) {
	var most int64 = -1
	for _, s := range l.shares {
		if s.bytes <= most {
			continue
		}
		for at := s.recent.Back(); at != nil; at = at.Prev() {
			element := at.Value.(*list.Element)
			if element != l.recent.Front() && (inUse == nil || !inUse(element.Value.(*entry[K, V]).key)) {
				found, most = element, s.bytes
				break
			}
		}
	}

	return found
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
	e.share.bytes -= e.bytes
	// Tenants without entries are forgotten: clients may be able to choose their names.
	e.share.recent.Remove(e.shared)
	if e.share.recent.Len() == 0 {
		delete(l.shares, l.tenant(e.key))
	}
	if l.removed != nil {
		l.removed(e)
	}
}
