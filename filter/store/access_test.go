package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// lateStore is a store whose writes take effect late, or with their answer lost.
type lateStore struct {
	store.Store
	delay atomic.Int64 // before the next write takes effect; its context does not cancel it
	lost  atomic.Bool  // the next write takes effect, its answer is an error
}

var errLost = errors.New("the connection was lost")

func (s *lateStore) write(access func(ctx context.Context) error) error {
	delay, lost := s.delay.Swap(0), s.lost.Swap(false)
	time.Sleep(time.Duration(delay))
	err := access(context.Background())
	if lost {
		return errLost
	}
	return err
}

func (s *lateStore) Put(_ context.Context, tenant string, r *store.Response) error {
	return s.write(func(ctx context.Context) error { return s.Store.Put(ctx, tenant, r) })
}

func (s *lateStore) Append(_ context.Context, tenant, id, owner string, b store.Batch) error {
	return s.write(func(ctx context.Context) error { return s.Store.Append(ctx, tenant, id, owner, b) })
}

func (s *lateStore) PutConversation(_ context.Context, tenant string, c *store.Conversation) error {
	return s.write(func(ctx context.Context) error { return s.Store.PutConversation(ctx, tenant, c) })
}

func (s *lateStore) AddItems(_ context.Context, tenant, id, owner string, items []store.Item) error {
	return s.write(func(ctx context.Context) error { return s.Store.AddItems(ctx, tenant, id, owner, items) })
}

func (s *lateStore) Lock(_ context.Context, tenant, id, owner string, lease time.Duration) error {
	return s.write(func(ctx context.Context) error { return s.Store.Lock(ctx, tenant, id, owner, lease) })
}

func (s *lateStore) BeginApproval(_ context.Context, tenant, name, text string) (first string, err error) {
	err = s.write(func(ctx context.Context) (err error) {
		first, err = s.Store.BeginApproval(ctx, tenant, name, text)
		return err
	})
	return first, err
}

func (s *lateStore) Charge(_ context.Context, charges []store.Charge) (charged store.Charged, err error) {
	err = s.write(func(ctx context.Context) (err error) {
		charged, err = s.Store.Charge(ctx, charges)
		return err
	})
	return charged, err
}

// testLate runs a test with a protected store that has a conversation "c" and a live
// response "r".
func testLate(t *testing.T, test func(t *testing.T, s *lateStore, protected store.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &lateStore{Store: store.NewMemory(testOptions)}
		protected := store.WithBreaker(s, store.BreakerOptions{})
		for _, err := range []error{
			protected.PutConversation(t.Context(), "a", &store.Conversation{ID: "c"}),
			protected.Put(t.Context(), "a", live("r", 1)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		test(t, s, protected)
		if err := protected.Close(); err != nil {
			t.Error(err)
		}
	})
}

func live(id string, version int64) *store.Response {
	return &store.Response{ID: id, Version: version, Object: []byte("{}"), Live: true, Owner: "me", Lease: time.Hour}
}

// lateWrites are writes that are undone if they take effect after they have failed.
// gone returns an error if one has an effect.
var lateWrites = map[string]struct {
	write, gone func(ctx context.Context, s store.Store) error
}{
	"Lock": {
		func(ctx context.Context, s store.Store) error { return s.Lock(ctx, "a", "c", "r", time.Hour) },
		func(ctx context.Context, s store.Store) error { return s.Lock(ctx, "a", "c", "other", time.Hour) },
	},
	"BeginApproval": {
		func(ctx context.Context, s store.Store) error {
			_, err := s.BeginApproval(ctx, "a", "x", "1")
			return err
		},
		func(ctx context.Context, s store.Store) error {
			first, err := s.BeginApproval(ctx, "a", "x", "2")
			if first != "2" {
				err = errors.Join(err, errors.New("the approval is begun"))
			}
			return err
		},
	},
	"Put of a new response": {
		func(ctx context.Context, s store.Store) error { return s.Put(ctx, "a", live("new", 1)) },
		func(ctx context.Context, s store.Store) error { return s.Put(ctx, "a", response("new", "")) },
	},
	"PutConversation": {
		func(ctx context.Context, s store.Store) error {
			return s.PutConversation(ctx, "a", &store.Conversation{ID: "new"})
		},
		func(ctx context.Context, s store.Store) error {
			return s.PutConversation(ctx, "a", &store.Conversation{ID: "new"})
		},
	},
	"AddItems": {
		func(ctx context.Context, s store.Store) error {
			return s.AddItems(ctx, "a", "c", "", []store.Item{{ID: "i", JSON: []byte("{}")}})
		},
		func(ctx context.Context, s store.Store) error {
			return s.AddItems(ctx, "a", "c", "", []store.Item{{ID: "i", JSON: []byte("{}")}})
		},
	},
}

// A write that takes effect after its caller has been told that it failed is undone,
// before the next write of the same resource is made.
func TestBreakerStoreUndoesLateWrites(t *testing.T) {
	t.Parallel()
	for name, w := range lateWrites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testLate(t, func(t *testing.T, s *lateStore, protected store.Store) {
				s.delay.Store(int64(3 * time.Second))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := w.write(ctx, protected); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the late write: %v", err)
				}
				if err := w.gone(t.Context(), protected); err != nil {
					t.Errorf("the next write: %v", err)
				}
			})
		})
	}
}

