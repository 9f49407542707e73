package storetest

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

func conversation(id string) *store.Conversation {
	return &store.Conversation{ID: id, Created: 1_700_000_000, Metadata: []byte(`{"a":"b"}`)}
}

func (s *tester) page(id string, p store.Page) []store.Item {
	s.Helper()
	items, err := s.ConversationItems(s.ctx, "a", id, p)
	s.must(err)
	return items
}

func (s *tester) size(id string) store.Size {
	s.Helper()
	size, err := s.ConversationSize(s.ctx, "a", id)
	s.must(err)
	return size
}

func sizeOf(items []store.Item) store.Size {
	size := store.Size{Items: len(items)}
	for _, i := range items {
		size.Bytes += int64(len(i.JSON))
	}
	return size
}

func items(ids ...string) []store.Item {
	list := make([]store.Item, len(ids))
	for i, id := range ids {
		list[i] = item(id)
	}
	return list
}

func testConversations(t *testing.T, open Open) {
	s := begin(t, open)
	c := conversation("c")
	s.must(s.PutConversation(s.ctx, "a", c))
	got, err := s.Conversation(s.ctx, "a", "c")
	s.must(err)
	s.wantEqual("Conversation", got, c)
	s.wantEqual("items of a new conversation", s.page("c", store.Page{}), []store.Item{})
	s.wantEqual("size of a new conversation", s.size("c"), store.Size{})

	s.must(s.AddItems(s.ctx, "a", "c", "", items("1", "2", "3")))
	s.must(s.AddItems(s.ctx, "a", "c", "", nil))
	s.wantError(
		"PutConversation of an id that exists", s.PutConversation(s.ctx, "a", conversation("c")),
		store.ErrConflict,
	)
	c.Metadata = []byte(`{}`)
	s.must(s.PutMetadata(s.ctx, "a", "c", c.Metadata))
	got, err = s.Conversation(s.ctx, "a", "c")
	s.must(err)
	s.wantEqual("Conversation with other metadata", got, c)
	s.wantEqual("its items", s.page("c", store.Page{}), items("1", "2", "3"))
	s.wantEqual("its size", s.size("c"), sizeOf(items("1", "2", "3")))

	one, err := s.ConversationItem(s.ctx, "a", "c", "2")
	s.must(err)
	s.wantEqual("ConversationItem", one, item("2"))
	s.must(s.DeleteItem(s.ctx, "a", "c", "2"))
	s.wantError(
		"ConversationItem after DeleteItem", errorOf(s.ConversationItem(s.ctx, "a", "c", "2")),
		store.ErrNotFound,
	)
	s.wantError("DeleteItem twice", s.DeleteItem(s.ctx, "a", "c", "2"), store.ErrNotFound)

	s.wantError("AddItems of an id that exists", s.AddItems(s.ctx, "a", "c", "", items("4", "3")), store.ErrConflict)
	s.wantError(
		"AddItems with a duplicate id", s.AddItems(s.ctx, "a", "c", "", items("5", "6", "5")),
		store.ErrConflict,
	)
	s.wantEqual("items after failed calls", s.page("c", store.Page{}), items("1", "3"))
	s.must(s.AddItems(s.ctx, "a", "c", "", items("2")))
	s.wantEqual("size after a deleted item was added again", s.size("c"), sizeOf(items("1", "2", "3")))
	s.wantEqual("items after a deleted one was added again", s.page("c", store.Page{}), items("1", "3", "2"))

	s.wantError("Conversation of an unknown id", errorOf(s.Conversation(s.ctx, "a", "none")), store.ErrNotFound)
	s.wantError("ConversationSize of an unknown id", errorOf(s.ConversationSize(s.ctx, "a", "none")), store.ErrNotFound)
	s.wantError(
		"ConversationItems of an unknown id", errorOf(s.ConversationItems(s.ctx, "a", "none", store.Page{})),
		store.ErrNotFound,
	)
	s.wantError(
		"ConversationItem of an unknown id", errorOf(s.ConversationItem(s.ctx, "a", "none", "1")),
		store.ErrNotFound,
	)
	s.wantError(
		"ConversationItem of an unknown item", errorOf(s.ConversationItem(s.ctx, "a", "c", "none")),
		store.ErrNotFound,
	)
	s.wantError("DeleteItem of an unknown id", s.DeleteItem(s.ctx, "a", "none", "1"), store.ErrNotFound)
	s.wantError("PutMetadata of an unknown id", s.PutMetadata(s.ctx, "a", "none", c.Metadata), store.ErrNotFound)
	s.wantError("AddItems to an unknown id", s.AddItems(s.ctx, "a", "none", "", items("1")), store.ErrNotFound)
	s.wantError("DeleteConversation of an unknown id", s.DeleteConversation(s.ctx, "a", "none"), store.ErrNotFound)

	r := response("r", "")
	r.Conversation = "c"
	s.put("a", r)
	s.must(s.DeleteConversation(s.ctx, "a", "c"))
	s.wantError("Conversation after its deletion", errorOf(s.Conversation(s.ctx, "a", "c")), store.ErrNotFound)
	s.wantError("PutMetadata after its deletion", s.PutMetadata(s.ctx, "a", "c", c.Metadata), store.ErrNotFound)
	s.wantError("Conversation after PutMetadata", errorOf(s.Conversation(s.ctx, "a", "c")), store.ErrNotFound)
	s.wantError(
		"ConversationItem after its deletion", errorOf(s.ConversationItem(s.ctx, "a", "c", "1")),
		store.ErrNotFound,
	)
	s.must(errorOf(s.Get(s.ctx, "a", "r")))
	s.must(s.PutConversation(s.ctx, "a", c))
	s.wantEqual("items of a new conversation with that id", s.page("c", store.Page{}), []store.Item{})
}

