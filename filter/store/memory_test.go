package store_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/store/storetest"
)

func openMemory(_ testing.TB, o store.Options) store.Store { return store.NewMemory(o) }

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Test(t, openMemory)
}

func TestMemoryRoomFirst(t *testing.T) { storetest.TestRoomFirst(t, openMemory) } // not parallel: allocations are counted

func BenchmarkMemory(b *testing.B) { storetest.Benchmark(b, openMemory) }

// fakeClock is a clock that tests set. Stores read it on goroutines of their own, too.
type fakeClock struct{ nanoseconds atomic.Int64 }

func newFakeClock() *fakeClock {
	c := &fakeClock{}
	c.nanoseconds.Store(time.Unix(1_800_000_000, 0).UnixNano())
	return c
}

func (c *fakeClock) now() time.Time          { return time.Unix(0, c.nanoseconds.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.nanoseconds.Add(int64(d)) }

func response(id, prev string) *store.Response {
	return &store.Response{
		ID: id, Previous: prev, Version: 1, Object: []byte(`{}`),
		Input:  []store.Item{{ID: "in_" + id, JSON: []byte(`{}`)}},
		Output: []store.Item{{ID: "out_" + id, JSON: []byte(`{}`)}},
	}
}

func put(t *testing.T, s store.Store, responses ...*store.Response) {
	t.Helper()
	for _, r := range responses {
		if err := s.Put(t.Context(), "a", r); err != nil {
			t.Fatalf("Put %s: %v", r.ID, err)
		}
	}
}

// testClock checks that TTLs and leases are measured with the store's clock.
func testClock(t *testing.T, open storetest.Open) {
	c := newFakeClock()
	ctx := t.Context()
	s := open(t, store.Options{ResponseTTL: time.Hour, TextTTL: time.Hour, ResponseBytes: 1 << 20, TextBytes: 1 << 20, Now: c.now})
	exists := func(id string) bool {
		t.Helper()
		_, err := s.Get(ctx, "a", id)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	live := response("live", "")
	live.Live, live.Owner, live.Lease = true, "me", time.Minute
	put(t, s, response("1", ""), response("2", "1"), response("3", "2"), response("4", ""), response("5", ""), response("alone", ""), live)
	wantLapsed := func(want bool) {
		t.Helper()
		if r, err := s.Get(ctx, "a", "live"); err != nil || r.Lapsed != want {
			t.Errorf("Lapsed is not %v: %+v, %v", want, r, err)
		}
	}
	c.advance(59 * time.Second)
	wantLapsed(false)
	c.advance(2 * time.Second)
	wantLapsed(true)
	if lost, err := s.Renew(ctx, "me", []store.Key{{Tenant: "a", ID: "live"}}, time.Minute); err != nil || len(lost) > 0 {
		t.Error(lost, err)
	}
	wantLapsed(false)

	for range 5 {
		c.advance(50 * time.Minute)
		if _, err := s.Head(ctx, "a", "2"); err != nil {
			t.Errorf("Head of a chain whose TTL was restarted by Head: %v", err)
		}
		if _, err := s.Chain(ctx, "a", "4"); err != nil {
			t.Errorf("Chain of a chain whose TTL was restarted by Chain: %v", err)
		}
		version, err := s.Get(ctx, "a", "5")
		if err != nil {
			t.Fatalf("Get of a response whose TTL was restarted by Put: %v", err)
		}
		version.Version++
		put(t, s, version)
	}
	if !exists("1") || !exists("2") || !exists("3") || !exists("4") || exists("alone") || exists("live") {
		t.Error("a chain in use has expired, or an unused one has not")
	}
	c.advance(50 * time.Minute)
	exists("1") // Get does not restart the TTL
	c.advance(11 * time.Minute)
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		if exists(id) {
			t.Errorf("%s has not expired", id)
		}
	}
	put(t, s, response("1", ""))
}

func TestMemoryClock(t *testing.T) {
	t.Parallel()
	testClock(t, openMemory)
}

func TestMemoryBound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const limit = 100_000
	s := store.NewMemory(store.Options{ResponseTTL: time.Hour, TextTTL: time.Hour, ResponseBytes: limit, TextBytes: limit})
	for i := range 1000 {
		id := strconv.Itoa(i)
		put(t, s, response(id, ""))
		for _, err := range []error{
			s.PutConversation(ctx, "a", &store.Conversation{ID: id, Metadata: []byte(`{}`)}),
			s.AddItems(ctx, "a", id, "", []store.Item{{ID: "i", JSON: []byte(`{}`)}}),
			s.PutTexts(ctx, "a", map[string]string{id: strings.Repeat("x", 1000)}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Texts(ctx, "a", []string{"0"}); err != nil { // mark the text as used
			t.Fatal(err)
		}
	}
	if s.Bytes() > 2*limit || s.Bytes() < limit {
		t.Errorf("%d bytes, limit %d", s.Bytes(), 2*limit)
	}
	found, _ := s.Texts(ctx, "a", []string{"0", "1", "999"})
	if len(found) != 2 || found["1"] != "" {
		t.Error("a text used long ago has not been dropped, or one used recently has")
	}
	if _, err := s.Get(ctx, "a", "999"); err != nil {
		t.Error("the newest response has been dropped")
	}
	if _, err := s.Get(ctx, "a", "0"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get of the oldest response: %v", err)
	}
	if items, _ := s.Items(ctx, "a", []string{"in_0", "in_999"}); len(items) != 1 {
		t.Errorf("%d items", len(items))
	}
}

func TestMemoryTooLarge(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const limit = 100_000
	s := store.NewMemory(store.Options{ResponseTTL: time.Hour, TextTTL: time.Hour, ResponseBytes: limit, TextBytes: limit})
	put(t, s, response("999", ""))
	if err := s.PutConversation(ctx, "a", &store.Conversation{ID: "999", Metadata: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	large := response("large", "")
	large.Object = []byte(strings.Repeat("x", limit))
	for name, err := range map[string]error{
		"Put":              s.Put(ctx, "a", large),
		"AddItems":         s.AddItems(ctx, "a", "999", "", []store.Item{{ID: "l", JSON: large.Object}}),
		"Put of version 2": s.Put(ctx, "a", &store.Response{ID: "999", Version: 2, Object: large.Object}),
		"Put to a chain":   s.Put(ctx, "a", &store.Response{ID: "more", Previous: "999", Version: 1, Object: large.Object}),
		"PutConversation":  s.PutConversation(ctx, "a", &store.Conversation{ID: "large", Metadata: large.Object}),
		"PutMetadata":      s.PutMetadata(ctx, "a", "999", large.Object),
	} {
		if !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%s above the limit: %v", name, err)
		}
	}
	if r, err := s.Get(ctx, "a", "999"); err != nil || r.Version != 1 {
		t.Errorf("a failed write has changed the response: %v", err)
	}
	none := store.NewMemory(store.Options{ResponseTTL: time.Hour, TextTTL: time.Hour})
	if err := none.Put(ctx, "a", response("1", "")); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("Put with a limit of 0: %v", err)
	}
	if text, err := none.PutTextIfAbsent(ctx, "a", "x", "1"); text != "1" || err != nil || none.Bytes() != 0 {
		t.Errorf("PutTextIfAbsent with a limit of 0: %q, %d bytes", text, none.Bytes())
	}
}

// TestMemoryFreesBytes checks that all counted bytes are subtracted after
// deletion.
func TestMemoryFreesBytes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := store.NewMemory(store.Options{ResponseTTL: time.Hour, TextTTL: time.Hour, ResponseBytes: 1 << 20, TextBytes: 1 << 20})
	first := response("1", "")
	first.Live = true
	put(t, s, first, response("2", "1"), response("3", "2"))
	if err := s.Append(ctx, "a", "1", "", store.Batch{SSE: []byte("data: x\n\n")}); err != nil {
		t.Fatal(err)
	}
	first.Version, first.Output = 2, nil
	put(t, s, first)
	for _, err := range []error{
		s.PutConversation(ctx, "a", &store.Conversation{ID: "c", Metadata: []byte(`{}`)}),
		s.PutMetadata(ctx, "a", "c", []byte(`{"a":"b"}`)),
		s.AddItems(ctx, "a", "c", "", []store.Item{{ID: "i", JSON: []byte(`{}`)}, {ID: "j"}}),
		s.DeleteItem(ctx, "a", "c", "i"),
		s.DeleteConversation(ctx, "a", "c"),
		s.Delete(ctx, "a", "2"), s.Delete(ctx, "a", "1"), s.Delete(ctx, "a", "3"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if s.Bytes() != 0 {
		t.Errorf("%d bytes are left", s.Bytes())
	}
}
