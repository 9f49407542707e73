package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/store/storetest"
)

// TestBreakerStore runs the tests of all stores with one that is protected.
func TestBreakerStore(t *testing.T) {
	t.Parallel()
	storetest.Test(t, func(t testing.TB, o store.Options) store.Store {
		s := store.WithBreaker(store.NewMemory(o), store.BreakerOptions{})
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}

// sickStore is a store whose accesses to texts take a while, or fail.
type sickStore struct {
	store.Store
	delay atomic.Int64 // time that an access takes
	fails atomic.Bool
	made  atomic.Int64 // accesses so far
	panic atomic.Bool
}

func (s *sickStore) access(ctx context.Context) error {
	s.made.Add(1)
	if s.panic.Load() {
		panic("a bug")
	}
	select {
	case <-time.After(time.Duration(s.delay.Load())):
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.fails.Load() {
		return errors.New("the server says no")
	}
	return nil
}

func (s *sickStore) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	if err := s.access(ctx); err != nil {
		return nil, err
	}
	return s.Store.Texts(ctx, tenant, names)
}

func (s *sickStore) PutTexts(ctx context.Context, tenant string, texts map[string]string) error {
	if err := s.access(ctx); err != nil {
		return err
	}
	return s.Store.PutTexts(ctx, tenant, texts)
}

// breakerTest is a protected store that is sick, in a bubble with a clock of its own.
type breakerTest struct {
	*testing.T
	*sickStore
	protected store.Store
	hangs     []bool // the changes so far
}

// testBreaker runs a test in a bubble.
func testBreaker(t *testing.T, test func(g *breakerTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &breakerTest{T: t, sickStore: &sickStore{Store: store.NewMemory(testOptions)}}
		g.protected = store.WithBreaker(g.sickStore, store.BreakerOptions{Changed: func(hangs bool) { g.hangs = append(g.hangs, hangs) }})
		test(g)
		if err := g.protected.Close(); err != nil {
			t.Error(err)
		}
	})
}

// read makes an access within a second, and returns how long it took.
func (g *breakerTest) read() (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(g.Context(), time.Second)
	defer cancel()
	began := time.Now()
	_, err = g.protected.Texts(ctx, "a", []string{"x"})
	return time.Since(began), err
}

// hang makes the store hang, and the breaker notice it.
func (g *breakerTest) hang() {
	g.Helper()
	g.delay.Store(int64(time.Hour))
	for range 5 {
		if took, err := g.read(); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			g.Errorf("an access to a store that hangs: %v after %v", err, took)
		}
	}
}

func TestBreakerStoreHangs(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		g.hang()
		made := g.made.Load()
		for range 100 {
			if took, err := g.read(); took != 0 || !errors.Is(err, store.ErrHangs) {
				g.Fatalf("an access after those that hung: %v after %v", err, took)
			}
		}
		if made := g.made.Load() - made; made != 0 {
			g.Errorf("%d accesses are made", made)
		}
		time.Sleep(30 * time.Second)
		if _, err := g.read(); !errors.Is(err, store.ErrHangs) {
			g.Errorf("while probes hang: %v", err)
		}
		g.delay.Store(0)
		time.Sleep(7 * time.Second) // a probe that hangs may still have to end
		if took, err := g.read(); took != 0 || err != nil {
			g.Errorf("after the store has recovered: %v after %v", err, took)
		}
		if len(g.hangs) != 2 || !g.hangs[0] || g.hangs[1] {
			g.Errorf("changes %v", g.hangs)
		}
	})
}

func TestBreakerStoreSlow(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		g.delay.Store(int64(1200 * time.Millisecond))
		for range 20 {
			if took, err := g.read(); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
				g.Fatalf("an access to a slow store: %v after %v", err, took)
			}
			time.Sleep(time.Second)
		}
		if _, err := g.protected.Texts(g.Context(), "a", nil); err != nil {
			g.Errorf("an access that waits: %v", err)
		}
		if len(g.hangs) != 0 {
			g.Errorf("changes %v", g.hangs)
		}
	})
}

func TestBreakerStoreFails(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		g.fails.Store(true)
		for range 100 {
			if _, err := g.read(); err == nil || errors.Is(err, store.ErrHangs) {
				g.Fatalf("an access to a store that fails at once: %v", err)
			}
		}
	})
}

