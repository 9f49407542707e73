package storetest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// read returns a response as it is expected from Get.
func read(r *store.Response) *store.Response {
	got := *r
	got.Lease = 0
	return &got
}

func testResponses(t *testing.T, open Open) {
	s := begin(t, open)
	full := &store.Response{
		ID: "full", Previous: "unknown", Conversation: "conv", Version: 1, Object: []byte(`{"a":1}`),
		Input: []store.Item{item("b"), item("a"), item("c")}, Output: []store.Item{item("e"), item("d")},
		Live: true, Owner: "me", Lease: time.Hour,
	}

	empty := &store.Response{ID: "empty", Version: 1}
	for _, r := range []*store.Response{full, empty} {
		s.put("a", r)
		got, err := s.Get(s.ctx, "a", r.ID)
		s.must(err)
		s.wantEqual("Get", got, read(r))
	}

	s.wantError("Get of an unknown id", errorOf(s.Get(s.ctx, "a", "none")), store.ErrNotFound)
	s.wantError("Delete of an unknown id", s.Delete(s.ctx, "a", "none"), store.ErrNotFound)
	s.must(s.Delete(s.ctx, "a", "full"))
	s.wantError("Get after Delete", errorOf(s.Get(s.ctx, "a", "full")), store.ErrNotFound)
	s.wantError("Delete twice", s.Delete(s.ctx, "a", "full"), store.ErrNotFound)
	s.put("a", full)
	s.must(errorOf(s.Get(s.ctx, "a", "full")))
}

func testVersions(t *testing.T, open Open) {
	s := begin(t, open)
	r := response("r", "")
	for _, version := range []int64{-1, 0, 2} {
		r.Version = version
		s.wantError(
			"Put of a new response with version "+strconv.FormatInt(version, 10), s.Put(s.ctx, "a", r),
			store.ErrConflict,
		)
	}

	r.Version = 1
	s.put("a", r)
	s.wantError("Put of a version that exists", s.Put(s.ctx, "a", r), store.ErrConflict)

	second := next(r)
	second.Object, second.Output = []byte(`{"second":true}`), []store.Item{item("x"), item("y")}
	second.Live, second.Owner, second.Lease = true, "o", time.Hour
	s.put("a", second)
	got, err := s.Get(s.ctx, "a", "r")
	s.must(err)
	s.wantEqual("Get of the second version", got, read(second))
	s.wantError("Put of the second version twice", s.Put(s.ctx, "a", second), store.ErrConflict)
	s.wantError("Put of the fourth version", s.Put(s.ctx, "a", next(next(second))), store.ErrConflict)

	// A maker that has not noticed the deletion must not bring the response back.
	s.put("a", next(second))
	s.must(s.Delete(s.ctx, "a", "r"))
	s.wantError("Put of a next version after Delete", s.Put(s.ctx, "a", next(next(second))), store.ErrConflict)
	s.wantError("Get", errorOf(s.Get(s.ctx, "a", "r")), store.ErrNotFound)
}

func testVersionsConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	const writers = 8
	for version := range int64(4) {
		succeeded := s.concurrently(writers, func(i int) error {
			r := response("r", "")
			r.Version, r.Object = version+1, []byte(strconv.Itoa(i))
			return s.Put(s.ctx, "a", r)
		})
		if len(succeeded) != 1 {
			t.Fatalf("%d of %d writers of version %d succeeded", len(succeeded), writers, version+1)
		}
		got, err := s.Get(s.ctx, "a", "r")
		s.must(err)
		if string(got.Object) != strconv.Itoa(succeeded[0]) || got.Version != version+1 {
			t.Errorf("version %d has %s, its writer was %d", got.Version, got.Object, succeeded[0])
		}
	}

	// After Put and Delete at the same time, the response does not exist.
	succeeded := s.concurrently(2, func(i int) error {
		if i == 0 {
			return s.Delete(s.ctx, "a", "r")
		}
		r := response("r", "")
		r.Version = 5
		return s.Put(s.ctx, "a", r)
	})

	s.wantError("Get after Delete", errorOf(s.Get(s.ctx, "a", "r")), store.ErrNotFound)
	if len(succeeded) == 0 {
		t.Error("neither Put nor Delete succeeded")
	}
}