// A lock and an approval are also undone if the answer to them was lost.
func TestBreakerStoreUndoesLostWrites(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Lock", "BeginApproval"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testLate(t, func(t *testing.T, s *lateStore, protected store.Store) {
				s.lost.Store(true)
				if err := lateWrites[name].write(t.Context(), protected); !errors.Is(err, errLost) {
					t.Errorf("the lost write: %v", err)
				}
				if err := lateWrites[name].gone(t.Context(), protected); err != nil {
					t.Errorf("the next write: %v", err)
				}
			})
		})
	}
}

// A charge that takes effect late is returned. None waits for another.
func TestBreakerStoreReturnsLateCharges(t *testing.T) {
	t.Parallel()
	testLate(t, func(t *testing.T, s *lateStore, protected store.Store) {
		charge := func(amount int64) (store.Charged, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return protected.Charge(ctx, []store.Charge{{Name: "x", Window: 24 * 365 * time.Hour, Amount: amount, Limit: 100}})
		}
		s.delay.Store(int64(3 * time.Second))
		if _, err := charge(70); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the late charge: %v", err)
		}
		if got, err := charge(20); err != nil || got.Counts[0].Used != 20 {
			t.Errorf("the next charge: %+v, %v", got, err)
		}
		time.Sleep(5 * time.Second)
		if got, err := charge(80); err != nil || got.Counts[0].Used != 100 {
			t.Errorf("after the late charge was returned: %+v, %v", got, err)
		}
	})
}

// What was begun by another before is not undone.
func TestBreakerStoreUndoesNothingOfOthers(t *testing.T) {
	t.Parallel()
	testLate(t, func(t *testing.T, s *lateStore, protected store.Store) {
		for _, err := range []error{
			protected.Lock(t.Context(), "a", "c", "other", time.Hour),
			lateWrites["BeginApproval"].gone(t.Context(), protected),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"Lock", "BeginApproval"} {
			s.delay.Store(int64(3 * time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := lateWrites[name].write(ctx, protected); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			time.Sleep(5 * time.Second)
		}
		if err := protected.Lock(t.Context(), "a", "c", "third", time.Hour); !errors.Is(err, store.ErrConflict) {
			t.Errorf("the lock of another is gone: %v", err)
		}
		if first, err := protected.BeginApproval(t.Context(), "a", "x", "3"); first != "2" || err != nil {
			t.Errorf("the approval of another is gone: %q, %v", first, err)
		}
	})
}

// A write that is repeated, and meets itself, has succeeded. One that meets another
// has a conflict.
func TestBreakerStoreRepeatedWrites(t *testing.T) {
	t.Parallel()
	batch := store.Batch{First: 0, Last: 1, SSE: []byte("x")}
	other := live("r", 2)
	other.Object = []byte(`{"a":1}`)
	put := func(r *store.Response) func(ctx context.Context, s store.Store) error {
		return func(ctx context.Context, s store.Store) error { return s.Put(ctx, "a", r) }
	}
	appended := func(b store.Batch) func(ctx context.Context, s store.Store) error {
		return func(ctx context.Context, s store.Store) error { return s.Append(ctx, "a", "r", "me", b) }
	}
	for name, c := range map[string]struct {
		write, again func(ctx context.Context, s store.Store) error
		want         error
	}{
		"Put of the same":     {put(live("r", 2)), put(live("r", 2)), nil},
		"Put of another":      {put(live("r", 2)), put(other), store.ErrConflict},
		"Append of the same":  {appended(batch), appended(batch), nil},
		"Append of another":   {appended(batch), appended(store.Batch{First: 0, Last: 1, SSE: []byte("y")}), store.ErrConflict},
		"Put of the same new": {put(live("n", 1)), put(live("n", 1)), nil},
	} {
		for _, late := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testLate(t, func(t *testing.T, s *lateStore, protected store.Store) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					s.lost.Store(!late)
					if late {
						s.delay.Store(int64(3 * time.Second))
					}
					if err := c.write(ctx, protected); err == nil {
						t.Error("the first attempt has not failed")
					}
					if err := c.again(t.Context(), protected); !errors.Is(err, c.want) {
						t.Errorf("the second attempt: %v, want %v", err, c.want)
					}
				})
			})
		}
	}
}
