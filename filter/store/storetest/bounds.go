package storetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// testTenants checks that data of one tenant does not exist for others.
func testTenants(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", response("1", ""), response("2", "1"), live("l", "me", time.Hour))
	s.must(s.Append(s.ctx, "a", "l", "me", batch(0, 0, false)))
	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	s.must(s.AddItems(s.ctx, "a", "c", "", items("i")))
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "1"}))
	for _, b := range []string{"b", "", "A", "a ", "a:", "aa"} {
		for method, err := range map[string]error{
			"Get":                errorOf(s.Get(s.ctx, b, "1")),
			"Chain":              errorOf(s.Chain(s.ctx, b, "2")),
			"Head":               errorOf(s.Head(s.ctx, b, "2")),
			"Delete":             s.Delete(s.ctx, b, "1"),
			"Append":             s.Append(s.ctx, b, "l", "me", batch(1, 1, false)),
			"Conversation":       errorOf(s.Conversation(s.ctx, b, "c")),
			"ConversationItems":  errorOf(s.ConversationItems(s.ctx, b, "c", store.Page{})),
			"ConversationItem":   errorOf(s.ConversationItem(s.ctx, b, "c", "i")),
			"AddItems":           s.AddItems(s.ctx, b, "c", "", items("j")),
			"DeleteItem":         s.DeleteItem(s.ctx, b, "c", "i"),
			"DeleteConversation": s.DeleteConversation(s.ctx, b, "c"),
			"PutMetadata":        s.PutMetadata(s.ctx, b, "c", []byte(`{}`)),
			"RenewLock":          s.RenewLock(s.ctx, b, "c", "me", time.Hour),
			"Lock":               s.Lock(s.ctx, b, "c", "me", time.Hour),
		} {
			s.wantError(method+" of another tenant", err, store.ErrNotFound)
		}
		s.wantEqual("Events of another tenant", s.events(b, "l", -1), []store.Batch{})
		found, err := s.Items(s.ctx, b, []string{"in_1"})
		s.must(err)
		s.wantEqual("Items of another tenant", found, map[string]store.Item{})
		s.wantEqual("Texts of another tenant", s.texts(b, "x"), map[string]string{})
		lost, err := s.Renew(s.ctx, "me", []store.Key{{Tenant: b, ID: "l"}}, time.Hour)
		s.must(err)
		s.wantEqual("Renew of another tenant's", lost, []store.Key{{Tenant: b, ID: "l"}})

		// The same ids of another tenant are independent.
		s.put(b, response("1", ""), response("2b", "2"))
		s.wantError("Chain through another tenant's response", errorOf(s.Chain(s.ctx, b, "2b")), store.ErrNotFound)
		text, err := s.PutTextIfAbsent(s.ctx, b, "x", "of "+b)
		s.must(err)
		s.wantEqual("PutTextIfAbsent of another tenant", text, "of "+b)
		s.must(s.Delete(s.ctx, b, "1"))
	}
	chain, err := s.Chain(s.ctx, "a", "2")
	s.must(err)
	s.wantEqual("Chain at the end", ids(chain), []string{"1", "2"})
	s.must(errorOf(s.ConversationItem(s.ctx, "a", "c", "i")))
	s.wantEqual("Texts at the end", s.texts("a", "x"), map[string]string{"x": "1"})
}

// testExpiry checks that everything expires that is not used.
func testExpiry(t *testing.T, open Open) {
	const ttl = 1500 * time.Millisecond
	o := options
	o.ResponseTTL, o.TextTTL = ttl, ttl
	s := beginWith(t, open, o)
	// When the used data was used last.
	used := time.Now()
	s.put(
		"a", response("1", ""), response("2", "1"), live("alone", "me", time.Hour), response("used", ""),
		response("used2", "used"), response("read", ""), live("made", "me", time.Hour),
	)
	s.must(s.Append(s.ctx, "a", "alone", "me", batch(0, 0, false)))
	for _, id := range []string{"c", "used"} {
		s.must(s.PutConversation(s.ctx, "a", conversation(id)))
		s.must(s.AddItems(s.ctx, "a", id, "", items("i")))
	}
	s.must(s.PutTexts(s.ctx, "a", map[string]string{"x": "1"}))
	s.must(errorOf(s.PutTextIfAbsent(s.ctx, "a", "used", "1")))

	// The longest time between two uses.
	idle := time.Duration(0)
	expired := func() bool {
		return errors.Is(errorOf(s.Get(s.ctx, "a", "1")), store.ErrNotFound) &&
			errors.Is(errorOf(s.Get(s.ctx, "a", "2")), store.ErrNotFound) &&
			errors.Is(errorOf(s.Get(s.ctx, "a", "alone")), store.ErrNotFound) &&
			errors.Is(errorOf(s.Conversation(s.ctx, "a", "c")), store.ErrNotFound) &&
			len(s.texts("a", "x")) == 0
	}
	s.eventually("unused data expires", func() bool {
		before := used
		_, headErr := s.Head(s.ctx, "a", "used2")
		_, chainErr := s.Chain(s.ctx, "a", "read")
		lost, renewErr := s.Renew(s.ctx, "me", []store.Key{key("a", "made")}, time.Hour)
		addErr := s.AddItems(s.ctx, "a", "used", "", items("i"+time.Now().String()))
		text, textErr := s.PutTextIfAbsent(s.ctx, "a", "used", "2")
		used = time.Now()
		// If the machine paused for as long as the TTL, used data may have expired.
		if idle = max(idle, used.Sub(before)); idle < ttl*9/10 {
			for method, err := range map[string]error{
				"Head": headErr, "Chain": chainErr, "Renew": renewErr, "AddItems": addErr,
				"PutTextIfAbsent": textErr,
			} {
				s.wantError(method+" of used data", err, nil)
			}
			s.wantEqual("lost leases", lost, []store.Key{})
			s.wantEqual("PutTextIfAbsent", text, "1")
		}
		return expired()
	})
	if idle < ttl*9/10 && time.Since(used) < ttl*9/10 {
		chain, err := s.Chain(s.ctx, "a", "used2")
		s.must(err)
		s.wantEqual("Chain of used data", ids(chain), []string{"used", "used2"})
	}
	s.checkExpired()
}

