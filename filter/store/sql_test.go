package store_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/store/storetest"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

var testOptions = store.Options{ResponseTTL: time.Hour, TextTTL: time.Hour, ResponseBytes: 1 << 20, TextBytes: 1 << 20}

// openURL opens the store that a URL names and closes it at the end of the
// test.
func openURL(t testing.TB, url string, o store.Options) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openSQLite(t testing.TB, o store.Options) store.Store {
	t.Helper()
	return openURL(t, "sqlite:"+filepath.Join(t.TempDir(), "a store?%20#.db"), o)
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Test(t, openSQLite)
}

func TestSQLiteRoomFirst(t *testing.T) { storetest.TestRoomFirst(t, openSQLite) } // not parallel: allocations are counted

func TestSQLiteShared(t *testing.T) {
	t.Parallel()
	storetest.TestShared(t, func(t testing.TB) storetest.Open {
		path := filepath.Join(t.TempDir(), "store.db")
		return func(t testing.TB, o store.Options) store.Store { return openURL(t, "sqlite:"+path, o) }
	})
}

// TestSQLiteWork shows that a body is not decoded for a request that lacks the steps, and
// that the error is not one of a store that fails.
func TestSQLiteWork(t *testing.T) {
	t.Parallel()
	s := openSQLite(t, testOptions)
	r := response("1", "")
	r.Output[0].JSON = []byte(`"` + strings.Repeat("x", 16_000) + `"`)
	put(t, s, r)

	ctx := work.New(t.Context(), 1000).Context()
	if _, err := s.Items(ctx, "a", []string{r.Input[0].ID}); !errors.Is(err, work.ErrExceeded) || !store.Answered(err) {
		t.Errorf("an item of a large response: %v", err)
	}
}

// TestSQLitePolls shows that all looking for events of other processes goes through the access
// that a breaker gives: without it nothing is seen, with it everything is.
func TestSQLitePolls(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "store.db")
	followed, other := openURL(t, url, testOptions).(*store.SQL), openURL(t, url, testOptions)
	var polls atomic.Int64
	var open atomic.Bool
	followed.Through(func(ctx context.Context, do func(context.Context) error) error {
		polls.Add(1)
		if !open.Load() {
			return store.ErrHangs
		}
		return do(ctx)
	})

	put(t, other, live("r", 1))
	var seen chan []store.Batch
	// A follower reads once by itself. One whose read comes after the batch, on a busy machine, shows
	// nothing of polls, and another one follows from there.
	for number, waits := 0, false; !waits; number++ {
		if number == 10 {
			t.Fatal("batches are seen though no poll was let through")
		}
		found := make(chan []store.Batch, 1)
		go func() {
			batches, _ := followed.Events(t.Context(), "a", "r", number-1, time.Hour)
			found <- batches
		}()
		seen = found

		// A poll shows that there is a follower.
		for before := polls.Load(); polls.Load() == before; time.Sleep(time.Millisecond) {
		}
		batch := store.Batch{First: number, Last: number, SSE: []byte("x")}
		if err := other.Append(t.Context(), "a", "r", "me", batch); err != nil {
			t.Fatal(err)
		}
		waits = isPolled(&polls, 3, seen)
	}

	open.Store(true)
	if batches := <-seen; len(batches) != 1 {
		t.Errorf("%d batches are seen after polls were let through", len(batches))
	}
}

// isPolled says whether so many polls come before anything is seen.
func isPolled(polls *atomic.Int64, count int64, seen chan []store.Batch) bool {
	for end := polls.Load() + count; polls.Load() < end; time.Sleep(time.Millisecond) {
		if len(seen) > 0 {
			return false
		}
	}
	return true
}

func BenchmarkSQLite(b *testing.B) { storetest.Benchmark(b, openSQLite) }

func TestSQLiteClock(t *testing.T) {
	t.Parallel()
	testClock(t, openSQLite)
}

// TestSQLiteFile checks the file's mode, that the data can be read after the
// store was opened again, and that tables of a newer version are an error.
func TestSQLiteFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := store.Open(t.Context(), "sqlite:"+path, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, response("1", ""), response("2", "1"))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openURL(t, "sqlite:"+path, testOptions)
	if chain, err := s.Chain(t.Context(), "a", "2"); err != nil || len(chain) != 2 {
		t.Errorf("Chain after the file was opened again: %d responses, %v", len(chain), err)
	}
	newer := s.(*store.SQL).SchemaVersion() + 1
	if _, err := s.(*store.SQL).Tables().Exec(`INSERT INTO harmony_schema (version) VALUES ($1)`, newer); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), "sqlite:"+path, testOptions); err == nil || !strings.Contains(err.Error(), "version "+strconv.Itoa(newer)) {
		t.Errorf("tables of a newer version: %v", err)
	}
}

