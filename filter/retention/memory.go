package retention

import (
	"container/list"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

const (
	// maxSessions and maxHeads bound what is remembered: some 4 MiB. What was unused for longest is
	// forgotten first.
	maxSessions = 10_000
	maxHeads    = 10_000
	// maxPauses are the last pauses of a session that count.
	maxPauses = 16
	// maxOpen are the calls of a session whose results are awaited: agents and their sub-agents have
	// conversations side by side.
	maxOpen = 8
)

// MinPause and MaxPause bound what is expected of a session's tools, and DefaultPause is what is
// expected before any has run.
const (
	MinPause     = 5 * time.Second
	DefaultPause = time.Minute
	MaxPause     = 10 * time.Minute
)

// Memory is what is remembered of model calls, in the memory of the process. It is safe for
// concurrent use.
type Memory struct {
	seed maphash.Seed

	mu       sync.Mutex
	sessions recent[string, session]
	heads    recent[uint64, struct{}]
}

// session is what is remembered of a session. It has a fixed size, so that a number bounds all.
type session struct {
	// The last pauses in milliseconds, of which the oldest is replaced, and how many there were.
	pauses [maxPauses]uint32
	paused int
	// The calls whose results are awaited, of which the oldest is replaced, and how many there were.
	open   [maxOpen]openCall
	opened int
}

// openCall is a call whose result is awaited.
type openCall struct {
	// Of its id; 0: there is none.
	sum   uint64
	since time.Time
}

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{
		seed:     maphash.MakeSeed(),
		sessions: newRecent[string, session](maxSessions), heads: newRecent[uint64, struct{}](maxHeads),
	}
}

// Called notes that a model call of a session has ended in calls of tools, of which one is named.
func (m *Memory) Called(name, call string, now time.Time) {
	sum := m.sum(call)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions.use(name)
	s.open[s.opened%maxOpen] = openCall{sum, now}
	s.opened++
}

// Resumed notes that a request has the result of a call.
func (m *Memory) Resumed(name, call string, now time.Time) {
	sum := m.sum(call)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions.find(name)
	if s == nil {
		return
	}

	i := slices.IndexFunc(s.open[:], func(c openCall) bool { return c.sum == sum })
	if i < 0 {
		return
	}
	pause := now.Sub(s.open[i].since)
	s.open[i] = openCall{}
	// After so long it is a person who was waited for, and no tool.
	if pause < 0 || pause > MaxPause {
		return
	}
	s.pauses[s.paused%maxPauses] = uint32(pause.Milliseconds()) //nolint:gosec // at most MaxPause
	s.paused++
}

// Pause returns how long the tools of a session are going to take: seven of eight of the last pauses
// were not longer, and half of that again is for those that are.
func (m *Memory) Pause(name string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions.find(name)
	if s == nil || s.paused == 0 {
		return DefaultPause
	}

	last := s.pauses
	known := last[:min(s.paused, maxPauses)]
	slices.Sort(known)
	long := time.Duration(known[len(known)-1-len(known)/8]) * time.Millisecond
	return min(max(long+long/2, MinPause), MaxPause)
}

// Shared reports whether a prompt with this head, by its sum, has come before.
func (m *Memory) Shared(head uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heads.find(head) != nil
}

// Began notes the head of a prompt that an engine has begun to answer, by its sum.
func (m *Memory) Began(head uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heads.use(head)
}

// sum returns what a call's id is known by, which is not 0.
func (m *Memory) sum(call string) uint64 { return maphash.String(m.seed, call) | 1 }

// recent holds the values that were used last.
type recent[K comparable, V any] struct {
	limit int
	byKey map[K]*list.Element
	order list.List // of *entry, the one that was used last in front
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newRecent[K comparable, V any](limit int) recent[K, V] {
	return recent[K, V]{limit: limit, byKey: map[K]*list.Element{}}
}

// find returns the value of a key, which is used now; nil if there is none.
func (r *recent[K, V]) find(key K) *V {
	e := r.byKey[key]
	if e == nil {
		return nil
	}
	r.order.MoveToFront(e)
	return &e.Value.(*entry[K, V]).value
}

// use returns the value of a key, which is made if there is none.
func (r *recent[K, V]) use(key K) *V {
	if found := r.find(key); found != nil {
		return found
	}
	made := &entry[K, V]{key: key}
	r.byKey[key] = r.order.PushFront(made)
	if r.order.Len() > r.limit {
		delete(r.byKey, r.order.Remove(r.order.Back()).(*entry[K, V]).key)
	}
	return &made.value
}