// checkExpired checks that the data that testExpiry does not use has expired.
func (s *tester) checkExpired() {
	s.Helper()
	s.wantError("Chain after expiry", errorOf(s.Chain(s.ctx, "a", "2")), store.ErrNotFound)
	s.wantError("Head after expiry", errorOf(s.Head(s.ctx, "a", "2")), store.ErrNotFound)
	s.wantError("Append after expiry", s.Append(s.ctx, "a", "alone", "me", batch(1, 1, false)), store.ErrNotFound)
	s.wantError("Put of a next version after expiry", s.Put(s.ctx, "a", next(response("1", ""))), store.ErrConflict)
	s.wantError("Delete after expiry", s.Delete(s.ctx, "a", "1"), store.ErrNotFound)
	s.wantError("AddItems after expiry", s.AddItems(s.ctx, "a", "c", "", items("j")), store.ErrNotFound)
	s.wantError(
		"ConversationItems after expiry", errorOf(s.ConversationItems(s.ctx, "a", "c", store.Page{})),
		store.ErrNotFound,
	)
	s.wantError("DeleteConversation after expiry", s.DeleteConversation(s.ctx, "a", "c"), store.ErrNotFound)
	s.wantEqual("Events after expiry", s.events("a", "alone", -1), []store.Batch{})
	found, err := s.Items(s.ctx, "a", []string{"in_1", "out_2"})
	s.must(err)
	s.wantEqual("Items after expiry", found, map[string]store.Item{})
	lost, err := s.Renew(s.ctx, "me", []store.Key{{Tenant: "a", ID: "alone"}}, time.Hour)
	s.must(err)
	s.wantEqual("Renew after expiry", lost, []store.Key{{Tenant: "a", ID: "alone"}})

	// Ids of expired data can be used again.
	s.put("a", response("1", ""))
	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	s.wantEqual("items of a new conversation", s.page("c", store.Page{}), []store.Item{})
	text, err := s.PutTextIfAbsent(s.ctx, "a", "x", "new")
	s.must(err)
	s.wantEqual("PutTextIfAbsent after expiry", text, "new")
}

// testUnusualNames uses names that clients could choose.
func testUnusualNames(t *testing.T, open Open) {
	s := begin(t, open)
	names := []string{
		"", " ", "ü-日本-🚀", "with\x00zero", "\xff\xfe", strings.Repeat("long", 800),
		"'; DROP TABLE x; --", "{a}:b", "%00", "*", "a\nb", "a/b?c=d#e", "A", "a",
	}
	for _, tenant := range names {
		for _, id := range []string{
			"ü-日本-🚀", "with\x00zero", "with", "\xff\xfe", strings.Repeat("long", 800), "'; --", "{a}:b",
		} {
			r := response(id, "")
			r.Conversation = id
			s.put(tenant, r)
			got, err := s.Get(s.ctx, tenant, id)
			s.must(err)
			s.wantEqual("Get", got, r)
			found, err := s.Items(s.ctx, tenant, []string{"out_" + id, id})
			s.must(err)
			s.wantEqual("Items", found, map[string]store.Item{"out_" + id: item("out_" + id)})
		}
	}
	for _, id := range names {
		s.put("b", response("then "+id, "first"))
		if id == "" {
			continue
		}
		s.put("b", response(id, ""), response("next "+id, id))
		chain, err := s.Chain(s.ctx, "b", "next "+id)
		s.must(err)
		s.wantEqual("Chain", ids(chain), []string{id, "next " + id})

		s.must(s.PutConversation(s.ctx, "b", conversation(id)))
		s.must(s.AddItems(s.ctx, "b", id, "", items("1", id)))
		one, err := s.ConversationItem(s.ctx, "b", id, id)
		s.must(err)
		s.wantEqual("ConversationItem", one, item(id))
		page, err := s.ConversationItems(s.ctx, "b", id, store.Page{After: id})
		s.must(err)
		s.wantEqual("ConversationItems", page, []store.Item{})
		s.must(s.DeleteItem(s.ctx, "b", id, id))

		s.must(s.PutTexts(s.ctx, "b", map[string]string{id: "text of " + id}))
		s.wantEqual("Texts", s.texts("b", id), map[string]string{id: "text of " + id})
	}
}