// A store that hung and now fails at once is asked again: nobody waits for it.
func TestBreakerStoreFailsAfterHanging(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		g.hang()
		g.delay.Store(0)
		g.fails.Store(true)
		time.Sleep(7 * time.Second)
		if _, err := g.read(); err == nil || errors.Is(err, store.ErrHangs) {
			g.Errorf("%v", err)
		}
	})
}

// TestBreakerStorePatient shows that an access waits for a store that hangs if its caller says
// so, and only then.
func TestBreakerStorePatient(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		patient := store.Patiently(g.Context())
		if err := g.protected.Put(g.Context(), "a", live("r", 1)); err != nil {
			g.Fatal(err)
		}
		g.hang()

		within, cancel := context.WithTimeout(patient, 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := g.protected.Append(within, "a", "r", "me", store.Batch{}); !errors.Is(err, store.ErrHangs) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			g.Errorf("Append: %v after %v", err, time.Since(began))
		}

		accesses := map[string]func(ctx context.Context) error{
			"Put of a later version": func(ctx context.Context) error { return g.protected.Put(ctx, "a", live("r", 2)) },
			"Renew":                  func(ctx context.Context) error { _, err := g.protected.Renew(ctx, "me", nil, time.Hour); return err },
			"Events": func(ctx context.Context) error {
				_, err := g.protected.Events(ctx, "a", "r", -1, time.Second)
				return err
			},
		}
		for name, access := range accesses {
			// No method is patient by itself: of each there is a caller whose client waits.
			if err := access(g.Context()); !errors.Is(err, store.ErrHangs) {
				g.Errorf("%s without patience: %v", name, err)
			}

			ended := make(chan error, 1)
			go func() { ended <- access(patient) }()
			time.Sleep(10 * time.Second)
			select {
			case err := <-ended:
				g.Errorf("%s of a store that hangs: %v", name, err)
			default:
			}
			g.delay.Store(0)
			time.Sleep(7 * time.Second)
			if err := <-ended; err != nil {
				g.Errorf("%s: %v", name, err)
			}
			g.hang()
		}
	})
}

// TestBreakerStoreHeld shows that a write to a resource that an earlier write holds does not wait
// for a store that hangs: not if it hangs already, nor when it begins to.
func TestBreakerStoreHeld(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		conversation := &slowConversation{sickStore: g.sickStore}
		protected := store.WithBreaker(conversation, store.BreakerOptions{})
		lock := func(ctx context.Context) error { return protected.Lock(ctx, "a", "c", "r", time.Hour) }

		// The first write is left, and holds the conversation.
		g.delay.Store(int64(time.Hour))
		short, cancel := context.WithTimeout(g.Context(), time.Second)
		defer cancel()
		if err := lock(short); !errors.Is(err, context.DeadlineExceeded) {
			g.Errorf("the first write: %v", err)
		}

		long, cancel := context.WithTimeout(g.Context(), time.Minute)
		defer cancel()
		waiting := make(chan error, 1)
		go func() { waiting <- lock(long) }()
		for range 4 {
			ctx, cancel := context.WithTimeout(g.Context(), 300*time.Millisecond)
			_, _ = protected.Texts(ctx, "a", nil)
			cancel()
		}
		// The last one has opened the breaker, while the first write still holds the conversation.
		time.Sleep(time.Nanosecond)
		select {
		case err := <-waiting:
			if !errors.Is(err, store.ErrHangs) {
				g.Errorf("the write that waited when the breaker opened: %v", err)
			}
		default:
			g.Error("the write that waited when the breaker opened still waits")
		}

		began := time.Now()
		if err := lock(long); !errors.Is(err, store.ErrHangs) || time.Since(began) != 0 {
			g.Errorf("a write while the breaker is open: %v after %v", err, time.Since(began))
		}
		if err := protected.Close(); err != nil {
			g.Error(err)
		}
	})
}

// slowConversation is a sick store whose locks take a while too.
type slowConversation struct{ *sickStore }

func (s *slowConversation) Lock(ctx context.Context, tenant, id, owner string, lease time.Duration) error {
	if err := s.access(ctx); err != nil {
		return err
	}
	return s.Store.Lock(ctx, tenant, id, owner, lease)
}

