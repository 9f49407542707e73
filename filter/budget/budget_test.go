package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// clock is the clock of a store, which a test moves.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time       { return time.Unix(0, c.nanos.Load()) }
func (c *clock) move(d time.Duration) { c.nanos.Add(int64(d)) }

var even = Weights{100, 100, 100, 100}

func everybody(Subject) bool { return true }

// limited is a budget of a minute for everybody.
func limited(tokens int64) Budget {
	return Budget{Name: "minute", Applies: everybody, Tokens: tokens, Window: time.Minute, Weights: even}
}

// used returns what the store has counted of a budget.
func used(t *testing.T, s store.Budgets, b *Budget, subject Subject) int64 {
	t.Helper()
	charged, err := s.Charge(t.Context(), []store.Charge{{Budget: b.Name, Name: b.count(subject), Window: b.Window}})
	if err != nil {
		t.Fatal(err)
	}
	return charged.Counts[0].Used
}

func TestWeights(t *testing.T) {
	t.Parallel()
	w := Weights{Input: 100, Cached: 10, Output: 400, Reasoning: 50}
	for _, c := range []struct {
		usage Usage
		want  int64
	}{
		{Usage{}, 0},
		{Usage{Input: 10}, 1000},
		{Usage{Input: 10, Cached: 4}, 640},
		{Usage{Input: 10, Cached: -1}, 1000}, // not known
		{Usage{Input: 10, Cached: 20}, 100},
		{Usage{Output: 10, Reasoning: 4}, 2600},
		{Usage{Output: 10, Reasoning: 99}, 500},
		{Usage{Input: 1, Output: 1}, 500},
	} {
		if got := w.used(c.usage); got != c.want {
			t.Errorf("%+v: %d units, want %d", c.usage, got, c.want)
		}
		if most := w.prompt(c.usage.Input) + w.output(c.usage.Output); w.used(c.usage) > most {
			t.Errorf("%+v uses more than %d, the most", c.usage, most)
		}
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	ofTenant := func(name string) func(Subject) bool { return func(s Subject) bool { return s.Tenant == name } }
	set := New(store.NewMemory(store.Options{}), []Budget{
		{Name: "a", Applies: ofTenant("x"), Tokens: 5, Window: time.Minute},
		{Name: "b", Applies: ofTenant("free"), Window: time.Minute},
		{Name: "a", Applies: everybody, Tokens: 7, Window: time.Minute, Tenant: true, Key: true, Model: true},
		{Name: "b", Applies: ofTenant("free"), Tokens: 9, Window: time.Minute},
	})
	for tenant, want := range map[string][]string{
		"x":     {"a 1m0s"},
		"y z=&": {"a 1m0s tenant=y+z%3D%26 key=k model=m%00"},
		"free":  {"a 1m0s tenant=free key=k model=m%00"},
	} {
		entries := set.Account(Subject{tenant, "k", "m\x00"}).entries
		got := make([]string, 0, len(entries))
		for _, e := range entries {
			got = append(got, e.count)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%s: counts %q, want %q", tenant, got, want)
		}
	}
	if New(nil, nil) != nil || New(nil, nil).Account(Subject{}) != nil || New(nil, nil).NeedsKey() || !set.NeedsKey() {
		t.Error("no budgets bound something, or a key is not needed")
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	at := newClock()
	day := limited(10_000)
	day.Name, day.Window = "day", 24*time.Hour
	set := New(store.NewMemory(store.Options{Now: at.now}), []Budget{limited(1000), day})
	if _, err := set.Account(Subject{}).Reserve(t.Context(), Usage{}, Call{Prompt: 700, Output: 200}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		call      Call
		code      int
		budget    string
		remaining int64
		never     bool
		text      string
	}{
		{Call{Prompt: 60, Output: 41}, http.StatusTooManyRequests, "minute", 100, false, "Limit 1000, Used 900, Requested 101. Please try again in 55s"},
		{Call{Prompt: 900, Output: 101}, http.StatusTooManyRequests, "minute", 100, true, "Limit 1000, Requested 1001."},
		{Call{Prompt: 60, Output: 40}, 0, "minute", 0, false, ""},
	} {
		a := set.Account(Subject{})
		_, err := a.Reserve(t.Context(), Usage{}, c.call)
		if (err == nil) != (c.code == 0) {
			t.Fatalf("%+v: %v", c.call, err)
		}
		if err == nil {
			if left, ok := a.Left(); !ok || left.Budget != c.budget || left.Remaining != c.remaining || left.Reset != 55*time.Second {
				t.Errorf("%+v: %+v is left", c.call, left)
			}
			continue
		}
		if err.Status != c.code || err.Limit.Budget != c.budget || err.Limit.Remaining != c.remaining || err.Limit.Never != c.never || !strings.Contains(err.Message, c.text) || (err.RetryAfter == 0) != c.never {
			t.Errorf("%+v: %+v, %+v", c.call, err, err.Limit)
		}
	}
	at.move(time.Minute)
	if _, err := set.Account(Subject{}).Reserve(t.Context(), Usage{}, Call{Prompt: 500, Output: 500}); err != nil {
		t.Errorf("the next minute: %v", err)
	}
}

// A reply of several calls takes for each what it can use at most, and settles once.
func TestSeveralCalls(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(store.Options{})
	b := limited(1000)
	set := New(s, []Budget{b})
	a := set.Account(Subject{})
	for _, step := range []struct {
		used  Usage
		call  Call
		units int64
	}{
		{Usage{}, Call{Prompt: 100, Output: 200}, 30_000},
		{Usage{Input: 100, Output: 50}, Call{Prompt: 150, Output: 200}, 50_000},
		{Usage{Input: 250, Output: 60}, Call{Prompt: 100, Output: 10}, 50_000}, // as much is reserved already
		{Usage{Input: 350, Output: 70}, Call{Prompt: 400, Output: 180}, 100_000},
	} {
		if _, err := a.Reserve(t.Context(), step.used, step.call); err != nil || used(t, s, &b, Subject{}) != step.units || !a.Reserved(step.used, step.call) {
			t.Errorf("%+v: %v, %d units", step, err, used(t, s, &b, Subject{}))
		}
	}
	if _, err := a.Reserve(t.Context(), Usage{Input: 750, Output: 80}, Call{Prompt: 100, Output: 100}); err == nil || used(t, s, &b, Subject{}) != 100_000 {
		t.Errorf("more than there is: %v", err)
	}
	for range 2 {
		if err := a.Settle(t.Context(), Usage{Input: 750, Output: 80}); err != nil || used(t, s, &b, Subject{}) != 83_000 {
			t.Errorf("%v, %d units", err, used(t, s, &b, Subject{}))
		}
	}
	if _, err := a.Reserve(t.Context(), Usage{}, Call{Prompt: 100, Output: 10_000}); err != nil || used(t, s, &b, Subject{}) != 83_000 {
		t.Errorf("a settled account takes: %v", err)
	}
}

// What belongs to a window that has ended is returned to nobody.
func TestSettledInAnotherWindow(t *testing.T) {
	t.Parallel()
	at := newClock()
	s := store.NewMemory(store.Options{Now: at.now})
	b := limited(1000)
	a := New(s, []Budget{b}).Account(Subject{})
	if _, err := a.Reserve(t.Context(), Usage{}, Call{Prompt: 100, Output: 300}); err != nil {
		t.Fatal(err)
	}
	at.move(time.Minute)
	if _, err := a.Reserve(t.Context(), Usage{Input: 100, Output: 300}, Call{Prompt: 400, Output: 100}); err != nil || used(t, s, &b, Subject{}) != 50_000 {
		t.Errorf("%v, %d units in the next window", err, used(t, s, &b, Subject{}))
	}
	if err := a.Settle(t.Context(), Usage{Input: 100, Output: 100}); err != nil || used(t, s, &b, Subject{}) != 0 {
		t.Errorf("%v, %d units", err, used(t, s, &b, Subject{}))
	}
}

// Output that ends with the budget is reserved in steps.
func TestGrow(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(store.Options{})
	b := limited(1000)
	b.End, b.Reserve = true, 100
	set := New(s, []Budget{b})
	a := set.Account(Subject{})
	if _, err := a.Reserve(t.Context(), Usage{}, Call{Prompt: 550, Output: 10_000}); err != nil || a.Low() != 50 || !a.Ends() {
		t.Fatalf("%v, low at %d", err, a.Low())
	}
	for _, low := range []int{150, 250, 350} {
		if err := a.Grow(t.Context()); err != nil || a.Low() != low {
			t.Errorf("%v, low at %d, want %d", err, a.Low(), low)
		}
	}
	if err := a.Grow(t.Context()); err == nil || a.Low() != 350 || used(t, s, &b, Subject{}) != 95_000 {
		t.Errorf("%v, low at %d, %d units", err, a.Low(), used(t, s, &b, Subject{}))
	}
	short := set.Account(Subject{})
	if _, err := short.Reserve(t.Context(), Usage{}, Call{Prompt: 0, Output: 40}); err != nil || short.Low() < 1<<40 {
		t.Errorf("%v: a call that is reserved as a whole is low at %d", err, short.Low())
	}
}

// brokenStore fails.
type brokenStore struct{ store.Budgets }

var errBroken = errors.New("no store")

func (brokenStore) Charge(context.Context, []store.Charge) (store.Charged, error) {
	return store.Charged{}, errBroken
}

func TestStoreFails(t *testing.T) {
	t.Parallel()
	open, closed := limited(1000), limited(1000)
	open.Open, open.Name = true, "open"
	a := New(brokenStore{}, []Budget{open}).Account(Subject{})
	if _, err := a.Reserve(t.Context(), Usage{}, Call{Prompt: 1, Output: 1}); err != nil {
		t.Errorf("open: %v", err)
	}
	if _, ok := a.Left(); ok {
		t.Error("what is left is known without a store")
	}
	_, err := New(brokenStore{}, []Budget{open, closed}).Account(Subject{}).Reserve(t.Context(), Usage{}, Call{Prompt: 1, Output: 1})
	if err == nil || err.Status != http.StatusServiceUnavailable || !errors.Is(err, errBroken) || err.Limit != nil {
		t.Errorf("closed: %v", err)
	}
	if err := a.Settle(t.Context(), Usage{Input: 1}); !errors.Is(err, errBroken) {
		t.Errorf("settle: %v", err)
	}
}

// Replies at the same time, of several calls each, of any length, never exceed a budget,
// and what is counted at the end is what they have used.
func TestNeverOver(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		s := store.NewMemory(store.Options{})
		wide, narrow := limited(50_000), limited(20_000)
		narrow.Name, narrow.Tenant, narrow.Weights = "narrow", true, Weights{Input: 100, Cached: 0, Output: 250, Reasoning: 10}
		set := New(s, []Budget{wide, narrow})
		var total [4]atomic.Int64
		var done sync.WaitGroup
		for i := range 32 {
			done.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a test
				subject := Subject{Tenant: strconv.Itoa(i % 3)}
				a, u := set.Account(subject), Usage{}
				for range 1 + random.IntN(4) {
					call := Call{Prompt: random.IntN(1000), Output: random.IntN(2000)}
					if random.IntN(2) == 0 { // it names no limit
						call.Output, call.Least = 130_000, random.IntN(300)+1
					}
					most, err := a.Reserve(t.Context(), u, call)
					if err != nil {
						break
					}
					if most > call.Output || call.Least == 0 && most != call.Output {
						t.Errorf("%+v gets %d", call, most)
					}
					output := random.IntN(most + 1)
					u.Input += call.Prompt
					u.Cached += random.IntN(call.Prompt + 1)
					u.Output += output
					u.Reasoning += random.IntN(output + 1)
					if used(t, s, &wide, subject) > wide.Tokens*unit || used(t, s, &narrow, subject) > narrow.Tokens*unit {
						t.Error("a budget is exceeded")
					}
				}
				if err := a.Settle(t.Context(), u); err != nil {
					t.Error(err)
				}
				total[i%3].Add(narrow.Weights.used(u))
				total[3].Add(wide.Weights.used(u))
			})
		}
		done.Wait()
		for i := range 3 {
			if got, want := used(t, s, &narrow, Subject{Tenant: strconv.Itoa(i)}), total[i].Load(); got != want {
				t.Errorf("seed %d, tenant %d: %d units, want %d", seed, i, got, want)
			}
		}
		if got, want := used(t, s, &wide, Subject{}), total[3].Load(); got != want {
			t.Errorf("seed %d: %d units, want %d", seed, got, want)
		}
	}
}

