package filter

import "sync/atomic"

// budget counts the bytes of request bodies that all exchanges hold.
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

// give returns what was taken.
func (b *budget) give(n int64) { b.used.Add(-n) }
