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
	s.same("Conversation", got, c)
	s.same("items of a new one", s.page("c", store.Page{}), []store.Item{})
	s.same("size of a new one", s.size("c"), store.Size{})

	s.must(s.AddItems(s.ctx, "a", "c", "", items("1", "2", "3")))
	s.must(s.AddItems(s.ctx, "a", "c", "", nil))
	s.fails("PutConversation of an id that is there", s.PutConversation(s.ctx, "a", conversation("c")), store.ErrConflict)
	c.Metadata = []byte(`{}`)
	s.must(s.PutMetadata(s.ctx, "a", "c", c.Metadata))
	got, err = s.Conversation(s.ctx, "a", "c")
	s.must(err)
	s.same("Conversation with other metadata", got, c)
	s.same("its items", s.page("c", store.Page{}), items("1", "2", "3"))
	s.same("its size", s.size("c"), sizeOf(items("1", "2", "3")))

	one, err := s.ConversationItem(s.ctx, "a", "c", "2")
	s.must(err)
	s.same("ConversationItem", one, item("2"))
	s.must(s.DeleteItem(s.ctx, "a", "c", "2"))
	s.fails("ConversationItem after DeleteItem", errorOf(s.ConversationItem(s.ctx, "a", "c", "2")), store.ErrNotFound)
	s.fails("DeleteItem twice", s.DeleteItem(s.ctx, "a", "c", "2"), store.ErrNotFound)

	s.fails("AddItems of an id that is there", s.AddItems(s.ctx, "a", "c", "", items("4", "3")), store.ErrConflict)
	s.fails("AddItems of an id twice", s.AddItems(s.ctx, "a", "c", "", items("5", "6", "5")), store.ErrConflict)
	s.same("items after refused ones", s.page("c", store.Page{}), items("1", "3"))
	s.must(s.AddItems(s.ctx, "a", "c", "", items("2")))
	s.same("size after one came back", s.size("c"), sizeOf(items("1", "2", "3")))
	s.same("items after one came back", s.page("c", store.Page{}), items("1", "3", "2"))

	s.fails("Conversation of none", errorOf(s.Conversation(s.ctx, "a", "none")), store.ErrNotFound)
	s.fails("ConversationSize of none", errorOf(s.ConversationSize(s.ctx, "a", "none")), store.ErrNotFound)
	s.fails("ConversationItems of none", errorOf(s.ConversationItems(s.ctx, "a", "none", store.Page{})), store.ErrNotFound)
	s.fails("ConversationItem of none", errorOf(s.ConversationItem(s.ctx, "a", "none", "1")), store.ErrNotFound)
	s.fails("ConversationItem that is none", errorOf(s.ConversationItem(s.ctx, "a", "c", "none")), store.ErrNotFound)
	s.fails("DeleteItem of none", s.DeleteItem(s.ctx, "a", "none", "1"), store.ErrNotFound)
	s.fails("PutMetadata of none", s.PutMetadata(s.ctx, "a", "none", c.Metadata), store.ErrNotFound)
	s.fails("AddItems to none", s.AddItems(s.ctx, "a", "none", "", items("1")), store.ErrNotFound)
	s.fails("DeleteConversation of none", s.DeleteConversation(s.ctx, "a", "none"), store.ErrNotFound)

	r := response("r", "")
	r.Conversation = "c"
	s.put("a", r)
	s.must(s.DeleteConversation(s.ctx, "a", "c"))
	s.fails("Conversation after its deletion", errorOf(s.Conversation(s.ctx, "a", "c")), store.ErrNotFound)
	s.fails("PutMetadata after its deletion", s.PutMetadata(s.ctx, "a", "c", c.Metadata), store.ErrNotFound)
	s.fails("Conversation after that", errorOf(s.Conversation(s.ctx, "a", "c")), store.ErrNotFound)
	s.fails("ConversationItem after its deletion", errorOf(s.ConversationItem(s.ctx, "a", "c", "1")), store.ErrNotFound)
	s.must(errorOf(s.Get(s.ctx, "a", "r")))
	s.must(s.PutConversation(s.ctx, "a", c))
	s.same("items of a new one of that id", s.page("c", store.Page{}), []store.Item{})
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
	back := slices.Clone(all)
	slices.Reverse(back)
	s.must(s.AddItems(s.ctx, "a", "c", "", all[:20]))
	s.must(s.AddItems(s.ctx, "a", "d", "", items("i3", "other")))
	s.must(s.AddItems(s.ctx, "a", "c", "", all[20:]))
	for _, c := range []struct {
		page store.Page
		want []store.Item
	}{
		{store.Page{}, all},
		{store.Page{Descending: true}, back},
		{store.Page{Limit: 3}, all[:3]},
		{store.Page{Limit: 3, Descending: true}, back[:3]},
		{store.Page{After: "i4"}, all[5:]},
		{store.Page{After: "i4", Limit: 100}, all[5:]},
		{store.Page{After: "i19", Limit: 2}, all[20:22]},
		{store.Page{After: "i4", Descending: true}, back[n-4:]},
		{store.Page{After: "i20", Limit: 2, Descending: true}, back[5:7]},
		{store.Page{After: "i24"}, nil},
		{store.Page{After: "i0", Descending: true}, nil},
	} {
		s.same("a page", s.page("c", c.page), c.want)
	}
	for _, after := range []string{"none", "other"} {
		s.fails("a page after none of its items", errorOf(s.ConversationItems(s.ctx, "a", "c", store.Page{After: after})), store.ErrNotFound)
	}
	s.must(s.DeleteItem(s.ctx, "a", "c", "i4"))
	s.fails("a page after a deleted item", errorOf(s.ConversationItems(s.ctx, "a", "c", store.Page{After: "i4"})), store.ErrNotFound)
	s.same("a page over a gap", s.page("c", store.Page{After: "i3", Limit: 1}), items("i5"))
}

