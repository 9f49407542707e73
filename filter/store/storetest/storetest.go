// Package storetest is what every kind of store passes.
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

// Test tests the kind of store that open opens. It uses the real clock: what is
// to run out has a short age, and is waited for.
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
		{"Leases", testLeases},
		{"Journal", testJournal},
		{"JournalEnd", testJournalEnd},
		{"JournalPages", testJournalPages},
		{"JournalWaits", testJournalWaits},
		{"JournalConcurrent", testJournalConcurrent},
		{"Conversations", testConversations},
		{"ConversationPages", testConversationPages},
		{"ConversationHolds", testConversationHolds},
		{"ConversationHoldsLost", testConversationHoldsLost},
		{"ConversationsConcurrent", testConversationsConcurrent},
		{"Texts", testTexts},
		{"TextsConcurrent", testTextsConcurrent},
		{"Claims", testClaims},
		{"ClaimsConcurrent", testClaimsConcurrent},
		{"ClaimsLast", testClaimsLast},
		{"Tenants", testTenants},
		{"Ages", testAges},
		{"StrangeNames", testStrangeNames},
		{"LargeItems", testLargeItems},
		{"Cancelled", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, open)
		})
	}
}

// options keep everything for as long as a test runs.
var options = store.Options{ResponseTTL: time.Hour, TextTTL: time.Hour, ResponseBytes: 64 << 20, TextBytes: 1 << 20}

// patience is how long something may take that is waited for.
const patience = 20 * time.Second

// tester is a store under test, whose errors end the test.
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

// must ends the test where err is an error.
func (s *tester) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// fails tells of an error that is not the one that is wanted.
func (s *tester) fails(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// same tells of what is not as it should be. What is empty may be nil.
func (s *tester) same(what string, got, want any) {
	s.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// eventually waits until something is so.
func (s *tester) eventually(what string, so func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("never so: %s", what)
		}
	}
}

// response makes a response that continues another, with one item each way.
func response(id, previous string) *store.Response {
	return &store.Response{
		ID: id, Previous: previous, Version: 1, Object: []byte(`{"id":"` + id + `"}`),
		Input:  []store.Item{item("in_" + id)},
		Output: []store.Item{item("out_" + id)},
	}
}

func item(id string) store.Item { return store.Item{ID: id, JSON: []byte(`{"id":"` + id + `"}`)} }

// live makes a response that owner is making.
func live(id, owner string, lease time.Duration) *store.Response {
	r := response(id, "")
	r.Live, r.Owner, r.Lease = true, owner, lease
	return r
}

// next is the response written once more.
func next(r *store.Response) *store.Response {
	changed := *r
	changed.Version++
	return &changed
}

// put puts responses.
func (s *tester) put(tenant string, responses ...*store.Response) {
	s.Helper()
	for _, r := range responses {
		if err := s.Put(s.ctx, tenant, r); err != nil {
			s.Fatalf("Put %s: %v", r.ID, err)
		}
	}
}

// ids names responses.
func ids(responses []*store.Response) []string {
	names := make([]string, len(responses))
	for i, r := range responses {
		names[i] = r.ID
	}
	return names
}

// errorOf is the error of a call that gives something else too.
func errorOf[T any](_ T, err error) error { return err }

// won counts the calls that gave no error, all others must give ErrConflict.
func (s *tester) won(n int, call func(i int) error) (winners []int) {
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
			winners = append(winners, i)
		}
	}
	return winners
}

func key(tenant, id string) store.Key { return store.Key{Tenant: tenant, ID: id} }
