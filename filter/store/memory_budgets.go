package store

import (
	"container/heap"
	"context"
	"time"
)

// maxCounts is the greatest number of counts of one budget: some 15 MB. Clients may be able
// to choose names.
const maxCounts = 1 << 16

// counts are the counts of all budgets. The zero value has none.
//
// Each budget has room of its own, so that a client who makes up names for one cannot push
// out the counts of another.
type counts struct {
	budgets map[countsOf]*windowCounts
	dropped func(budget string) // called for each count that had to make room; may be nil
}

// countsOf names the counts of a budget. They have windows of one length.
type countsOf struct {
	budget string
	window time.Duration
}

// windowCounts are the counts of a budget in the present window. All of them end with it, so
// none of an earlier window is ever kept.
//
// It is a heap, see [heap.Interface], of what may be dropped first: the count that has used
// least. A client who makes up names to have its own, exhausted count dropped would have to
// use more tokens with each of maxCounts names.
type windowCounts struct {
	number, end int64 // of the window; the end is a Unix time in milliseconds

	byName map[string]*windowCount
	byUse  []*windowCount
	clock  int64 // counts changes
}

// windowCount is the count of a subject. One of 0 is not kept.
type windowCount struct {
	name    string
	used    int64
	changed int64 // the clock at its last change
	index   int   // in byUse
}

// Charge implements [Budgets].
func (m *Memory) Charge(_ context.Context, charges []Charge) (Charged, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts.charge(charges, m.now().UnixMilli()), nil
}

// charge makes charges at a Unix time in milliseconds.
func (c *counts) charge(charges []Charge, now int64) Charged {
	charged := Charged{OK: true, Counts: make([]Count, len(charges))}
	after := make([]int64, len(charges))
	for i, ch := range charges {
		w := c.at(ch, now)
		used := w.used(ch.Name)
		charged.Counts[i] = Count{Used: used, Number: w.number, Left: time.Duration(w.end-now) * time.Millisecond}

		after[i] = used
		if ch.Number == 0 || ch.Number == w.number {
			// What is returned can be more than there is, if the count had to make room.
			after[i] = max(used+ch.Amount, 0)
		}
		charged.OK = charged.OK && (ch.Limit == 0 || after[i] <= ch.Limit)
	}
	if !charged.OK {
		return charged
	}

	// Only now, when all of them are within their limits.
	for i, ch := range charges {
		charged.Counts[i].Used = after[i]
		if c.at(ch, now).set(ch.Name, after[i]) && c.dropped != nil {
			c.dropped(ch.Budget)
		}
	}
	return charged
}

// at returns the counts of a charge's budget in the present window. A clock that is set back
// does not begin an earlier window.
func (c *counts) at(ch Charge, now int64) *windowCounts {
	length := ch.Window.Milliseconds()
	of, number := countsOf{ch.Budget, ch.Window}, now/length
	w := c.budgets[of]
	if w != nil && w.number >= number {
		return w
	}

	if c.budgets == nil {
		c.budgets = map[countsOf]*windowCounts{}
	}
	// Only then: the number of budgets grows with those that are new.
	if w == nil {
		c.forget(now)
	}
	w = &windowCounts{number: number, end: (number + 1) * length, byName: map[string]*windowCount{}}
	c.budgets[of] = w
	return w
}

// forget drops the counts of windows that have ended. Their budgets may have gone with a
// configuration.
func (c *counts) forget(now int64) {
	for of, w := range c.budgets {
		if w.end <= now {
			delete(c.budgets, of)
		}
	}
}

// used returns what a subject has used.
func (w *windowCounts) used(name string) int64 {
	if count := w.byName[name]; count != nil {
		return count.used
	}
	return 0
}

// set sets what a subject has used. It reports whether another count had to make room.
func (w *windowCounts) set(name string, used int64) (dropped bool) {
	w.clock++
	count := w.byName[name]
	switch {
	case used == 0 && count != nil:
		heap.Remove(w, count.index)
		delete(w.byName, name)
	case used == 0:
	case count != nil:
		count.used, count.changed = used, w.clock
		heap.Fix(w, count.index)
	default:
		if dropped = len(w.byName) >= maxCounts; dropped {
			delete(w.byName, heap.Pop(w).(*windowCount).name)
		}
		count = &windowCount{name: name, used: used, changed: w.clock}
		w.byName[name] = count
		heap.Push(w, count)
	}

	return dropped
}

// Len implements [heap.Interface].
func (w *windowCounts) Len() int { return len(w.byUse) }

// Less implements [heap.Interface]. Of counts that have used as much the one goes first that
// has not changed for longest.
func (w *windowCounts) Less(i, j int) bool {
	a, b := w.byUse[i], w.byUse[j]
	if a.used != b.used {
		return a.used < b.used
	}
	return a.changed < b.changed
}

// Swap implements [heap.Interface].
func (w *windowCounts) Swap(i, j int) {
	w.byUse[i], w.byUse[j] = w.byUse[j], w.byUse[i]
	w.byUse[i].index, w.byUse[j].index = i, j
}

// Push implements [heap.Interface].
func (w *windowCounts) Push(x any) {
	count := x.(*windowCount)
	count.index = len(w.byUse)
	w.byUse = append(w.byUse, count)
}

// Pop implements [heap.Interface].
func (w *windowCounts) Pop() any {
	last := len(w.byUse) - 1
	count := w.byUse[last]
	// The array outlives the count, and would keep it in memory.
	w.byUse[last] = nil
	w.byUse = w.byUse[:last]
	return count
}
