package budget

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// ordinary is a call of a client that names no limit, with the whole context of gpt-oss.
func ordinary(prompt int) Call {
	return Call{Prompt: prompt, Output: 131_072 - prompt, Least: LeastOutput}
}

// A budget that is smaller than the context works with clients that name no limit: twenty at
// the same time, each with room for an answer.
func TestShareOfOrdinaryCalls(t *testing.T) {
	t.Parallel()
	s, b := store.NewMemory(store.Options{}), limited(100_000)
	set := New(s, []Budget{b})

	before := 1 << 30
	for i := range 20 {
		output, err := set.Account(Subject{}).Reserve(t.Context(), Usage{}, ordinary(100))
		if err != nil || output > before || output < LeastOutput {
			t.Fatalf("call %d: %d tokens, behind one of %d: %v", i, output, before, err)
		}
		if i == 0 && output != (100_000-100)/8 {
			t.Errorf("the first gets %d", output)
		}
		before = output
	}

	if got := used(t, s, &b, Subject{}); got > b.Tokens*unit {
		t.Errorf("%d units are reserved of %d", got, b.Tokens*unit)
	}
}

// racingStore has the first accesses, as many as it is made for, wait for one another.
type racingStore struct {
	store.Budgets
	left    atomic.Int64
	arrived chan struct{}
}

func (s *racingStore) Charge(ctx context.Context, charges []store.Charge) (store.Charged, error) {
	charged, err := s.Budgets.Charge(ctx, charges)
	switch left := s.left.Add(-1); {
	case left == 0:
		close(s.arrived)
	case left > 0:
		<-s.arrived
	}
	return charged, err
}

// Calls that have all read the same counts take no more than calls that come one by one.
func TestShareOfRacingCalls(t *testing.T) {
	t.Parallel()
	const calls = 20
	s, b := &racingStore{Budgets: store.NewMemory(store.Options{}), arrived: make(chan struct{})}, limited(100_000)
	s.left.Store(calls)
	set := New(s, []Budget{b})

	var done sync.WaitGroup
	for range calls {
		done.Go(func() {
			output, err := set.Account(Subject{}).Reserve(t.Context(), Usage{}, ordinary(100))
			if err != nil || output < LeastOutput {
				t.Errorf("%d tokens: %v", output, err)
			}
		})
	}
	done.Wait()

	if got := used(t, s, &b, Subject{}); got > b.Tokens*unit {
		t.Errorf("%d units are reserved of %d", got, b.Tokens*unit)
	}
}

// The share follows from all budgets, their weights, and what the reply has taken before. No
// call gets more than it wants.
func TestShare(t *testing.T) {
	t.Parallel()
	heavy, steps, free := limited(100_000), limited(50_000), limited(10_000)
	heavy.Name, heavy.Weights = "heavy", Weights{Input: 100, Cached: 100, Output: 200, Reasoning: 400}
	steps.Name, steps.Reserve, steps.End = "steps", 512, true
	free.Name, free.Weights = "free", Weights{Input: 100, Cached: 100}

	for name, c := range map[string]struct {
		budgets []Budget
		call    Call
		want    int
	}{
		"one":                     {[]Budget{limited(100_000)}, ordinary(20_000), 10_000},
		"weights":                 {[]Budget{heavy}, ordinary(20_000), 2_500},
		"the tightest":            {[]Budget{limited(100_000), heavy}, ordinary(20_000), 2_500},
		"the least":               {[]Budget{limited(10_000)}, ordinary(1_000), LeastOutput},
		"the context":             {[]Budget{limited(10_000_000)}, ordinary(131_000), 72},
		"steps have a way of own": {[]Budget{steps}, ordinary(1_000), 130_072},
		"beside steps":            {[]Budget{steps, limited(100_000)}, ordinary(20_000), 10_000},
		"output is free":          {[]Budget{free}, ordinary(1_000), 130_072},
		"it names a limit":        {[]Budget{limited(100_000)}, Call{Prompt: 1_000, Output: 99_000}, 99_000},
	} {
		a := New(store.NewMemory(store.Options{}), c.budgets).Account(Subject{})
		got, err := a.Reserve(t.Context(), Usage{}, c.call)
		if err != nil || got != c.want {
			t.Errorf("%s: %d tokens, want %d: %v", name, got, c.want, err)
		}

		// What extproc has reserved is enough for the run that makes the call.
		c.call.Output = got
		if !a.Reserved(Usage{}, c.call) {
			t.Errorf("%s: what was reserved is not enough", name)
		}
	}

	s, b := store.NewMemory(store.Options{}), limited(100_000)
	a := New(s, []Budget{b}).Account(Subject{})
	if got, err := a.Reserve(t.Context(), Usage{}, ordinary(20_000)); err != nil || got != 10_000 {
		t.Fatal(got, err)
	}
	// Of 80,000 tokens 1,000 were used, and 7,000 are the next prompt.
	got, err := a.Reserve(t.Context(), Usage{Input: 20_000, Output: 1_000}, ordinary(7_000))
	if err != nil || got != 9_000 || used(t, s, &b, Subject{}) != (21_000+7_000+9_000)*unit {
		t.Errorf("the next call: %d tokens, %d units: %v", got, used(t, s, &b, Subject{}), err)
	}
}