func TestPrices(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"": 0, "0": 0, "0.15": 150_000, "12": 12_000_000, "0.000001": 1, "3.5": 3_500_000} {
		if got, err := ParsePrice(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{".5", "1.", "-1", "1e3", "0.0000001", "1,5", " 1", "99999999999999999", "1.2.3", "+1", "$1"} {
		if got, err := ParsePrice(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
	p := Prices{Input: 150_000, Cached: 50_000, Output: 600_000}
	if got := p.Cost(Usage{Input: 1_000_000, Cached: 500_000, Output: 1_000_000, Reasoning: 5}); got != 0.7 {
		t.Errorf("cost %v", got)
	}
	if none := (Prices{}); none.Known() || !p.Known() {
		t.Error("prices are known or not")
	}
}

// Names that clients choose have a bound in the store, and stay different.
func TestLongSubjects(t *testing.T) {
	t.Parallel()
	b := Budget{Name: "day", Window: time.Hour, Tenant: true, Model: true}
	names := map[string]bool{}
	as := func(n int) string { return strings.Repeat("a", n) }
	for _, value := range []string{"", "short", as(maxSubject), as(maxSubject + 1), as(1 << 20), strings.Repeat(" ", maxSubject)} {
		name := b.count(Subject{Tenant: value, Model: value})
		if names[name] || len(name) > 1000 {
			t.Errorf("a tenant of %d bytes has the name %.100q of %d", len(value), name, len(name))
		}
		names[name] = true
	}
}