func testLargeItems(t *testing.T, open Open) {
	s := begin(t, open)
	const size = 5 << 20
	large := func(id string) store.Item {
		return store.Item{
			ID: id,
			JSON: append(
				append([]byte(`{"text":"`), bytes.Repeat([]byte("0123456789abcde\xe2\x82\xac"), size/18)...),
				`"}`...,
			),
		}
	}

	r := response("r", "")
	r.Input, r.Output = append(r.Input, large("large")), []store.Item{large("larger")}
	s.put("a", r)
	got, err := s.Get(s.ctx, "a", "r")
	s.must(err)
	same := len(got.Input) == 2 && bytes.Equal(got.Input[1].JSON, r.Input[1].JSON) && len(got.Output) == 1 &&
		bytes.Equal(got.Output[0].JSON, r.Output[0].JSON)
	if !same {
		t.Error("Get returns another response than Put wrote")
	}

	found, err := s.Items(s.ctx, "a", []string{"larger"})
	s.must(err)
	if !bytes.Equal(found["larger"].JSON, r.Output[0].JSON) {
		t.Error("Items returns another item than Put wrote")
	}

	s.must(s.PutConversation(s.ctx, "a", conversation("c")))
	s.must(s.AddItems(s.ctx, "a", "c", "", []store.Item{large("large")}))
	one, err := s.ConversationItem(s.ctx, "a", "c", "large")
	s.must(err)
	if !bytes.Equal(one.JSON, large("large").JSON) {
		t.Error("ConversationItem returns another item than AddItems added")
	}

	s.put("a", live("l", "me", time.Hour))
	b := batch(0, 9, false)
	b.SSE = large("").JSON
	s.must(s.Append(s.ctx, "a", "l", "me", b))
	if events := s.events("a", "l", -1); len(events) != 1 || !bytes.Equal(events[0].SSE, b.SSE) {
		t.Error("Events returns another batch than Append added")
	}

	const many = 3000
	r = response("many", "")
	for i := range many {
		r.Input = append(r.Input, item("many_"+time.Duration(i).String()))
	}

	s.put("a", r)
	requested := make([]string, 0, len(r.Input))
	for _, i := range r.Input {
		requested = append(requested, i.ID)
	}

	if found, err := s.Items(s.ctx, "a", requested); err != nil || len(found) != len(requested) {
		t.Errorf("%d of %d items, %v", len(found), len(requested), err)
	}

	s.must(s.AddItems(s.ctx, "a", "c", "", r.Input))
	if n := len(s.page("c", store.Page{})); n != 1+len(r.Input) {
		t.Errorf("%d items of %d", n, 1+len(r.Input))
	}
}

// testCanceled uses canceled contexts. A write then succeeds completely or not
// at all, and the store stays usable.
func testCanceled(t *testing.T, open Open) {
	s := begin(t, open)
	s.put("a", response("1", ""))
	canceled, cancel := context.WithCancel(s.ctx)
	cancel()

	const n = 20
	for range n {
		putErr := s.Put(canceled, "a", response("2", "1"))
		getErr := errorOf(s.Get(s.ctx, "a", "2"))
		if (putErr == nil) != (getErr == nil) {
			t.Errorf("Put: %v, Get: %v", putErr, getErr)
		}
		if getErr == nil {
			s.must(s.Delete(s.ctx, "a", "2"))
		}
		for _, err := range []error{
			errorOf(s.Chain(canceled, "a", "1")), errorOf(s.Head(canceled, "a", "1")),
			errorOf(s.Get(canceled, "a", "1")),
		} {
			if err != nil && (errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict)) {
				t.Errorf("a call with a canceled context: %v", err)
			}
		}
	}

	s.must(errorOf(s.Chain(s.ctx, "a", "1")))

	// A context that ends during a write leaves no partial data.
	for i := range n {
		ctx, cancel := context.WithTimeout(s.ctx, time.Duration(i*i)*10*time.Microsecond)
		id := "t" + time.Duration(i).String()
		putErr := s.Put(ctx, "a", response(id, "1"))
		cancel()
		if errorOf(s.Get(s.ctx, "a", id)) == nil {
			chain, err := s.Chain(s.ctx, "a", id)
			if putErr != nil && errors.Is(err, store.ErrNotFound) {
				// A Put that failed may be undone at any time.
				continue
			}
			s.must(err)
			s.wantEqual("Chain", chain, []*store.Response{response("1", ""), response(id, "1")})
			found, err := s.Items(s.ctx, "a", []string{"out_" + id})
			s.must(err)
			if putErr != nil && len(found) == 0 {
				continue
			}
			s.wantEqual("Items", found, map[string]store.Item{"out_" + id: item("out_" + id)})
		}
	}
}
