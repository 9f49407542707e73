package record

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// live are the tapes of exchanges that go on.
type live struct {
	bytes atomic.Int64 // of memory that their requests and events take
	limit atomic.Int64 // of bytes

	mu      sync.Mutex
	running map[*Tape]uint64 // with the number of its beginning
	next    uint64
}

func newLive() *live { return &live{running: map[*Tape]uint64{}} }

func (l *live) add(t *Tape) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.running[t] = l.next
}

// take takes bytes for an event, and reports whether there is room.
func (l *live) take(n int64) bool {
	if l == nil {
		return true
	}
	// Without a lock: events of all exchanges come here. Two that come at once may both be
	// refused where one had room, which cuts a record a little early.
	if l.bytes.Add(n) <= l.limit.Load() {
		return true
	}
	l.bytes.Add(-n)
	return false
}

func (l *live) remove(t *Tape) {
	l.bytes.Add(-t.taken)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, t)
}

// tapes returns the tapes in the order of their beginning, the last limit of them; 0: all.
func (l *live) tapes(limit int) []*Tape {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*Tape, 0, len(l.running))
	for t := range l.running {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *Tape) int { return cmp.Compare(l.running[a], l.running[b]) })
	if limit > 0 && len(list) > limit {
		list = list[len(list)-limit:]
	}
	return list
}
