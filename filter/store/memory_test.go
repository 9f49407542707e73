package store

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func TestMemory(t *testing.T) {
	t.Parallel()
	c := &clock{time.Unix(0, 0)}
	m := NewMemory(1<<20, time.Hour, c.now)
	expect := func(tenant, name, want string) {
		t.Helper()
		got, ok := m.Get(tenant, name)
		if got != want || ok != (want != "") {
			t.Errorf("%s/%s = %q, %v; want %q", tenant, name, got, ok, want)
		}
	}
	m.Put("a", "x", "1")
	m.Put("b", "x", "2")
	m.Put("a", "x", "3")
	expect("a", "x", "3")
	expect("b", "x", "2")
	expect("c", "x", "")
	expect("", "ax", "")

	if got := m.First("a", "x", "4"); got != "3" {
		t.Errorf("First = %q", got)
	}
	if got := m.First("a", "y", "5"); got != "5" {
		t.Errorf("First = %q", got)
	}
	c.Time = c.Add(50 * time.Minute)
	m.First("a", "y", "6")
	c.Time = c.Add(50 * time.Minute)
	expect("a", "x", "")
	expect("a", "y", "5")
}

func TestMemoryBound(t *testing.T) {
	t.Parallel()
	const entries = 10
	text := strings.Repeat("x", 1000)
	m := NewMemory(entries*(1000+entryOverhead+2), time.Hour, time.Now)
	for i := range 100 {
		m.Put("", fmt.Sprintf("%02d", i), text)
		m.Get("", "00") // what is used stays
	}
	if got, limit := m.Bytes(), int64(entries*(1000+entryOverhead+2)); got > limit {
		t.Errorf("%d bytes, limit %d", got, limit)
	}
	for i := range 100 {
		_, ok := m.Get("", fmt.Sprintf("%02d", i))
		if want := i == 0 || i > 100-entries; ok != want {
			t.Errorf("entry %d is there: %v", i, ok)
		}
	}
	m.Put("", "99", strings.Repeat("x", 100_000))
	if _, ok := m.Get("", "99"); ok {
		t.Error("a text larger than the store is kept")
	}
	if _, ok := m.Get("", "00"); !ok {
		t.Error("a text larger than the store drove others out")
	}
	none := NewMemory(0, time.Hour, time.Now)
	if got := none.First("", "x", "1"); got != "1" || none.Bytes() != 0 {
		t.Errorf("a store of 0 bytes keeps %q, %d bytes", got, none.Bytes())
	}
}

func TestMemoryConcurrent(t *testing.T) {
	t.Parallel()
	m := NewMemory(1<<14, time.Hour, time.Now)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 1000 {
				name := strconv.Itoa(j % 50)
				m.Put("", name, name)
				if got, ok := m.Get("", name); ok && got != name {
					t.Errorf("%s = %q (worker %d)", name, got, i)
				}
				m.First("", name, name)
			}
		})
	}
	wg.Wait()
	if m.Bytes() > 1<<14 {
		t.Errorf("%d bytes", m.Bytes())
	}
}
