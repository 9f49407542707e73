package store

import (
	"context"
	"time"
)

const (
	// maxCounts is the greatest number of counts. Clients may choose names.
	maxCounts = 1 << 17
	// countsSweep is how many new counts there are between two sweeps.
	countsSweep = 1 << 12
)

// counts are the counts of the present windows. The zero value has none.
type counts struct {
	byName map[string]windowCount
	added  int // since the last sweep
}

// windowCount is a count of the window that ends at a Unix time in milliseconds.
type windowCount struct {
	used, number, end int64
}

// Charge implements [Budgets]. It returns [ErrTooLarge] if there are too many counts.
func (m *Memory) Charge(_ context.Context, charges []Charge) (Charged, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts.charge(charges, m.now().UnixMilli())
}

// charge makes charges at a Unix time in milliseconds.
func (c *counts) charge(charges []Charge, now int64) (Charged, error) {
	charged := Charged{OK: true, Counts: make([]Count, len(charges))}
	after := make([]windowCount, len(charges))
	for i, ch := range charges {
		after[i] = c.at(ch, now)
		if ch.Number == 0 || ch.Number == after[i].number {
			after[i].used += ch.Amount
		}
		charged.OK = charged.OK && (ch.Limit == 0 || after[i].used <= ch.Limit)
	}
	for i, ch := range charges {
		w := after[i]
		if !charged.OK {
			w = c.at(ch, now)
		} else if !c.put(ch.Name, w, now) {
			return Charged{}, ErrTooLarge
		}
		charged.Counts[i] = Count{Used: w.used, Number: w.number, Left: time.Duration(w.end-now) * time.Millisecond}
	}
	return charged, nil
}

// at returns the count of a charge's present window. A clock that is set back does not
// begin an earlier window.
func (c *counts) at(ch Charge, now int64) windowCount {
	length := ch.Window.Milliseconds()
	number := now / length
	if w, ok := c.byName[ch.Name]; ok && w.number >= number {
		return w
	}
	return windowCount{number: number, end: (number + 1) * length}
}

// put reports whether there is room for the count.
func (c *counts) put(name string, w windowCount, now int64) bool {
	if c.byName == nil {
		c.byName = map[string]windowCount{}
	}
	if _, ok := c.byName[name]; !ok {
		c.added++
		if c.added >= countsSweep {
			c.sweep(now)
		}
		if len(c.byName) >= maxCounts {
			return false
		}
	}
	c.byName[name] = w
	return true
}

// sweep deletes the counts of windows that have ended.
func (c *counts) sweep(now int64) {
	c.added = 0
	for name, w := range c.byName {
		if w.end <= now {
			delete(c.byName, name)
		}
	}
}
