package storetest

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// year is a window that does not end during a test.
const year = 365 * 24 * time.Hour

// charge makes charges, and returns whether they were made and the counts.
func (s *tester) charge(charges ...store.Charge) (bool, []int64) {
	s.Helper()
	charged, err := s.Charge(s.ctx, charges)
	s.must(err)
	used := make([]int64, len(charged.Counts))
	for i, c := range charged.Counts {
		if used[i] = c.Used; c.Left <= 0 || c.Left > charges[i].Window {
			s.Errorf("%s: the window ends in %v, want within %v", charges[i].Name, c.Left, charges[i].Window)
		}
	}
	return charged.OK, used
}

func testBudgets(t *testing.T, open Open) {
	s := begin(t, open)
	minute, day := func(amount, limit int64) store.Charge {
		return store.Charge{Name: "minute", Window: year, Amount: amount, Limit: limit}
	}, func(amount, limit int64) store.Charge {
		return store.Charge{Name: "d\x00\xff{}", Window: 2 * year, Amount: amount, Limit: limit}
	}

	for _, c := range []struct {
		what    string
		charges []store.Charge
		ok      bool
		used    []int64
	}{
		{"nothing", nil, true, nil},
		{"two counts", []store.Charge{minute(60, 100), day(60, 1000)}, true, []int64{60, 60}},
		{"over the first limit", []store.Charge{minute(41, 100), day(41, 1000)}, false, []int64{60, 60}},
		{"over the second limit", []store.Charge{minute(10, 100), day(10, 69)}, false, []int64{60, 60}},
		{"up to the limit, in another order", []store.Charge{day(40, 100), minute(40, 100)}, true, []int64{100, 100}},
		{"one count", []store.Charge{minute(1, 100)}, false, []int64{100}},
		{"no limit", []store.Charge{minute(5, 0)}, true, []int64{105}},
		{"returned", []store.Charge{minute(-50, 0)}, true, []int64{55}},
		{"room again", []store.Charge{minute(45, 100)}, true, []int64{100}},
		{"great amounts", []store.Charge{day(1<<50, 1<<51)}, true, []int64{100 + 1<<50}},
	} {
		ok, used := s.charge(c.charges...)
		s.wantEqual(c.what, ok, c.ok)
		s.wantEqual(c.what+": counts", used, c.used)
	}
}

// testBudgetWindows requires that counts begin anew with each window, and that what
// belongs to an earlier window changes nothing.
func testBudgetWindows(t *testing.T, open Open) {
	s := begin(t, open)
	const window = 200 * time.Millisecond
	first, err := s.Charge(s.ctx, []store.Charge{{Name: "short", Window: window, Amount: 7, Limit: 10}})
	s.must(err)
	number := first.Counts[0].Number
	// In one window both amounts are over the limit.
	s.eventually("another window begins", func() bool {
		next, err := s.Charge(s.ctx, []store.Charge{{Name: "short", Window: window, Amount: 7, Limit: 10}})
		s.must(err)
		return next.OK && next.Counts[0].Number > number && next.Counts[0].Used == 7
	})

	for _, c := range []struct {
		what   string
		number int64
		want   int64
	}{{"of an earlier window", 1, 5}, {"of this window", 0, 2}} {
		charge := store.Charge{Name: "long", Window: year, Amount: 5}
		count, err := s.Charge(s.ctx, []store.Charge{charge})
		s.must(err)
		charge.Amount, charge.Number = -3, c.number
		if charge.Number == 0 {
			charge.Number = count.Counts[0].Number
		}
		_, used := s.charge(charge)
		s.wantEqual("returned, "+c.what, used, []int64{c.want})
		// The count is 0 again for the next case.
		_, err = s.Charge(s.ctx, []store.Charge{{Name: "long", Window: year, Amount: -c.want}})
		s.must(err)
	}
	_, used := s.charge(store.Charge{Name: "none", Window: year, Amount: -3, Number: 1})
	s.wantEqual("returned where there is no count", used, []int64{0})
}

// testBudgetsConcurrent requires that charges that are made at the same time never
// exceed the limit, and never use less than what fits.
func testBudgetsConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	const writers, each, amount, limit = 8, 25, 7, 1000
	var taken atomic.Int64
	var done sync.WaitGroup
	for w := range writers {
		done.Go(func() {
			for i := range each {
				charges := []store.Charge{
					{Name: "all", Window: year, Amount: amount, Limit: limit},
					{Name: "own " + strconv.Itoa(w), Window: year, Amount: 1, Limit: each},
				}
				// In both orders, so that a store that locks in the order of the charges hangs.
				if (w+i)%2 == 0 {
					charges[0], charges[1] = charges[1], charges[0]
				}
				charged, err := s.Charge(s.ctx, charges)
				if err != nil {
					t.Error(err)
				}
				if charged.OK {
					taken.Add(amount)
				}
			}
		})
	}

	done.Wait()
	want := int64(limit / amount * amount)
	s.wantEqual("taken", taken.Load(), want)
	_, used := s.charge(store.Charge{Name: "all", Window: year})
	s.wantEqual("count", used, []int64{want})
}
