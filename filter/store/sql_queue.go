package store

import (
	"sync"
	"time"
)

// writeRate is how many bytes a second a file is expected to take at the least.
const writeRate = 2 << 20

// writeQueue is what is written to a store with one writer, and what waits for that.
// It distinguishes a store that is busy from one that hangs. It is safe for concurrent
// use.
type writeQueue struct {
	now func() time.Time

	mu       sync.Mutex
	writes   int
	bytes    int64     // of all writes
	progress time.Time // when the last one succeeded, or the first began
}

// enter adds a write of this many bytes. The caller must call leave with its result.
// q may be nil.
func (q *writeQueue) enter(bytes int) (leave func(err error)) {
	if q == nil {
		return func(error) {}
	}

	q.mu.Lock()
	defer q.mu.Unlock()

	// Writes that wait for one another share the time since the last progress.
	if q.writes == 0 {
		q.progress = q.now()
	}

	q.writes++
	q.bytes += int64(bytes)
	return func(err error) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.writes--
		q.bytes -= int64(bytes)
		if err == nil {
			q.progress = q.now()
		}
	}
}

// busy reports whether the writes may still take as long as they do: since the last
// progress there was not enough time for their bytes. q may be nil.
func (q *writeQueue) busy() bool {
	if q == nil {
		return false
	}

	q.mu.Lock()
	defer q.mu.Unlock()

	// A disk that writes less than writeRate counts as one that hangs.
	allowed := time.Duration(float64(q.bytes) / writeRate * float64(time.Second))
	took := q.now().Sub(q.progress)
	// The clock was set back: what was measured means nothing.
	if took < 0 {
		took, q.progress = 0, q.now()
	}

	return q.writes > 0 && took < allowed
}

// Busy reports whether writes wait for others that have not taken longer than their size
// explains. It is false for PostgreSQL, where they do not wait for each other.
func (s *SQL) Busy() bool { return s.queue.busy() }
