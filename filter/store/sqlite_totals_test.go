package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// sqliteTables are the tables of the first version with their columns, parents first.
var sqliteTables = []struct{ name, columns string }{
	{"chains", "id, epoch, expires"},
	{"responses", "key, chain, depth, previous_key, tenant, id, previous, conversation, version, live, owner, written, body"},
	{"leases", "response, until"},
	{"items", "item, response, written"},
	{"events", "response, first, last, ends, sse"},
	{"conversations", "key, tenant, id, created, metadata, lock_owner, locked_until, items, expires"},
	{"conversation_items", "conversation, position, item, id, json"},
	{"texts", "key, text, expires"},
}

// totals are the bytes of a tenant.
type totals struct{ bytes, texts int64 }

// keptTotals returns the rows of harmony_totals.
func keptTotals(t *testing.T, s *SQL) map[string]totals {
	t.Helper()
	found := map[string]totals{}
	err := s.rows(t.Context(), s.write, `SELECT tenant, bytes, texts FROM harmony_totals`, nil, func(scan func(...any) error) error {
		var tenant string
		var sum totals
		err := scan(&tenant, &sum.bytes, &sum.texts)
		found[tenant] = sum
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// scannedTotals returns what harmony_totals should have, from all rows.
func scannedTotals(t *testing.T, s *SQL) map[string]totals {
	t.Helper()
	found := map[string]totals{}
	response, conversation := `(SELECT r.tenant FROM harmony_responses r WHERE r.key = x.response)`, `(SELECT c.tenant FROM harmony_conversations c WHERE c.key = x.conversation)`
	for _, table := range []struct{ name, tenant, size string }{
		{"chains", "(SELECT r.tenant FROM harmony_responses r WHERE r.chain = x.id LIMIT 1)", "0"},
		{"responses", "tenant", "length(body)"},
		{"items", response, "0"},
		{"events", response, "length(sse)"},
		{"conversations", "tenant", "length(metadata)"},
		{"conversation_items", conversation, "length(id) + length(json)"},
		{"texts", "tenant", "length(text)"},
	} {
		if table.name == "chains" {
			table.tenant = "coalesce(" + table.tenant + ", tenant)" // that of a chain without responses
		}
		err := s.rows(t.Context(), s.write, `SELECT `+table.tenant+`, sum(`+table.size+`) + count(*) * 256 FROM harmony_`+table.name+` x GROUP BY 1`, nil,
			func(scan func(...any) error) error {
				var tenant string
				var bytes int64
				err := scan(&tenant, &bytes)
				sum := found[tenant]
				if table.name == "texts" {
					sum.texts += bytes
				} else {
					sum.bytes += bytes
				}
				found[tenant] = sum
				return err
			})
		if err != nil {
			t.Fatalf("%s: %v", table.name, err)
		}
	}
	return found
}

// sharedClock is a clock that a test sets while the store reads it.
type sharedClock struct{ unix atomic.Int64 } // nanoseconds

func newSharedClock() *sharedClock {
	c := &sharedClock{}
	c.unix.Store(time.Unix(1_800_000_000, 0).UnixNano())
	return c
}

func (c *sharedClock) now() time.Time          { return time.Unix(0, c.unix.Load()) }
func (c *sharedClock) advance(d time.Duration) { c.unix.Add(int64(d)) }

// randomWrites makes random accesses to a store, of a few tenants with a few names each,
// so that many of them change or delete what is there.
type randomWrites struct {
	*rand.Rand
	*SQL
	now  *sharedClock
	size int // of the largest values
}

func (w *randomWrites) bytes(most int) []byte { return bytes.Repeat([]byte{'x'}, w.IntN(most)) }

func (w *randomWrites) items() []Item {
	items := make([]Item, w.IntN(4))
	for i := range items {
		items[i] = Item{ID: "i" + strconv.Itoa(w.IntN(40)*4+i), JSON: w.bytes(w.size)}
	}
	return items
}

// put writes a new response or overwrites one.
func (w *randomWrites) put(ctx context.Context, tenant, id string) error {
	r := &Response{ID: id, Version: 1, Live: w.IntN(3) > 0, Owner: "me", Lease: time.Minute, Object: w.bytes(w.size), Output: w.items()}
	if stored, err := w.Get(ctx, tenant, id); err == nil {
		r.Version, r.Previous = stored.Version+1, stored.Previous
	} else if w.IntN(2) == 0 {
		r.Previous = "r" + strconv.Itoa(w.IntN(12))
	}
	return w.Put(ctx, tenant, r)
}

// step makes one access, whose name it returns.
func (w *randomWrites) step(ctx context.Context) (name string, err error) {
	tenant := []string{"", "a", "b", "a much longer name"}[w.IntN(4)]
	id, n := "r"+strconv.Itoa(w.IntN(12)), strconv.Itoa(w.IntN(6))
	switch w.IntN(16) {
	case 0, 1, 2, 3:
		return "Put", w.put(ctx, tenant, id)
	case 4, 5:
		first := int(w.now.now().UnixMilli())
		w.now.advance(time.Second)
		return "Append", w.Append(ctx, tenant, id, "me", Batch{First: first, Last: first + 1, SSE: w.bytes(w.size)})
	case 6:
		return "Delete", w.Delete(ctx, tenant, id)
	case 7:
		return "PutConversation", w.PutConversation(ctx, tenant, &Conversation{ID: "c" + n, Metadata: w.bytes(1000)})
	case 8, 9:
		return "AddItems", w.AddItems(ctx, tenant, "c"+n, "", w.items())
	case 10:
		items, err := w.ConversationItems(ctx, tenant, "c"+n, Page{})
		if err != nil || len(items) == 0 {
			return "ConversationItems", err
		}
		return "DeleteItem", w.DeleteItem(ctx, tenant, "c"+n, items[w.IntN(len(items))].ID)
	case 11:
		if w.IntN(2) == 0 {
			return "PutMetadata", w.PutMetadata(ctx, tenant, "c"+n, w.bytes(1000))
		}
		return "DeleteConversation", w.DeleteConversation(ctx, tenant, "c"+n)
	case 12:
		return "PutTexts", w.PutTexts(ctx, tenant, map[string]string{"x" + n: string(w.bytes(w.size)), "y" + id: string(w.bytes(w.size))})
	case 13:
		_, err := w.PutTextIfAbsent(ctx, tenant, "x"+n, string(w.bytes(w.size)))
		return "PutTextIfAbsent", err
	case 14:
		text := string(w.bytes(100))
		_, err := w.BeginApproval(ctx, tenant, n, text)
		return "an approval", errors.Join(err, w.WithdrawApproval(ctx, tenant, n, text))
	}
	w.now.advance(time.Duration(w.IntN(20)) * time.Minute)
	return "expiry", w.purgeAll(ctx)
}

// TestSQLiteTotals checks that the bytes of each tenant are those of its rows, after each
// of many random accesses. The small store evicts too.
func TestSQLiteTotals(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"with room": 100, "with evictions": 30_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, clock, seed := t.Context(), newSharedClock(), rand.Uint64()
			o := Options{ResponseTTL: time.Hour, TextTTL: 30 * time.Minute, ResponseBytes: 256 << 10, TextBytes: 128 << 10, Now: clock.now}
			s, err := OpenSQLite(ctx, filepath.Join(t.TempDir(), "store.db"), o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()                                                                          //nolint:errcheck // the test reads what it needs before
			w := &randomWrites{Rand: rand.New(rand.NewPCG(seed, 0)), SQL: s, now: clock, size: size} //nolint:gosec // a test's
			done, before, evicts := map[string]int{}, int64(0), false
			wantEvicts := name == "with evictions"
			for i := 0; i < 800 || wantEvicts && !evicts && i < 20_000; i++ {
				step, err := w.step(ctx)
				if err == nil {
					done[step]++
				} else if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrTooLarge) {
					t.Fatalf("seed %d: step %d, %s: %v", seed, i, step, err)
				}
				if kept, want := keptTotals(t, s), scannedTotals(t, s); !maps.Equal(kept, want) {
					t.Fatalf("seed %d: after step %d, %s (%v): the totals are %v, a scan finds %v", seed, i, step, err, kept, want)
				}
				after := int64(0)
				for _, sum := range keptTotals(t, s) {
					after += sum.bytes + sum.texts
				}
				evicts = evicts || after < before && (step == "Append" || step == "AddItems")
				before = after
			}
			if len(done) < 12 {
				t.Errorf("seed %d: only these succeeded: %v", seed, done)
			}
			if evicts != wantEvicts {
				t.Errorf("seed %d: data is evicted: %v", seed, evicts)
			}
			clock.advance(2 * time.Hour)
			if err := s.purgeAll(ctx); err != nil {
				t.Fatal(err)
			}
			if kept := keptTotals(t, s); len(kept) > 0 {
				t.Errorf("seed %d: after all has expired the totals are %v", seed, kept)
			}
		})
	}
}

