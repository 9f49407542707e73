package store_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// room is how many counts of one budget a store in memory has.
const room = store.MaxCounts

// boundedCounts is a store whose counts are charged by a test.
type boundedCounts struct {
	*store.Memory
	t       *testing.T
	now     time.Time
	dropped map[string]int // by budget
}

func newBoundedCounts(t *testing.T) *boundedCounts {
	t.Helper()
	c := &boundedCounts{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), dropped: map[string]int{}}
	c.Memory = store.NewMemory(store.Options{
		Now:          func() time.Time { return c.now },
		CountDropped: func(budget string) { c.dropped[budget]++ },
	})
	return c
}

// charge charges a subject of a budget, whose limit is 100.
func (c *boundedCounts) charge(budget, subject string, amount int64) store.Charged {
	c.t.Helper()
	charge := store.Charge{Budget: budget, Name: budget + subject, Window: time.Hour, Amount: amount}
	if amount > 0 {
		charge.Limit = 100
	}
	charged, err := c.Charge(c.t.Context(), []store.Charge{charge})
	if err != nil {
		c.t.Fatal(err)
	}
	return charged
}

// flood charges twice as many subjects as there is room for, with names of their own.
func (c *boundedCounts) flood(budget string, amount int64) {
	for i := range 2 * room {
		c.charge(budget, strconv.Itoa(i), amount)
	}
}

// A client who makes up names is bound by each, is told of, and gets rid neither of what he
// has used under his own name, nor of what others have used.
func TestMemoryCountsAreBounded(t *testing.T) {
	t.Parallel()
	c := newBoundedCounts(t)
	c.charge("a", " exhausted", 100)
	c.charge("a", " busy", 60)
	c.charge("b", " small", 1)
	c.flood("a", 10)

	for _, want := range []struct {
		budget, subject string
		amount          int64
		ok              bool
	}{
		{"a", " exhausted", 1, false},
		{"a", " busy", 41, false},
		{"a", " busy", 40, true},
		{"a", strconv.Itoa(2*room - 1), 91, false}, // the last one
		{"a", "0", 100, true},                      // the first one had to make room
		{"a", " new", 101, false},
		{"b", " small", 100, false},
	} {
		if got := c.charge(want.budget, want.subject, want.amount).OK; got != want.ok {
			t.Errorf("%d tokens of %s%s: %t, want %t", want.amount, want.budget, want.subject, got, want.ok)
		}
	}
	if want := room + 3; c.dropped["a"] != want || c.dropped["b"] != 0 {
		t.Errorf("%v counts were dropped, want %d", c.dropped, want)
	}
}

// Windows that have ended make room, and nobody is told.
func TestMemoryCountsOfEndedWindows(t *testing.T) {
	t.Parallel()
	c := newBoundedCounts(t)
	for i := range room {
		c.charge("a", strconv.Itoa(i), 1)
	}
	c.now = c.now.Add(time.Hour)
	for i := range room {
		if got := c.charge("a", strconv.Itoa(i), 1).Counts[0].Used; got != 1 {
			t.Fatalf("count %d has %d", i, got)
		}
	}
	if len(c.dropped) > 0 {
		t.Errorf("%v counts were dropped", c.dropped)
	}
}

// What is returned to a count that had to make room is no credit, and a count of nothing
// takes no room.
func TestMemoryCountsReturned(t *testing.T) {
	t.Parallel()
	c := newBoundedCounts(t)
	c.charge("a", " reserved", 5)
	c.flood("a", 10)
	if got := c.charge("a", " reserved", -4).Counts[0].Used; got != 0 {
		t.Errorf("the count is %d behind what was returned", got)
	}

	for i := range 2 * room {
		c.charge("b", strconv.Itoa(i), 10)
		c.charge("b", strconv.Itoa(i), -10)
		c.charge("b", strconv.Itoa(i), 0)
	}
	if c.dropped["b"] != 0 {
		t.Errorf("%d counts made room for counts of nothing", c.dropped["b"])
	}
}
