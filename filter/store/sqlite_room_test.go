package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// sized returns a response with an item of about 10 KB.
func sized(id string) *store.Response {
	r := response(id, "")
	r.Output = append(r.Output, store.Item{ID: "large_" + id, JSON: bytes.Repeat([]byte{'x'}, 10_000)})
	return r
}

// TestSQLiteBound writes more of each kind than the store has room for.
func TestSQLiteBound(t *testing.T) {
	t.Parallel()
	c := newFakeClock()
	o := testOptions
	o.Now, o.ResponseTTL, o.ResponseBytes, o.TextBytes = c.now, 24*time.Hour, 256<<10, 256<<10
	path := filepath.Join(t.TempDir(), "store.db")
	s := openURL(t, "sqlite:"+path, o).(*store.SQL)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bounded := func(when string) {
		t.Helper()
		used, limit, err := s.Used(ctx)
		must(err)
		if info, err := os.Stat(path); used > limit || err != nil || info.Size() > limit+limit/2 {
			t.Fatalf("%s: %d bytes are used, the file has %d, the limit is %d, %v", when, used, info.Size(), limit, err)
		}
	}
	const n = 250
	if _, err := s.BeginApproval(ctx, "a", "approval", "first"); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c.advance(time.Minute)
		must(s.Put(ctx, "a", sized(strconv.Itoa(i))))
		if i%8 == 0 {
			_, err := s.Head(ctx, "a", "0") // keeps the first one
			must(err)
		}
	}
	bounded("after responses")
	for id, want := range map[string]error{"0": nil, "1": store.ErrNotFound, "50": store.ErrNotFound, strconv.Itoa(n - 1): nil} {
		if _, err := s.Get(ctx, "a", id); !errors.Is(err, want) {
			t.Errorf("response %s: %v, want %v", id, err, want)
		}
	}
	for i := range n {
		c.advance(time.Second)
		must(s.PutTexts(ctx, "a", map[string]string{strconv.Itoa(i): string(bytes.Repeat([]byte{'x'}, 10_000))}))
	}
	bounded("after texts")
	texts, err := s.Texts(ctx, "a", []string{"0", strconv.Itoa(n - 1)})
	if err != nil || len(texts) != 1 || texts[strconv.Itoa(n-1)] == "" {
		t.Errorf("%d texts are left of the first and the last one, %v", len(texts), err)
	}
	if _, err := s.Get(ctx, "a", strconv.Itoa(n-1)); err != nil {
		t.Errorf("texts have displaced a response: %v", err)
	}
	for i := range n {
		c.advance(time.Millisecond)
		id := strconv.Itoa(i)
		must(s.PutConversation(ctx, "a", &store.Conversation{ID: id, Metadata: []byte("{}")}))
		must(s.AddItems(ctx, "a", id, "", []store.Item{{ID: "i", JSON: bytes.Repeat([]byte{'x'}, 10_000)}}))
	}
	bounded("after conversations")
	for id, want := range map[string]error{"0": store.ErrNotFound, strconv.Itoa(n - 1): nil} {
		if _, err := s.Conversation(ctx, "a", id); !errors.Is(err, want) {
			t.Errorf("conversation %s: %v, want %v", id, err, want)
		}
	}
	if first, err := s.BeginApproval(ctx, "a", "approval", "second"); err != nil || first != "first" {
		t.Errorf("the approval is %q, %v", first, err)
	}
	huge := response("huge", "")
	huge.Object = make([]byte, o.ResponseBytes)
	if err := s.Put(ctx, "a", huge); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a response that never fits: %v", err)
	}
}