// oldFile makes a file of the first version of the tables with the rows of another file.
func oldFile(t *testing.T, from string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "old.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	defer db.Close() //nolint:errcheck // errors of the statements are reported
	statements := append([]string{"PRAGMA auto_vacuum = incremental", "PRAGMA journal_mode = wal"}, sqlSchema[0]...)
	statements = append(statements, `CREATE TABLE harmony_schema (version INTEGER NOT NULL)`, `INSERT INTO harmony_schema VALUES (1)`,
		fmt.Sprintf(`ATTACH '%s' AS filled`, from))
	for _, table := range sqliteTables {
		statements = append(statements, strings.ReplaceAll(fmt.Sprintf(`INSERT INTO main.harmony_TABLE (%s) SELECT %[1]s FROM filled.harmony_TABLE`, table.columns), "TABLE", table.name))
	}
	for _, statement := range statements {
		if _, err := db.Exec(sqliteDialect(time.Now).phrase.Replace(statement)); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return path
}

// TestSQLiteTotalsOfOldFile opens a file of a version that had no totals. Its rows count
// as in a new one, but for texts, whose tenants such a file does not have.
func TestSQLiteTotalsOfOldFile(t *testing.T) {
	t.Parallel()
	ctx, clock := t.Context(), newSharedClock()
	o := Options{ResponseTTL: time.Hour, TextTTL: time.Hour, ResponseBytes: 64 << 20, TextBytes: 64 << 20, Now: clock.now}
	open := func(path string) *SQL {
		t.Helper()
		s, err := OpenSQLite(ctx, path, o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(path)
	w := &randomWrites{Rand: rand.New(rand.NewPCG(1, 2)), SQL: s, now: clock, size: 3000} //nolint:gosec // a test's
	for range 400 {
		_, _ = w.step(ctx)
	}
	if err := s.PutTexts(ctx, "a", map[string]string{"kept": "text"}); err != nil {
		t.Fatal(err)
	}
	want := map[string]totals{}
	var texts int64
	for tenant, sum := range keptTotals(t, s) {
		texts += sum.texts
		if sum.bytes > 0 {
			want[tenant] = totals{bytes: sum.bytes}
		}
	}
	want["0"] = totals{texts: texts}
	if len(want) < 5 || texts == 0 {
		t.Fatalf("the file has too little: %v", want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old := open(oldFile(t, path))
	defer old.Close() //nolint:errcheck // the test reads what it needs before
	if kept := keptTotals(t, old); !maps.Equal(kept, want) {
		t.Errorf("the totals of the old file are %v, want %v", kept, want)
	}
	if found, err := old.Texts(ctx, "a", []string{"kept"}); err != nil || found["kept"] != "text" {
		t.Errorf("a text of the old file: %v, %v", found, err)
	}
	w.SQL = old
	for i := range 400 {
		step, _ := w.step(ctx)
		if kept, want := keptTotals(t, old), scannedTotals(t, old); !maps.Equal(kept, want) {
			t.Fatalf("after step %d, %s: the totals are %v, a scan finds %v", i, step, kept, want)
		}
	}
	clock.advance(2 * time.Hour)
	if err := old.purgeAll(ctx); err != nil {
		t.Fatal(err)
	}
	if kept := keptTotals(t, old); len(kept) > 0 {
		t.Errorf("after all has expired the totals are %v", kept)
	}
}