// TestBreakerStoreOwnAccesses shows that what a store does of its own accord is not done while
// the breaker is open, and is what it can open by.
func TestBreakerStoreOwnAccesses(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		own := &ownStore{sickStore: g.sickStore}
		protected := store.WithBreaker(own, store.BreakerOptions{})
		var made atomic.Int32 // beside the poll: one that hangs is left
		poll := func() error {
			ctx, cancel := context.WithTimeout(g.Context(), time.Second)
			defer cancel()
			return own.through(ctx, func(ctx context.Context) error {
				made.Add(1)
				return g.access(ctx)
			})
		}

		g.delay.Store(int64(time.Hour))
		for range 5 {
			if err := poll(); !errors.Is(err, context.DeadlineExceeded) {
				g.Errorf("a poll that hangs: %v", err)
			}
		}
		if err := poll(); !errors.Is(err, store.ErrHangs) || made.Load() != 5 {
			g.Errorf("a poll while the breaker is open: %v, made: %d", err, made.Load())
		}
		if err := protected.Close(); err != nil {
			g.Error(err)
		}
	})
}

// ownStore is a store that makes accesses of its own.
type ownStore struct {
	*sickStore

	through store.Access
}

func (s *ownStore) Through(access store.Access) { s.through = access }

// Accesses whose callers were canceled show nothing about the store, and end.
func TestBreakerStoreCanceled(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		g.delay.Store(int64(time.Hour))
		for range 10 {
			ctx, cancel := context.WithCancel(g.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := g.protected.Texts(ctx, "a", nil); !errors.Is(err, context.Canceled) {
				g.Errorf("%v", err)
			}
		}
		if len(g.hangs) != 0 {
			g.Errorf("changes %v", g.hangs)
		}
	})
}

// A caller without a deadline does not wait for as long as a store hangs.
func TestBreakerStoreWithoutDeadline(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		g.delay.Store(int64(time.Hour))
		began := time.Now()
		_, err := g.protected.Texts(context.WithoutCancel(g.Context()), "a", nil)
		if waited := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || waited > time.Minute {
			g.Errorf("after %s: %v", waited, err)
		}
	})
}

func TestBreakerStorePanic(t *testing.T) {
	t.Parallel()
	testBreaker(t, func(g *breakerTest) {
		g.panic.Store(true)
		if _, err := g.read(); err == nil {
			g.Error("no error")
		}
	})
}

// Accesses after Close are errors.
func TestBreakerStoreClosed(t *testing.T) {
	t.Parallel()
	g := store.WithBreaker(store.NewMemory(testOptions), store.BreakerOptions{})
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Get(t.Context(), "a", "r"); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// noWrites is a store that takes no writes, as a copy or a full server does.
type noWrites struct{ store.Store }

var errReadOnly = errors.New("READONLY")

func (noWrites) PutTexts(context.Context, string, map[string]string) error { return errReadOnly }

// Until a store has answered once, each try is told. One that only reads has answered.
func TestBreakerContact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sick := &sickStore{Store: noWrites{store.NewMemory(testOptions)}}
		sick.fails.Store(true)
		type contact struct {
			reached bool
			err     error
		}
		contacts := make(chan contact, 10)
		protected := store.WithBreaker(sick, store.BreakerOptions{
			Contact: func(reached bool, err error) { contacts <- contact{reached, err} },
		})
		if len(contacts) != 1 {
			t.Fatalf("%d tries before WithBreaker returns", len(contacts))
		}
		if first := <-contacts; first.reached || first.err == nil {
			t.Errorf("the first try: %v", first)
		}

		time.Sleep(2500 * time.Millisecond)
		sick.fails.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(contacts) != 3 {
			t.Fatalf("%d tries follow the first", len(contacts))
		}
		if second, third := <-contacts, <-contacts; second.reached || third.reached {
			t.Errorf("tries that fail: %v, %v", second, third)
		}
		if last := <-contacts; !last.reached || !errors.Is(last.err, errReadOnly) {
			t.Errorf("the last try: %v", last)
		}
		if err := protected.Close(); err != nil {
			t.Error(err)
		}
	})
}