// testPurge checks that Purge deletes all expired rows and no others. expire
// must make everything in the store expire.
func testPurge(t *testing.T, s *store.SQL, expire func()) {
	t.Helper()
	ctx := t.Context()
	live := response("live", "")
	live.Live = true
	put(t, s, response("1", ""), response("2", "1"), live)
	for i := range 250 {
		put(t, s, response("old"+strconv.Itoa(i), ""))
	}
	for _, err := range []error{
		s.Append(ctx, "a", "live", "", store.Batch{SSE: []byte("data: x\n\n")}),
		s.PutConversation(ctx, "a", &store.Conversation{ID: "c"}),
		s.AddItems(ctx, "a", "c", "", []store.Item{{ID: "i"}}),
		s.PutTexts(ctx, "a", map[string]string{"x": "1"}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func(table string) (n int) {
		t.Helper()
		if err := s.Tables().QueryRow(`SELECT count(*) FROM harmony_` + table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	tables := []string{"chains", "responses", "leases", "items", "events", "conversations", "conversation_items", "texts"}
	for _, table := range tables {
		if count(table) == 0 {
			t.Errorf("%s is empty", table)
		}
	}
	expire()
	put(t, s, response("new", ""))
	if err := s.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]int{"chains": 1, "responses": 1, "leases": 0, "items": 2, "events": 0, "conversations": 0, "conversation_items": 0, "texts": 0} {
		if n := count(table); n != want {
			t.Errorf("%d rows are left in %s, want %d", n, table, want)
		}
	}
}

func TestSQLitePurge(t *testing.T) {
	t.Parallel()
	c := newFakeClock()
	o := testOptions
	o.Now = c.now
	s := openSQLite(t, o).(*store.SQL)
	testPurge(t, s, func() { c.advance(2 * time.Hour) })
}

// crashVariable is set in the environment of test processes that write to a
// store until they are killed. Its value is the store's URL. crashPrefix has the
// beginning of the ids, which differs for each process: a server may still end the
// write of a process that was killed.
const (
	crashVariable = "STORE_TEST_CRASH"
	crashPrefix   = "STORE_TEST_CRASH_PREFIX"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(crashVariable); url != "" {
		fmt.Println(writeForever(url))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// writeForever writes a chain of responses, each of them twice. It prints the
// number of a response after each write.
func writeForever(url string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, url, testOptions)
	if err != nil {
		return err
	}
	previous := ""
	for i := 0; ; i++ {
		r := response(os.Getenv(crashPrefix)+strconv.Itoa(i), previous)
		r.Output = append(r.Output, store.Item{ID: "large_" + r.ID, JSON: bytes.Repeat([]byte{'x'}, 100_000)})
		for r.Version = 1; r.Version <= 2; r.Version++ {
			if err := s.Put(ctx, "a", r); err != nil {
				return err
			}
			fmt.Println(i)
		}
		previous = r.ID
	}
}

// testKill kills a process that writes to a store, and checks that the store
// contains no partial data.
func testKill(t *testing.T, url string) {
	t.Helper()
	s := openURL(t, url, testOptions)
	const kills = 5
	for kill := range kills {
		prefix := strconv.Itoa(kill) + "_"
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), crashVariable+"="+url, crashPrefix+"="+prefix)
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		last := -1
		lines := bufio.NewScanner(out)
		for n := 0; n < 5+kill && lines.Scan(); n++ {
			if last, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(lines.Text())
			}
		}
		if err := command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = command.Wait() // it was killed
		printed := last
		for {
			// A response whose number was printed must exist. The next one may
			// exist.
			id := prefix + strconv.Itoa(last)
			chain, err := s.Chain(t.Context(), "a", id)
			if errors.Is(err, store.ErrNotFound) {
				if last <= printed {
					t.Errorf("response %d was written and does not exist", last)
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			r := chain[len(chain)-1]
			items, err := s.Items(t.Context(), "a", []string{"in_" + id, "large_" + id})
			if err != nil || len(items) != 2 || len(chain) != last+1 || len(r.Output) != 2 {
				t.Errorf("response %d: %d items, a chain of %d, %d output, %v", last, len(items), len(chain), len(r.Output), err)
			}
			last++
		}
		if last < 2 {
			t.Errorf("only %d responses are written", last)
		}
		for i := range last {
			if err := s.Delete(t.Context(), "a", prefix+strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestSQLiteKill(t *testing.T) {
	t.Parallel()
	testKill(t, "sqlite:"+filepath.Join(t.TempDir(), "store.db"))
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"mysql://user:secret@host/db": "sqlite:PATH",
		"secret":                      "sqlite:PATH",
		"sqlite:":                     "path of a file",
		"sqlite::memory:":             "memory:",
		"sqlite:" + filepath.Join(t.TempDir(), "none", "store.db"): "folder",
		"sqlite:" + t.TempDir():                         "cannot be opened",
		"postgres://user:sec%ret@host/db":               "percent-encoded",
		"postgres://user:secret@host:port/db":           "percent-encoded",
		"postgres://user:secret@host/db?pool_size=0":    "pool_size",
		"postgres://user:secret@host/db?sslmode=secret": "sslmode",
	} {
		s, err := store.Open(t.Context(), url, testOptions)
		if err == nil || s != nil {
			t.Errorf("Open(%s): no error", url)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec%ret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := store.Open(t.Context(), "memory:", store.Options{}); err == nil {
		t.Error("TTLs of 0: no error")
	}
	notADatabase := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(notADatabase, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), "sqlite:"+notADatabase, testOptions); err == nil {
		t.Error("a file that is not a database: no error")
	}
	if content, _ := os.ReadFile(notADatabase); !strings.HasPrefix(string(content), "not a database not a database ") {
		t.Error("a file that is not a database was changed")
	}
}