// TestSQLiteShrinks checks that the file gets smaller when data is deleted.
func TestSQLiteShrinks(t *testing.T) {
	t.Parallel()
	o := testOptions
	o.ResponseBytes = 16 << 20
	path := filepath.Join(t.TempDir(), "store.db")
	s := openURL(t, "sqlite:"+path, o).(*store.SQL)
	size := func() int64 {
		if _, err := s.Tables().Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for i := range 500 {
		put(t, s, sized(strconv.Itoa(i)))
	}
	before := size()
	for i := range 499 {
		if err := s.Delete(t.Context(), "a", strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := size(); after > before/4 {
		t.Errorf("the file has %d bytes, before the deletions %d", after, before)
	}
	if _, err := s.Get(t.Context(), "a", "499"); err != nil {
		t.Error(err)
	}
}

// unwritable checks a store with the response "1" that cannot be written.
func unwritable(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Put(t.Context(), "a", sized("2")); err == nil || errors.Is(err, store.ErrConflict) {
		t.Errorf("Put: %v", err)
	}
	if _, err := s.Get(t.Context(), "a", "1"); err != nil {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Chain(t.Context(), "a", "1"); err != nil {
		t.Errorf("Chain: %v", err)
	}
}

// TestSQLiteFull has the database reject new pages.
func TestSQLiteFull(t *testing.T) {
	t.Parallel()
	s := openSQLite(t, testOptions).(*store.SQL)
	put(t, s, sized("0"), sized("1"))
	if _, err := s.Tables().Exec("PRAGMA max_page_count = 1"); err != nil { // that is, of as many as there are
		t.Fatal(err)
	}
	unwritable(t, s)
	if err := s.Delete(t.Context(), "a", "0"); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if err := s.Put(t.Context(), "a", sized("2")); err != nil {
		t.Errorf("Put into the room of a deleted response: %v", err)
	}
}

// TestSQLiteReadOnly has the database reject writes.
func TestSQLiteReadOnly(t *testing.T) {
	t.Parallel()
	s := openSQLite(t, testOptions).(*store.SQL)
	put(t, s, sized("0"), sized("1"))
	for _, readOnly := range []bool{true, false} {
		if _, err := s.Tables().Exec(fmt.Sprintf("PRAGMA query_only = %t", readOnly)); err != nil {
			t.Fatal(err)
		}
		if readOnly {
			unwritable(t, s)
		}
	}
	if err := s.Put(t.Context(), "a", sized("2")); err != nil {
		t.Errorf("Put once it is writable again: %v", err)
	}
}

// What is in use stays, also if other tenants write: responses that are being made, and
// conversations that are locked.
func TestEvictsNothingInUse(t *testing.T) {
	t.Parallel()
	for kind, url := range fairStores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			evictsNothingInUse(t, url(t))
		})
	}
}

func evictsNothingInUse(t *testing.T, url string) {
	t.Helper()
	o := testOptions
	o.ResponseTTL, o.ResponseBytes, o.TextBytes = 24*time.Hour, 256<<10, 256<<10
	s := openURL(t, url, o)
	ctx := t.Context()
	live := response("live", "")
	live.Live, live.Owner, live.Lease = true, "me", time.Hour
	live.Object = bytes.Repeat([]byte{'x'}, 150<<10) // more than the others may have in a memory store
	for _, err := range []error{s.Put(ctx, "victim", live), s.PutConversation(ctx, "victim", &store.Conversation{ID: "locked"}), s.Lock(ctx, "victim", "locked", "live", time.Hour)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 250 {
		if err := s.Put(ctx, "other", sized(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Head(ctx, "other", "1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("nothing is evicted: %v", err)
	}
	if _, err := s.Head(ctx, "victim", "live"); err != nil {
		t.Errorf("the live response: %v", err)
	}
	if _, err := s.Conversation(ctx, "victim", "locked"); err != nil {
		t.Errorf("the locked conversation: %v", err)
	}
}

// fairStores are the stores that bound their data. Each test has one of its own.
var fairStores = map[string]func(testing.TB) string{
	"memory": func(testing.TB) string { return "memory:" },
	"sqlite": func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "store.db") },
}

// A tenant that writes much displaces its own data, not what others stored long before.
func TestEvictionIsFair(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte{'x'}, 10_000)
	for name, c := range map[string]struct {
		write func(s store.Store, t *testing.T, tenant, id string) error
		get   func(s store.Store, t *testing.T, tenant, id string) error
	}{
		"responses": {
			func(s store.Store, t *testing.T, tenant, id string) error {
				return s.Put(t.Context(), tenant, sized(id))
			},
			func(s store.Store, t *testing.T, tenant, id string) error {
				_, err := s.Get(t.Context(), tenant, id)
				return err
			},
		},
		"events": {
			func(s store.Store, t *testing.T, tenant, id string) error {
				r := live(id, 1)
				r.Lease = time.Second
				return errors.Join(s.Put(t.Context(), tenant, r), s.Append(t.Context(), tenant, id, "me", store.Batch{SSE: large}))
			},
			func(s store.Store, t *testing.T, tenant, id string) error {
				_, err := s.Get(t.Context(), tenant, id)
				return err
			},
		},
		"conversations": {
			func(s store.Store, t *testing.T, tenant, id string) error {
				return errors.Join(s.PutConversation(t.Context(), tenant, &store.Conversation{ID: id, Metadata: []byte("{}")}),
					s.AddItems(t.Context(), tenant, id, "", []store.Item{{ID: "i" + id, JSON: large}}))
			},
			func(s store.Store, t *testing.T, tenant, id string) error {
				_, err := s.ConversationItem(t.Context(), tenant, id, "i"+id)
				return err
			},
		},
		"texts": {
			func(s store.Store, t *testing.T, tenant, id string) error {
				return s.PutTexts(t.Context(), tenant, map[string]string{id: string(large)})
			},
			func(s store.Store, t *testing.T, tenant, id string) error {
				found, err := s.Texts(t.Context(), tenant, []string{id})
				if err == nil && found[id] == "" {
					err = store.ErrNotFound
				}
				return err
			},
		},
	} {
		for kind, url := range fairStores {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				clock := newFakeClock()
				o := testOptions
				o.Now, o.ResponseTTL, o.TextTTL, o.ResponseBytes, o.TextBytes = clock.now, 24*time.Hour, 24*time.Hour, 256<<10, 256<<10
				s := openURL(t, url(t), o)
				write := func(tenant string, n int) {
					t.Helper()
					for i := range n {
						clock.advance(2 * time.Second)
						if err := c.write(s, t, tenant, strconv.Itoa(i)); err != nil {
							t.Fatal(err)
						}
					}
				}
				write("small", 5)
				write("large", 250)
				for i := range 5 {
					if err := c.get(s, t, "small", strconv.Itoa(i)); err != nil {
						t.Errorf("%d of the tenant that wrote little: %v", i, err)
					}
				}
				for id, want := range map[string]error{"0": store.ErrNotFound, "249": nil} {
					if err := c.get(s, t, "large", id); !errors.Is(err, want) {
						t.Errorf("%s of the tenant that wrote much: %v, want %v", id, err, want)
					}
				}
			})
		}
	}
}