func testConversationPages(t *testing.T, open Open) {
	s := begin(t, open)
	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	s.must(s.PutConversation(s.ctx, "a", conversation("d")))
	const n = 25
	all := make([]store.Item, n)
	for i := range all {
		all[i] = item("i" + strconv.Itoa(i))
	}

	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	s.must(s.AddItems(s.ctx, "a", "c", "", all[:20]))
	s.must(s.AddItems(s.ctx, "a", "d", "", items("i3", "other")))
	s.must(s.AddItems(s.ctx, "a", "c", "", all[20:]))

	for _, c := range []struct {
		page store.Page
		want []store.Item
	}{
		{store.Page{}, all},
		{store.Page{Descending: true}, reversed},
		{store.Page{Limit: 3}, all[:3]},
		{store.Page{Limit: 3, Descending: true}, reversed[:3]},
		{store.Page{After: "i4"}, all[5:]},
		{store.Page{After: "i4", Limit: 100}, all[5:]},
		{store.Page{After: "i19", Limit: 2}, all[20:22]},
		{store.Page{After: "i4", Descending: true}, reversed[n-4:]},
		{store.Page{After: "i20", Limit: 2, Descending: true}, reversed[5:7]},
		{store.Page{After: "i24"}, nil},
		{store.Page{After: "i0", Descending: true}, nil},
	} {
		s.wantEqual("a page", s.page("c", c.page), c.want)
	}

	for _, after := range []string{"none", "other"} {
		s.wantError(
			"a page after an unknown item",
			errorOf(s.ConversationItems(s.ctx, "a", "c", store.Page{After: after})), store.ErrNotFound,
		)
	}

	s.must(s.DeleteItem(s.ctx, "a", "c", "i4"))
	s.wantError(
		"a page after a deleted item", errorOf(s.ConversationItems(s.ctx, "a", "c", store.Page{After: "i4"})),
		store.ErrNotFound,
	)
	s.wantEqual("a page with a deleted item", s.page("c", store.Page{After: "i3", Limit: 1}), items("i5"))
}

func testConversationLocks(t *testing.T, open Open) {
	s := begin(t, open)
	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	lock := func(owner string, lease time.Duration) error { return s.Lock(s.ctx, "a", "c", owner, lease) }

	s.must(lock("r1", time.Hour))
	s.must(lock("r1", time.Hour))
	s.wantError("Lock of a locked conversation", lock("r2", time.Hour), store.ErrConflict)
	s.wantError("unlocking another owner's lock", lock("r2", 0), store.ErrConflict)
	s.wantError("AddItems of a client", s.AddItems(s.ctx, "a", "c", "", items("1")), store.ErrConflict)
	s.wantError("AddItems of another owner", s.AddItems(s.ctx, "a", "c", "r2", items("1")), store.ErrConflict)
	s.must(s.AddItems(s.ctx, "a", "c", "r1", items("1")))

	// Unlocking twice is no error: a reply releases its lock wherever it ends.
	s.must(lock("r1", 0))
	s.must(lock("r1", 0))
	s.must(s.AddItems(s.ctx, "a", "c", "", items("2")))

	s.must(lock("r2", time.Millisecond))
	s.eventually("a lock expires", func() bool { return lock("r3", time.Hour) == nil })
	s.wantError("Lock after another owner took an expired lock", lock("r2", time.Hour), store.ErrConflict)

	// A write of the metadata must not lose the lock, which is in the same row or key.
	s.must(s.PutMetadata(s.ctx, "a", "c", []byte(`{}`)))
	s.wantError("Lock after PutMetadata", lock("r2", time.Hour), store.ErrConflict)
	s.must(s.AddItems(s.ctx, "a", "c", "r3", items("3")))
	s.wantEqual("items", s.page("c", store.Page{}), items("1", "2", "3"))

	s.wantError("Lock of an unknown id", s.Lock(s.ctx, "a", "none", "r1", time.Hour), store.ErrNotFound)
	s.wantError("RenewLock of an unknown id", s.RenewLock(s.ctx, "a", "none", "r1", time.Hour), store.ErrNotFound)
}