func testConversationHolds(t *testing.T, open Open) {
	s := begin(t, open)
	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	hold := func(holder string, lease time.Duration) error { return s.Hold(s.ctx, "a", "c", holder, lease) }
	s.must(hold("r1", time.Hour))
	s.must(hold("r1", time.Hour))
	s.fails("Hold of what is held", hold("r2", time.Hour), store.ErrConflict)
	s.fails("letting go of what another holds", hold("r2", 0), store.ErrConflict)
	s.fails("AddItems of a client", s.AddItems(s.ctx, "a", "c", "", items("1")), store.ErrConflict)
	s.fails("AddItems of another", s.AddItems(s.ctx, "a", "c", "r2", items("1")), store.ErrConflict)
	s.must(s.AddItems(s.ctx, "a", "c", "r1", items("1")))
	s.must(hold("r1", 0))
	s.must(hold("r1", 0))
	s.must(s.AddItems(s.ctx, "a", "c", "", items("2")))
	s.must(hold("r2", time.Millisecond))
	s.eventually("a hold lapses", func() bool { return hold("r3", time.Hour) == nil })
	s.fails("Hold after it has lapsed and gone to another", hold("r2", time.Hour), store.ErrConflict)
	s.must(s.PutMetadata(s.ctx, "a", "c", []byte(`{}`)))
	s.fails("Hold after other metadata", hold("r2", time.Hour), store.ErrConflict)
	s.must(s.AddItems(s.ctx, "a", "c", "r3", items("3")))
	s.same("items", s.page("c", store.Page{}), items("1", "2", "3"))
	s.fails("Hold of none", s.Hold(s.ctx, "a", "none", "r1", time.Hour), store.ErrNotFound)
	s.fails("RenewHold of none", s.RenewHold(s.ctx, "a", "none", "r1", time.Hour), store.ErrNotFound)
}

// testConversationHoldsLost shows that who has lost its hold for a while has
// lost it for good, and that nobody loses it only because its lease has lapsed.
func testConversationHoldsLost(t *testing.T, open Open) {
	s := begin(t, open)
	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	hold := func(holder string, lease time.Duration) error { return s.Hold(s.ctx, "a", "c", holder, lease) }
	renew := func(holder string) error { return s.RenewHold(s.ctx, "a", "c", holder, time.Hour) }
	add := func(holder string, ids ...string) error { return s.AddItems(s.ctx, "a", "c", holder, items(ids...)) }
	lost := func(holder, how string) {
		t.Helper()
		s.fails("RenewHold "+how, renew(holder), store.ErrConflict)
		s.fails("AddItems "+how, add(holder, "lost"), store.ErrConflict)
		s.fails("AddItems of nothing "+how, add(holder), store.ErrConflict)
	}
	lost("none", "of what was never held")

	s.must(hold("first", time.Millisecond))
	s.eventually("another takes what has lapsed", func() bool { return hold("second", time.Hour) == nil })
	lost("first", "of what another holds")
	s.must(add("second", "1"))
	lost("first", "of what another has extended")
	s.must(renew("second"))
	s.must(hold("second", 0))
	lost("first", "of what another has let go")
	lost("second", "of what was let go")

	s.must(hold("third", time.Millisecond))
	s.eventually("a client adds after a hold has lapsed", func() bool { return add("", "2") == nil })
	lost("third", "of what a client has extended")

	s.must(hold("fourth", time.Millisecond))
	time.Sleep(20 * time.Millisecond) // so that it has lapsed; right without too
	_ = hold("first", 0)              // a conflict unless it has
	s.must(add("fourth", "3"))
	s.must(renew("fourth"))
	s.fails("AddItems of a client after the hold was renewed", add("", "4"), store.ErrConflict)
	s.same("items", s.page("c", store.Page{}), items("1", "2", "3"))
}

func testConversationsConcurrent(t *testing.T, open Open) {
	s := begin(t, open)
	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	const writers = 8
	if winners := s.won(writers, func(i int) error { return s.Hold(s.ctx, "a", "c", strconv.Itoa(i), time.Hour) }); len(winners) != 1 {
		t.Errorf("%d of %d hold a conversation", len(winners), writers)
	}
	s.must(s.PutConversation(s.ctx, "a", conversation("d")))
	if winners := s.won(writers, func(int) error { return s.AddItems(s.ctx, "a", "d", "", items("x", "y")) }); len(winners) != 1 {
		t.Errorf("%d of %d add the same items", len(winners), writers)
	}
	if winners := s.won(writers, func(i int) error {
		return s.AddItems(s.ctx, "a", "d", "", items("a"+strconv.Itoa(i), "b"+strconv.Itoa(i)))
	}); len(winners) != writers {
		t.Errorf("%d of %d add their items", len(winners), writers)
	}
	all := s.page("d", store.Page{})
	if len(all) != 2+2*writers {
		t.Fatalf("%d items", len(all))
	}
	for i := 2; i < len(all); i += 2 {
		if a, b := all[i].ID, all[i+1].ID; a[0] != 'a' || b[0] != 'b' || a[1:] != b[1:] {
			t.Errorf("items %s and %s were not added at once", a, b)
		}
	}
}
