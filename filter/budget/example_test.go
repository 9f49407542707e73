package budget_test

import (
	"context"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// A tenant has 1000 tokens a day. What a reply reserves and does not use is there for the
// next one.
func Example() {
	weights := budget.Weights{Input: 100, Cached: 100, Output: 100, Reasoning: 100}
	everybody := func(budget.Subject) bool { return true }
	set := budget.New(store.NewMemory(store.Options{}), []budget.Budget{{
		Name: "day", Tenant: true, Applies: everybody, Tokens: 1000, Window: 24 * time.Hour, Weights: weights,
	}})
	ctx := context.Background()
	call := budget.Call{Prompt: 100, Output: 600}

	first, second := set.Account(budget.Subject{Tenant: "a"}), set.Account(budget.Subject{Tenant: "a"})
	fmt.Println(first.Reserve(ctx, budget.Usage{}, call))
	_, refused := second.Reserve(ctx, budget.Usage{}, call)
	fmt.Println(refused.Limit.Remaining)
	if err := first.Settle(ctx, budget.Usage{Input: 100, Output: 50}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(second.Reserve(ctx, budget.Usage{}, call))
	left, _ := second.Left()
	fmt.Println(left.Remaining)
	// Output:
	// 600 <nil>
	// 300
	// 600 <nil>
	// 150
}