// testConversationLocksLost checks that an owner loses its lock if another owner or a
// client used the conversation, but not if only its lease has expired.
func testConversationLocksLost(t *testing.T, open Open) {
	s := begin(t, open)
	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	lock := func(owner string, lease time.Duration) error { return s.Lock(s.ctx, "a", "c", owner, lease) }
	renew := func(owner string) error { return s.RenewLock(s.ctx, "a", "c", owner, time.Hour) }
	add := func(owner string, ids ...string) error { return s.AddItems(s.ctx, "a", "c", owner, items(ids...)) }
	wantLost := func(owner, state string) {
		t.Helper()
		s.wantError("RenewLock "+state, renew(owner), store.ErrConflict)
		s.wantError("AddItems "+state, add(owner, "lost"), store.ErrConflict)
		s.wantError("AddItems without items "+state, add(owner), store.ErrConflict)
	}
	wantLost("none", "without a lock")

	s.must(lock("first", time.Millisecond))
	s.eventually("another owner takes an expired lock", func() bool { return lock("second", time.Hour) == nil })
	wantLost("first", "after another owner's Lock")
	s.must(add("second", "1"))
	wantLost("first", "after another owner's AddItems")
	s.must(renew("second"))
	s.must(lock("second", 0))
	wantLost("first", "after another owner unlocked")
	wantLost("second", "after unlocking")

	s.must(lock("third", time.Millisecond))
	s.eventually("a client adds items after a lock has expired", func() bool { return add("", "2") == nil })
	wantLost("third", "after a client's AddItems")

	s.must(lock("fourth", time.Millisecond))
	// So that it has expired; the test does not depend on it.
	time.Sleep(20 * time.Millisecond)
	// ErrConflict if it has not expired.
	_ = lock("first", 0)
	s.must(add("fourth", "3"))
	s.must(renew("fourth"))
	s.wantError("AddItems of a client after the lock was renewed", add("", "4"), store.ErrConflict)
	s.wantEqual("items", s.page("c", store.Page{}), items("1", "2", "3"))
}

func testConversationsConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	const writers = 8
	if succeeded := s.concurrently(
		writers, func(i int) error { return s.Lock(s.ctx, "a", "c", strconv.Itoa(i), time.Hour) },
	); len(succeeded) != 1 {
		t.Errorf("%d of %d owners have locked a conversation", len(succeeded), writers)
	}

	// The same ids: one adds both of its items, the others none.
	s.must(s.PutConversation(s.ctx, "a", conversation("d")))
	if succeeded := s.concurrently(
		writers, func(int) error { return s.AddItems(s.ctx, "a", "d", "", items("x", "y")) },
	); len(succeeded) != 1 {
		t.Errorf("%d of %d writers added the same items", len(succeeded), writers)
	}
	if succeeded := s.concurrently(writers, func(i int) error {
		return s.AddItems(s.ctx, "a", "d", "", items("a"+strconv.Itoa(i), "b"+strconv.Itoa(i)))
	}); len(succeeded) != writers {
		t.Errorf("%d of %d writers added their items", len(succeeded), writers)
	}

	// Those of one call stand side by side.
	all := s.page("d", store.Page{})
	if len(all) != 2+2*writers {
		t.Fatalf("%d items", len(all))
	}

	for i := 2; i < len(all); i += 2 {
		if a, b := all[i].ID, all[i+1].ID; a[0] != 'a' || b[0] != 'b' || a[1:] != b[1:] {
			t.Errorf("items %s and %s were not added together", a, b)
		}
	}
}