// A refusal says which limit is reserved, and whether to try again: only a request that can
// never fit is not to be sent again, and the time is that of the window that has to end.
func TestRefusalsSayWhatIsReserved(t *testing.T) {
	t.Parallel()
	day, steps := limited(20_000), limited(3_000)
	day.Name, day.Window = "day", 24*time.Hour
	steps.Reserve = 1_000
	weighted := limited(3_000)
	weighted.Weights.Output = 200

	for name, c := range map[string]struct {
		budgets []Budget
		spent   Call
		call    Call
		budget  string
		never   bool
		wait    time.Duration
		text    string
	}{
		"no limit": {
			[]Budget{limited(3_000)},
			Call{Prompt: 1_000},
			ordinary(500), "minute", false, 55 * time.Second,
			"Limit 3000, Used 1000, Requested 2548. Please try again in 55s. It names no limit of its output: with its " +
				"prompt of 500 tokens at least 2048 of output are reserved.",
		},
		"no limit, never": {
			[]Budget{limited(3_000)}, Call{}, ordinary(1_000), "minute", true, 0, "Limit 3000, Requested 3048. It names no limit",
		},
		"a limit": {
			[]Budget{limited(3_000)},
			Call{Prompt: 1_000},
			Call{Prompt: 500, Output: 2_000},
			"minute", false, 55 * time.Second,
			"Its prompt of 500 tokens and the limit of its output, 2000, are reserved.",
		},
		"steps": {
			[]Budget{steps},
			Call{Prompt: 2_000},
			ordinary(500), "minute", false, 55 * time.Second,
			"Its prompt of 500 tokens is reserved, and at first 1000 of its output.",
		},
		"weights": {
			[]Budget{weighted}, Call{}, ordinary(10), "minute", true, 0, "Requested 4106. It names no limit",
		},
		"the day is over too": {
			[]Budget{limited(20_000), day},
			Call{Prompt: 19_000},
			ordinary(500), "day", false, 20*time.Hour + 55*time.Minute + 55*time.Second,
			"Please try again in 75355s.",
		},
		"never, behind one that waits": {
			[]Budget{limited(20_000), {Name: "small", Applies: everybody, Tokens: 100, Window: time.Hour, Weights: even}},
			Call{},
			Call{Prompt: 19_000, Output: 900},
			"small", true, 0, "Request too large for the token budget \"small\"",
		},
	} {
		at := newClock()
		set := New(store.NewMemory(store.Options{Now: at.now}), c.budgets)
		if _, err := set.Account(Subject{}).Reserve(t.Context(), Usage{}, c.spent); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err := set.Account(Subject{}).Reserve(t.Context(), Usage{}, c.call)
		if err == nil {
			t.Errorf("%s: it is not refused", name)
			continue
		}
		if err.Status != http.StatusTooManyRequests || err.Limit.Budget != c.budget || err.Limit.Never != c.never ||
			err.RetryAfter != c.wait || !strings.Contains(err.Message, c.text) {
			t.Errorf("%s: %v, %+v", name, err, err.Limit)
		}
	}
}

// countedStore counts the accesses to a store.
type countedStore struct {
	store.Budgets
	accesses int
}

func (s *countedStore) Charge(ctx context.Context, charges []store.Charge) (store.Charged, error) {
	s.accesses++
	return s.Budgets.Charge(ctx, charges)
}

// A budget that is used up has the most requests: each is refused by one look and one attempt.
func TestRefusalsAreCheap(t *testing.T) {
	t.Parallel()
	plenty, steps, prompts := limited(10_000_000), limited(3_000), limited(3_000)
	plenty.Name, steps.Reserve = "plenty", 1_000
	prompts.Weights = Weights{Input: unit, Cached: unit}

	for name, budgets := range map[string][]Budget{
		"steps": {plenty, steps}, "a free output": {plenty, prompts}, "one": {limited(3_000)},
	} {
		s := &countedStore{Budgets: store.NewMemory(store.Options{})}
		set := New(s, budgets)
		if _, err := set.Account(Subject{}).Reserve(t.Context(), Usage{}, Call{Prompt: 2_900}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.accesses = 0
		if _, err := set.Account(Subject{}).Reserve(t.Context(), Usage{}, ordinary(500)); err == nil || s.accesses != 2 {
			t.Errorf("%s: %v, with %d accesses", name, err, s.accesses)
		}
	}
}

// Without the store, calls without a limit are as others: budgets say whether they are admitted.
func TestShareWithoutStore(t *testing.T) {
	t.Parallel()
	open, closed := limited(100_000), limited(100_000)
	open.Open = true
	call := ordinary(100)
	got, err := New(brokenStore{}, []Budget{open}).Account(Subject{}).Reserve(t.Context(), Usage{}, call)
	if err != nil || got != call.Output {
		t.Errorf("open: %d, %v", got, err)
	}
	if _, err := New(brokenStore{}, []Budget{closed}).Account(Subject{}).Reserve(t.Context(), Usage{}, call); err == nil {
		t.Error("closed: it is admitted")
	}

	// A reply that is ending takes nothing.
	settled := New(store.NewMemory(store.Options{}), []Budget{limited(10)}).Account(Subject{})
	if err := settled.Settle(t.Context(), Usage{}); err != nil {
		t.Fatal(err)
	}
	if got, err := settled.Reserve(t.Context(), Usage{}, call); err != nil || got != call.Output {
		t.Errorf("settled: %d, %v", got, err)
	}
}