func testChains(t *testing.T, open Open) {
	s := begin(t, open)
	s.put(
		"a", response("1", ""), response("2", "1"), response("3", "2"), response("3b", "2"), response("4", "3"),
		response("broken", "none"),
	)
	for id, want := range map[string][]string{
		"1": {"1"}, "2": {"1", "2"}, "3b": {"1", "2", "3b"}, "4": {"1", "2", "3", "4"},
	} {
		chain, err := s.Chain(s.ctx, "a", id)
		s.must(err)
		s.wantEqual("Chain of "+id, ids(chain), want)
	}
	chain, err := s.Chain(s.ctx, "a", "3b")
	s.must(err)
	s.wantEqual("Chain", chain, []*store.Response{response("1", ""), response("2", "1"), response("3b", "2")})
	s.wantError("Chain of an unknown id", errorOf(s.Chain(s.ctx, "a", "none")), store.ErrNotFound)
	s.wantError("Chain without its first response", errorOf(s.Chain(s.ctx, "a", "broken")), store.ErrNotFound)
	s.must(errorOf(s.Get(s.ctx, "a", "broken")))

	s.put("a", next(response("2", "1")))
	chain, err = s.Chain(s.ctx, "a", "4")
	s.must(err)
	s.wantEqual("Chain with an overwritten response", ids(chain), []string{"1", "2", "3", "4"})
	if chain[1].Version != 2 {
		t.Errorf("Chain has version %d", chain[1].Version)
	}

	s.must(s.Delete(s.ctx, "a", "2"))
	for _, id := range []string{"2", "3", "3b", "4"} {
		s.wantError("Chain without its second response, of "+id, errorOf(s.Chain(s.ctx, "a", id)), store.ErrNotFound)
	}
	for _, id := range []string{"1", "3", "3b", "4"} {
		s.must(errorOf(s.Get(s.ctx, "a", id)))
	}
	s.must(errorOf(s.Chain(s.ctx, "a", "1")))

	self := response("self", "self")
	s.put("a", self)
	s.wantError("Chain of a response that continues itself", errorOf(s.Chain(s.ctx, "a", "self")), store.ErrNotFound)

	const long = 200
	s.put("a", response("l0", ""))
	for i := range long {
		s.put("a", response("l"+strconv.Itoa(i+1), "l"+strconv.Itoa(i)))
	}
	chain, err = s.Chain(s.ctx, "a", "l"+strconv.Itoa(long))
	s.must(err)
	if len(chain) != long+1 || chain[long].ID != "l"+strconv.Itoa(long) || chain[0].ID != "l0" {
		t.Errorf("a chain of %d responses: %q", long, ids(chain))
	}
}

// testChainsConcurrent continues one response several times at the same time.
func testChainsConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", response("1", ""))
	const branches = 16
	succeeded := s.concurrently(branches, func(i int) error {
		id := "b" + strconv.Itoa(i)
		if err := s.Put(s.ctx, "a", response(id, "1")); err != nil {
			return err
		}
		return errorOf(s.Chain(s.ctx, "a", id))
	})

	if len(succeeded) != branches {
		t.Errorf("%d of %d branches were written", len(succeeded), branches)
	}
}

func testHead(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", response("1", ""), response("2", "1"), response("3", "2"), response("other", ""))
	head := func(id string) store.Head {
		t.Helper()
		h, err := s.Head(s.ctx, "a", id)
		s.must(err)
		return h
	}
	first := head("3")
	if first.Version != 1 || head("3") != first {
		t.Errorf("Head %+v, then %+v", first, head("3"))
	}
	other := head("other")
	s.must(errorOf(s.Chain(s.ctx, "a", "3")))
	s.put("a", response("4", "3"))
	if head("3") != first {
		t.Error("Head changed after the response was read or continued")
	}
	s.put("a", next(response("1", "")))
	overwritten := head("3")
	if overwritten.Epoch != first.Epoch+1 || overwritten.Version != 1 {
		t.Errorf("Head after the chain's first response was overwritten: %+v, before %+v", overwritten, first)
	}
	if got := head("1"); got.Version != 2 || got.Epoch != overwritten.Epoch {
		t.Errorf("Head of the overwritten response: %+v", got)
	}
	s.must(s.Delete(s.ctx, "a", "2"))
	if got := head("3"); got.Epoch != overwritten.Epoch+1 {
		t.Errorf("Head after a response of the chain was deleted: %+v, before %+v", got, overwritten)
	}
	if head("other") != other {
		t.Error("Head changed with another chain")
	}
	s.wantError("Head of an unknown id", errorOf(s.Head(s.ctx, "a", "none")), store.ErrNotFound)
	s.wantError("Head after Delete", errorOf(s.Head(s.ctx, "a", "2")), store.ErrNotFound)

	s.must(s.Delete(s.ctx, "a", "other"))
	s.put("a", response("other", ""))
	if head("other") == other {
		t.Error("Head of a new response is that of a deleted one with the same id")
	}
}

func testItems(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", response("1", ""), response("2", "1"))
	items := func(ids ...string) map[string]store.Item {
		t.Helper()
		found, err := s.Items(s.ctx, "a", ids)
		s.must(err)
		return found
	}
	s.wantEqual(
		"Items", items("out_1", "none", "in_2", "in_2"),
		map[string]store.Item{"out_1": item("out_1"), "in_2": item("in_2")},
	)
	s.wantEqual("Items without ids", items(), map[string]store.Item{})

	changed := next(response("2", "1"))
	changed.Input = []store.Item{item("in_2x")}
	s.put("a", changed)
	s.wantEqual("Items of an overwritten response", items("in_2", "in_2x", "out_2"),
		map[string]store.Item{"in_2x": item("in_2x"), "out_2": item("out_2")})

	again := response("3", "")
	again.Input = []store.Item{{ID: "out_1", JSON: []byte(`{"id":"out_1","again":true}`)}, item("out_2")}
	s.put("a", again)
	s.wantEqual("an item of two responses", items("out_1"), map[string]store.Item{"out_1": again.Input[0]})
	s.must(s.Delete(s.ctx, "a", "1"))
	s.wantEqual("Items after Delete", items("out_1", "in_1"), map[string]store.Item{"out_1": again.Input[0]})
	s.must(s.Delete(s.ctx, "a", "3"))
	s.wantEqual(
		"Items after Delete of all their responses", items("out_1", "out_2"),
		map[string]store.Item{"out_2": item("out_2")},
	)

	twice := response("twice", "")
	twice.Input = append(twice.Input, twice.Input[0])
	s.put("a", twice)
	s.wantEqual(
		"an item that occurs twice in a response", items("in_twice"),
		map[string]store.Item{"in_twice": item("in_twice")},
	)
}

