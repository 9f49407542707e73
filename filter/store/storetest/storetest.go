// Package storetest contains the tests that all implementations of
// [store.Store] pass, and their benchmarks.
package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// Open opens a new, empty store and closes it at the end of the test.
type Open func(t testing.TB, o store.Options) store.Store

// Test tests the implementation that open opens. It uses the real clock: where
// data has to expire, it sets a short TTL and waits.
func Test(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"Responses", testResponses},
		{"Versions", testVersions},
		{"VersionsConcurrent", testVersionsConcurrent},
		{"Chains", testChains},
		{"ChainsConcurrent", testChainsConcurrent},
		{"Head", testHead},
		{"Items", testItems},
		{"Work", testWork},
		{"Room", testRoom},
		{"Leases", testLeases},
		{"Journal", testJournal},
		{"JournalEnd", testJournalEnd},
		{"JournalPages", testJournalPages},
		{"JournalWaits", testJournalWaits},
		{"JournalConcurrent", testJournalConcurrent},
		{"Conversations", testConversations},
		{"ConversationPages", testConversationPages},
		{"ConversationLocks", testConversationLocks},
		{"ConversationLocksLost", testConversationLocksLost},
		{"ConversationsConcurrent", testConversationsConcurrent},
		{"Texts", testTexts},
		{"TextsConcurrent", testTextsConcurrent},
		{"Approvals", testApprovals},
		{"ApprovalsConcurrent", testApprovalsConcurrent},
		{"ApprovalTTL", testApprovalTTL},
		{"Budgets", testBudgets},
		{"BudgetWindows", testBudgetWindows},
		{"BudgetsConcurrent", testBudgetsConcurrent},
		{"Tenants", testTenants},
		{"Expiry", testExpiry},
		{"UnusualNames", testUnusualNames},
		{"LargeItems", testLargeItems},
		{"Canceled", testCanceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, open)
		})
	}
}

// options have TTLs and limits that no test reaches.
var options = store.Options{ResponseTTL: time.Hour, TextTTL: time.Hour, ResponseBytes: 64 << 20, TextBytes: 1 << 20}

// patience is how long tests wait for something to happen.
const patience = 20 * time.Second

// tester is a store under test together with its test.
type tester struct {
	*testing.T
	store.Store
	ctx context.Context
}

func begin(t *testing.T, open Open) *tester { return beginWith(t, open, options) }

func beginWith(t *testing.T, open Open, o store.Options) *tester {
	t.Helper()
	return &tester{t, open(t, o), t.Context()}
}

// must ends the test if err is not nil.
func (s *tester) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// wantError reports an error if err is not want.
func (s *tester) wantError(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// wantEqual reports an error if got and want differ. Nil and empty values are
// equal.
func (s *tester) wantEqual(what string, got, want any) {
	s.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// eventually waits until the condition is true. It ends the test if that takes
// too long.
func (s *tester) eventually(what string, condition func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("timeout: %s", what)
		}
	}
}

// response returns a response with one input and one output item.
func response(id, previous string) *store.Response {
	return &store.Response{
		ID: id, Previous: previous, Version: 1, Object: []byte(`{"id":"` + id + `"}`),
		Input:  []store.Item{item("in_" + id)},
		Output: []store.Item{item("out_" + id)},
	}
}

func item(id string) store.Item { return store.Item{ID: id, JSON: []byte(`{"id":"` + id + `"}`)} }

// live returns a live response.
func live(id, owner string, lease time.Duration) *store.Response {
	r := response(id, "")
	r.Live, r.Owner, r.Lease = true, owner, lease
	return r
}

// next returns the next version of a response.
func next(r *store.Response) *store.Response {
	changed := *r
	changed.Version++
	return &changed
}

// put writes responses.
func (s *tester) put(tenant string, responses ...*store.Response) {
	s.Helper()
	for _, r := range responses {
		if err := s.Put(s.ctx, tenant, r); err != nil {
			s.Fatalf("Put %s: %v", r.ID, err)
		}
	}
}

// ids returns the ids of responses.
func ids(responses []*store.Response) []string {
	names := make([]string, len(responses))
	for i, r := range responses {
		names[i] = r.ID
	}
	return names
}

// errorOf returns the error of a call with another result.
func errorOf[T any](_ T, err error) error { return err }

// concurrently makes n calls at the same time and returns the numbers of those
// that succeeded. All others must return ErrConflict.
func (s *tester) concurrently(n int, call func(i int) error) (succeeded []int) {
	s.Helper()
	results := make(chan int, n)
	for i := range n {
		go func() {
			switch err := call(i); {
			case err == nil:
				results <- i
			case errors.Is(err, store.ErrConflict):
				results <- -1
			default:
				s.Error(err)
				results <- -1
			}
		}()
	}

	for range n {
		if i := <-results; i >= 0 {
			succeeded = append(succeeded, i)
		}
	}

	return succeeded
}

func key(tenant, id string) store.Key { return store.Key{Tenant: tenant, ID: id} }
