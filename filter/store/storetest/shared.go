package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// TestShared tests an implementation whose data several processes can share.
// Each call of newOpen returns an Open with new, empty data, which all stores
// it opens share.
func TestShared(t *testing.T, newOpen func(t testing.TB) Open) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, a, b *tester)
	}{
		{"Chain", sharedChain},
		{"Follow", sharedFollow},
		{"Cancel", sharedCancel},
		{"Writers", sharedWriters},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			open := newOpen(t)

			// Both replicas may try to create the tables.
			opened := make(chan *tester, 2)
			for range 2 {
				go func() {
					var s *tester
					defer func() { opened <- s }()
					s = begin(t, open)
				}()
			}

			a, b := <-opened, <-opened
			if a == nil || b == nil {
				t.FailNow()
			}
			c.test(t, a, b)
		})
	}
}

// sharedChain continues a chain on two replicas in turn.
func sharedChain(t *testing.T, a, b *tester) {
	a.put("a", response("0", ""))
	const turns = 10
	want := append(make([]string, 0, turns+1), "0")
	for i := range turns {
		s, other := a, b
		if i%2 == 0 {
			s, other = b, a
		}
		chain, err := s.Chain(s.ctx, "a", strconv.Itoa(i))
		s.must(err)
		s.wantEqual("Chain at another replica", ids(chain), want)

		// The other replica has the chain in memory: a new response that continues it leaves that
		// valid.
		before, err := other.Head(s.ctx, "a", strconv.Itoa(i))
		s.must(err)
		s.put("a", response(strconv.Itoa(i+1), strconv.Itoa(i)))
		want = append(want, strconv.Itoa(i+1))
		after, err := other.Head(s.ctx, "a", strconv.Itoa(i))
		s.must(err)
		s.wantEqual("Head at another replica", after, before)
	}

	before, err := a.Head(a.ctx, "a", strconv.Itoa(turns))
	a.must(err)
	b.must(b.Delete(b.ctx, "a", "0"))
	if after, err := a.Head(a.ctx, "a", strconv.Itoa(turns)); err != nil || after.Epoch == before.Epoch {
		t.Errorf("Head after another replica's Delete: %v", err)
	}

	a.must(a.PutConversation(a.ctx, "a", conversation("c")))
	a.must(a.Lock(a.ctx, "a", "c", "r", time.Hour))
	b.wantError("AddItems at another replica", b.AddItems(b.ctx, "a", "c", "", items("1")), store.ErrConflict)
}

// sharedFollow follows on one replica what another one writes.
func sharedFollow(t *testing.T, a, b *tester) {
	a.put("a", live("r", "a", time.Hour))
	const batches = 20
	got := make(chan int)
	go func() {
		next := 0
		for {
			found, err := b.Events(b.ctx, "a", "r", next-1, patience)
			if err != nil || len(found) == 0 {
				t.Errorf("Events: %d, %v", len(found), err)
				break
			}
			next = found[len(found)-1].Last + 1
			if found[len(found)-1].End {
				break
			}
		}
		got <- next
	}()

	for i := range batches {
		a.must(a.Append(a.ctx, "a", "r", "a", batch(i, i, i == batches-1)))
		// So that the follower has to wait; the test does not depend on it.
		time.Sleep(5 * time.Millisecond)
	}

	if n := <-got; n != batches {
		t.Errorf("%d of %d events", n, batches)
	}
}

// sharedCancel cancels on one replica a response of another one.
func sharedCancel(_ *testing.T, a, b *tester) {
	r := live("r", "a", time.Hour)
	a.put("a", r)
	canceled := next(r)
	canceled.Live, canceled.Owner = false, ""
	b.put("a", canceled)
	b.must(b.Append(b.ctx, "a", "r", "", batch(0, 0, true)))
	lost, err := a.Renew(a.ctx, "a", []store.Key{key("a", "r")}, time.Hour)
	a.must(err)
	a.wantEqual("lost leases", lost, []store.Key{key("a", "r")})
	a.wantError("Append", a.Append(a.ctx, "a", "r", "a", batch(1, 1, false)), store.ErrConflict)
	a.wantError("Put of a response that was canceled", a.Put(a.ctx, "a", next(r)), store.ErrConflict)
}

// sharedWriters writes the same response on two replicas at the same time.
func sharedWriters(t *testing.T, a, b *tester) {
	const writers = 6
	for version := range int64(3) {
		succeeded := a.concurrently(writers, func(i int) error {
			r := response("r", "")
			r.Version = version + 1
			return []*tester{a, b}[i%2].Put(a.ctx, "a", r)
		})
		if len(succeeded) != 1 {
			t.Errorf("%d of %d writers succeeded", len(succeeded), writers)
		}
	}
}
