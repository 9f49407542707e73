package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver, for statements that tests run directly

	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/store/storetest"
)

var postgresTests atomic.Int64

// postgresSchema creates a schema for the test and returns a URL that uses it.
// The schema is dropped at the end of the test.
func postgresSchema(t testing.TB) string {
	t.Helper()
	raw := os.Getenv("STORE_TEST_POSTGRES")
	if raw == "" {
		t.Skip(`no STORE_TEST_POSTGRES: "make test-stores" starts a server and sets it`)
	}
	schema := fmt.Sprintf("test_%d_%d", time.Now().UnixNano(), postgresTests.Add(1))
	postgresExec(t, raw, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { postgresExec(t, raw, "DROP SCHEMA "+schema+" CASCADE") })
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal("STORE_TEST_POSTGRES is not a URL")
	}
	query := u.Query()
	query.Set("search_path", schema)
	query.Set("pool_size", "4")
	query.Set("application_name", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

// postgresExec runs a statement directly, without the store.
func postgresExec(t testing.TB, url, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // a test's
	if _, err := db.ExecContext(context.Background(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func openPostgres(t testing.TB, o store.Options) store.Store {
	t.Helper()
	return openURL(t, postgresSchema(t), o)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	storetest.Test(t, openPostgres)
}

func TestPostgresShared(t *testing.T) {
	t.Parallel()
	storetest.TestShared(t, func(t testing.TB) storetest.Open {
		u := postgresSchema(t)
		return func(t testing.TB, o store.Options) store.Store { return openURL(t, u, o) }
	})
}

func TestPostgresRoomFirst(t *testing.T) { storetest.TestRoomFirst(t, openPostgres) } // not parallel: allocations are counted

func BenchmarkPostgres(b *testing.B) { storetest.Benchmark(b, openPostgres) }

// TestPostgresConnectionsDrop terminates all connections of a store and checks
// that it recovers.
func TestPostgresConnectionsDrop(t *testing.T) {
	t.Parallel()
	u := postgresSchema(t)
	s := openURL(t, u, testOptions)
	put(t, s, response("1", ""))
	schema := u[strings.Index(u, "application_name=")+len("application_name="):]
	schema, _, _ = strings.Cut(schema, "&")
	postgresExec(t, os.Getenv("STORE_TEST_POSTGRES"), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", schema)
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err = s.Get(t.Context(), "a", "1"); err == nil {
			return
		}
	}
	t.Errorf("the store does not recover: %v", err)
}

func TestPostgresPurge(t *testing.T) {
	t.Parallel()
	o := testOptions
	s := openPostgres(t, o).(*store.SQL)
	testPurge(t, s, func() {
		for _, table := range []string{"chains", "conversations", "texts"} {
			if _, err := s.Tables().Exec(`UPDATE harmony_` + table + ` SET expires = expires - 7200000`); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestPostgresKill(t *testing.T) {
	t.Parallel()
	testKill(t, postgresSchema(t))
}

// TestPostgresUnreachable opens a store whose server cannot be reached.
func TestPostgresUnreachable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var unreached []string
	o := testOptions
	o.Unreached = func(err error) { unreached = append(unreached, err.Error()) }
	_, err := store.Open(ctx, "postgres://user:secret@127.0.0.1:1/db", o)
	// Once, however often it is tried, and before the end.
	if len(unreached) != 1 || strings.Contains(unreached[0], "secret") {
		t.Errorf("while the start waits: %q", unreached)
	}
	if err == nil || !strings.Contains(err.Error(), "check the address") {
		t.Errorf("unreachable server: %v", err)
	}
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "secret") {
		t.Errorf("unreachable server: %v", err)
	}
}