// testWork reads a large response with accounts. A store that decodes it takes steps first;
// one that has it in memory takes none.
func testWork(t *testing.T, open Open) {
	s := begin(t, open)
	large := response("1", "")
	large.Input = append(
		large.Input,
		store.Item{ID: "large", JSON: []byte(`{"id":"large","text":"` + strings.Repeat("x", 1<<20) + `"}`)},
	)
	s.put("a", large)

	reads := map[string]func(ctx context.Context) error{
		"Get":   func(ctx context.Context) error { return errorOf(s.Get(ctx, "a", "1")) },
		"Chain": func(ctx context.Context) error { return errorOf(s.Chain(ctx, "a", "1")) },
		"Items": func(ctx context.Context) error { return errorOf(s.Items(ctx, "a", []string{"in_1"})) },
	}
	for name, read := range reads {
		const some = 1000
		account := work.New(s.ctx, some)
		err := read(account.Context())
		if free := err == nil && account.Affords(some); !free && !errors.Is(err, work.ErrExceeded) {
			t.Errorf("%s with few steps: %v", name, err)
		}

		account = work.New(s.ctx, work.PerRequest)
		if err := read(account.Context()); err != nil || !account.Affords(work.PerRequest-1<<17) {
			t.Errorf("%s with enough steps: %v, or it took more than a step for 8 bytes", name, err)
		}
	}
}

func testLeases(t *testing.T, open Open) {
	s := begin(t, open)
	isLive := func(id string) bool {
		t.Helper()
		h, err := s.Head(s.ctx, "a", id)
		s.must(err)
		return h.Live
	}
	lapsed := func(id string) bool {
		t.Helper()
		r, err := s.Get(s.ctx, "a", id)
		s.must(err)
		if (r.Lapsed || !r.Live) && isLive(id) {
			t.Errorf("Head says that %s is live, Get that it is not", id)
		}
		return r.Lapsed
	}
	done := response("done", "")
	done.Owner = "me"
	s.put(
		"a", live("mine", "me", time.Hour), live("other", "you", time.Hour),
		live("short", "me", time.Millisecond), live("renewed", "me", time.Millisecond), done,
	)
	s.put("b", live("mine", "you", time.Hour))
	s.eventually("leases expire", func() bool { return lapsed("short") && lapsed("renewed") })
	if lapsed("mine") || lapsed("done") {
		t.Error("Lapsed is set although the lease has not expired or the response is not live")
	}
	if !isLive("mine") {
		t.Error("Head does not say that a response is live")
	}
	keys := []store.Key{
		key("a", "mine"), key("a", "other"), key("a", "none"), key("a", "renewed"), key("a", "done"),
		key("b", "mine"),
	}
	lost, err := s.Renew(s.ctx, "me", keys, time.Hour)
	s.must(err)
	want := map[store.Key]bool{
		key("a", "other"): true, key("a", "none"): true, key("a", "done"): true, key("b", "mine"): true,
	}
	got := map[store.Key]bool{}
	for _, k := range lost {
		got[k] = true
	}
	s.wantEqual("lost leases", got, want)
	if lapsed("renewed") || !isLive("renewed") || !lapsed("short") {
		t.Error("Renew did not renew the lease, or renewed another one")
	}
	chain, err := s.Chain(s.ctx, "a", "short")
	s.must(err)
	if !chain[0].Lapsed {
		t.Error("Chain does not set Lapsed")
	}

	// The owner loses a response that another replica ends after the lease
	// expired.
	ended := next(response("short", ""))
	s.put("a", ended)
	lost, err = s.Renew(s.ctx, "me", []store.Key{key("a", "short")}, time.Hour)
	s.must(err)
	s.wantEqual("a response that has ended", lost, []store.Key{key("a", "short")})
	if lapsed("short") {
		t.Error("Lapsed is set although the response is not live")
	}
	lost, err = s.Renew(s.ctx, "me", nil, time.Hour)
	s.must(err)
	s.wantEqual("Renew without keys", lost, []store.Key{})
	s.must(errorOf(s.Renew(s.ctx, "me", []store.Key{key("a", "mine")}, time.Millisecond)))
	s.eventually("a renewed lease expires", func() bool { return lapsed("mine") })
}
