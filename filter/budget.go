package filter

import "sync/atomic"

// budget counts the bytes of requests that all exchanges hold: bodies, and
// what they bring in from the store.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take claims n bytes, false if that is more than there is.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// share is what one request holds of a budget. Its reply may be made by
// another goroutine than the one that has received it.
type share struct {
	of   *budget
	held atomic.Int64
}

// take claims n bytes for the request, false if that is more than there is.
func (s *share) take(n int) bool {
	if !s.of.take(int64(n)) {
		return false
	}
	s.held.Add(int64(n))
	return true
}

// release returns what was taken. What is taken later needs another release.
func (s *share) release() { s.of.used.Add(-s.held.Swap(0)) }
