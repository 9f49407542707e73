package store

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestLRUShares makes random accesses and checks after each that the bytes of the cache
// and of each tenant are those of their entries, and within the limit.
func TestLRUShares(t *testing.T) {
	t.Parallel()
	now, seed := time.Unix(1_800_000_000, 0), rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
	l := newLRU[key, int](1000, time.Hour, func() time.Time { return now }, keyTenant)
	l.inUse = func(k key) bool { return k.name == "1" }
	for i := range 5000 {
		k := key{strconv.Itoa(random.IntN(5)), strconv.Itoa(random.IntN(10))}
		switch e := l.get(k); {
		case random.IntN(10) == 0:
			l.delete(k)
		case e != nil && random.IntN(2) == 0:
			if l.grow(e, int64(random.IntN(200))-min(100, e.bytes)) {
				l.renew(e)
			}
			if l.entries[k] == nil {
				t.Fatalf("seed %d: step %d: the entry that grew is gone", seed, i)
			}
		case l.put(k, i, int64(random.IntN(300))) != (l.entries[k] != nil):
			t.Fatalf("seed %d: step %d: put does not say whether there is an entry", seed, i)
		}
		now = now.Add(time.Duration(random.IntN(5)) * time.Minute)
		sums, sum := map[string]int64{}, int64(0)
		for k, element := range l.entries {
			sums[k.tenant] += element.Value.(*entry[key, int]).bytes
			sum += element.Value.(*entry[key, int]).bytes
		}
		if sum != l.bytes || sum > l.limit || len(sums) != len(l.shares) || l.recent.Len() != len(l.entries) {
			t.Fatalf("seed %d: step %d: %d bytes of entries, %d counted, %d and %d tenants", seed, i, sum, l.bytes, len(sums), len(l.shares))
		}
		for tenant, s := range l.shares {
			if s.bytes != sums[tenant] {
				t.Fatalf("seed %d: step %d: %d bytes of a tenant, %d counted", seed, i, sums[tenant], s.bytes)
			}
		}
	}
}

// TestLRUFairness checks which entries are removed.
func TestLRUFairness(t *testing.T) {
	t.Parallel()
	type write struct {
		tenant, name string
		bytes        int64
		grows        bool
		fails        bool
	}
	// Two tenants with less than a third each, of 100 bytes.
	others := []write{{tenant: "a", name: "1", bytes: 30}, {tenant: "b", name: "1", bytes: 30}}
	for name, c := range map[string]struct {
		writes []write
		want   []key
	}{
		"a tenant alone has all the room":           {[]write{{tenant: "a", name: "1", bytes: 60}, {tenant: "a", name: "2", bytes: 100}}, []key{{"a", "2"}}},
		"the tenant that writes loses its oldest":   {append(others[:2:2], write{tenant: "c", name: "1", bytes: 35}, write{tenant: "c", name: "2", bytes: 20}), []key{{"a", "1"}, {"b", "1"}, {"c", "2"}}},
		"the tenant with the most loses for others": {append(others[:2:2], write{tenant: "b", name: "2", bytes: 30}, write{tenant: "c", name: "1", bytes: 30}), []key{{"a", "1"}, {"b", "2"}, {"c", "1"}}},
		"an entry grows into what is free":          {append(others[:2:2], write{tenant: "c", name: "1", bytes: 20}, write{tenant: "c", name: "1", bytes: 20, grows: true}), []key{{"a", "1"}, {"b", "1"}, {"c", "1"}}},
		"one entry displaces no others by growing":  {append(others[:2:2], write{tenant: "c", name: "1", bytes: 20}, write{tenant: "c", name: "1", bytes: 30, grows: true, fails: true}), []key{{"a", "1"}, {"b", "1"}, {"c", "1"}}},
		"a new entry that is too large is not kept": {append(others[:2:2], write{tenant: "c", name: "1", bytes: 50, fails: true}), []key{{"a", "1"}, {"b", "1"}}},
		"entries in use are the last to be removed": {[]write{{tenant: "a", name: "used", bytes: 60}, {tenant: "b", name: "1", bytes: 40}, {tenant: "c", name: "1", bytes: 40}}, []key{{"a", "used"}, {"c", "1"}}},
		"but they are removed":                      {[]write{{tenant: "a", name: "used", bytes: 60}, {tenant: "b", name: "1", bytes: 60}}, []key{{"b", "1"}}},
	} {
		l := newLRU[key, int](100, time.Hour, time.Now, keyTenant)
		l.inUse = func(k key) bool { return k.name == "used" }
		for i, w := range c.writes {
			k, ok := key{w.tenant, w.name}, false
			if w.grows {
				ok = l.grow(l.get(k), w.bytes)
			} else {
				ok = l.put(k, 0, w.bytes)
			}
			if ok == w.fails {
				t.Errorf("%s: write %d: %v", name, i, ok)
			}
		}
		left := make([]key, 0, len(l.entries))
		for k := range l.entries {
			left = append(left, k)
		}
		slices.SortFunc(left, func(a, b key) int { return slices.Compare([]string{a.tenant, a.name}, []string{b.tenant, b.name}) })
		if !slices.Equal(left, c.want) {
			t.Errorf("%s: left are %v, want %v", name, left, c.want)
		}
	}
}
