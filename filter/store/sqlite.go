package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// sqliteReaders is the number of connections for queries.
const sqliteReaders = 4

// OpenSQLite opens a store in a file and creates the file if it does not exist.
// Only the file's owner may read it. Processes on the same machine may share
// it. Its data is bounded by o.ResponseBytes and o.TextBytes together: what has not
// been used for the longest time is deleted, of the tenant that uses the most bytes.
func OpenSQLite(ctx context.Context, path string, o Options) (*SQL, error) {
	if err := checkSQLitePath(path); err != nil {
		return nil, err
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sqlite: the file cannot be opened or created, check that its folder exists and that "+
			"this user may write there: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}

	s := &SQL{
		dialect: sqliteDialect(o.Now), responseTTL: o.ResponseTTL, textTTL: o.TextTTL,
		queue: &writeQueue{now: o.Now},
	}

	if s.write, err = openSQLite(
		path, 1, "auto_vacuum(incremental)", "journal_mode(wal)", "synchronous(normal)", "foreign_keys(1)",
	); err != nil {
		return nil, err
	}
	// Readers do not wait for the writer, and cannot become a second one.
	if s.read, err = openSQLite(path, sqliteReaders, "query_only(1)"); err != nil {
		return nil, errors.Join(err, s.write.Close())
	}

	s.room = newSQLiteRoom(s, path, o)
	if err := s.room.deleting(ctx, func() error { return s.migrate(ctx) }); err != nil {
		return nil, errors.Join(err, s.read.Close(), s.write.Close())
	}

	// The bound may be lower than that of the process before.
	s.room.fill()
	s.room.grown(ctx)
	s.start()
	return s, nil
}

func checkSQLitePath(path string) error {
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return errors.New(
			"sqlite: write the path of a file, sqlite:/var/lib/envoy-harmony/store.db, or memory: for a " +
				"store without a file",
		)
	}
	return nil
}

func openSQLite(path string, connections int, pragmas ...string) (*sql.DB, error) {
	// A transaction that begins as a reader and then writes fails at once where another one writes,
	// whatever busy_timeout says: all begin as writers, which wait for each other.
	query := url.Values{"_pragma": append([]string{"busy_timeout(5000)"}, pragmas...), "_txlock": {"immediate"}}
	source := url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: query.Encode()}
	db, err := sql.Open("sqlite", source.String())
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

func sqliteDialect(now func() time.Time) dialect {
	return dialect{
		name: "sqlite",
		now:  func() string { return strconv.FormatInt(now().UnixMilli(), 10) },
		phrase: strings.NewReplacer(
			"{blob}", "BLOB",
			"{identity}", "INTEGER PRIMARY KEY",
			"{sequence}", "SELECT 1",
			"{written}", "(SELECT coalesce(max(written), 0) + 1 FROM harmony_responses)",
			"{keys}", "(SELECT unhex(value) AS key FROM json_each($1))",
			"{rows}", "(SELECT key AS n, unhex(value ->> 0) AS a, "+
				"unhex(value ->> 1) AS b, unhex(value ->> 2) AS c FROM json_each($1))",
			"{previous}", "JOIN harmony_responses",
			"{, tenant}", ", tenant", "{, c}", ", c",
			"{share}", "",
			"{skip locked}", "",
		),
		schema: sqliteSchema,
		lock:   "SELECT 1", // transactions that write are serialized already
	}
}
