package work_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

func TestSpend(t *testing.T) {
	a := work.New(t.Context(), 10)
	if err := a.Spend(10); err != nil {
		t.Fatalf("all of the steps: %v", err)
	}
	if a.Affords(1) || !a.Affords(0) {
		t.Error("an account that is used up affords a step, or not even none")
	}
	if err := a.Spend(0); err != nil {
		t.Errorf("nothing, of an account that is used up: %v", err)
	}

	if err := a.Spend(1); !errors.Is(err, work.ErrExceeded) {
		t.Errorf("a step too many: %v", err)
	}
	if err := a.Spend(0); !errors.Is(err, work.ErrExceeded) {
		t.Errorf("after a refusal the account goes on: %v", err)
	}
	if err := a.Within(t.Context()).Err(); !errors.Is(err, work.ErrExceeded) {
		t.Errorf("a part of the account does not know of the refusal: %v", err)
	}
}

func TestSpendNeverGives(t *testing.T) {
	a := work.New(t.Context(), 1)
	_ = a.Spend(-100)
	if err := a.Spend(2); !errors.Is(err, work.ErrExceeded) {
		t.Errorf("a negative number of steps has made the account larger: %v", err)
	}
}

func TestContexts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := work.New(ctx, 100)
	job := a.Within(t.Context())
	cancel()

	if err := a.Spend(1); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended, and the account gives %v", err)
	}
	if err := job.Spend(100); err != nil {
		t.Errorf("the part with a context of its own: %v", err)
	}
}

func TestUnbounded(t *testing.T) {
	var a *work.Account
	if err := a.Spend(1 << 40); err != nil || !a.Affords(1<<40) || a.Err() != nil {
		t.Errorf("an account without a bound has one: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	job := a.Within(ctx)
	if err := job.Spend(1 << 40); err != nil {
		t.Errorf("a part of an account without a bound has one: %v", err)
	}
	cancel()
	if err := job.Spend(1); !errors.Is(err, context.Canceled) {
		t.Errorf("a part of an account without a bound does not heed its context: %v", err)
	}
}

// TestTogether has goroutines that take steps at the same time: no more are taken than
// there are.
func TestTogether(t *testing.T) {
	const steps = 1000
	a := work.New(t.Context(), steps)
	var taken [8]int
	var wait sync.WaitGroup
	for i := range taken {
		wait.Go(func() {
			for a.Spend(1) == nil {
				taken[i]++
			}
		})
	}
	wait.Wait()

	sum := 0
	for _, n := range taken {
		sum += n
	}
	if sum != steps {
		t.Errorf("%d steps were taken of %d", sum, steps)
	}
}

// TestPart shows that a part pays from the whole, and that what it refuses is not refused by
// the whole.
func TestPart(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	whole := work.New(ended, 100)
	cancel()
	part := whole.Part(context.Background(), 60)
	if part == nil || part.Spend(50) != nil || whole.Affords(51) || !whole.Affords(50) {
		t.Errorf("the whole does not pay for its part %v", part)
	}
	if err := part.Spend(20); !errors.Is(err, work.ErrExceeded) || !whole.Affords(50) {
		t.Errorf("%v, and the whole has no 50 steps", err)
	}
	if whole.Part(context.Background(), 51) != nil {
		t.Error("a part has more than the whole")
	}
	var unbounded *work.Account
	if part := unbounded.Part(context.Background(), 1); part.Spend(1) != nil || part.Spend(1) == nil {
		t.Error("a part of an account without a bound is not bounded itself")
	}
}
