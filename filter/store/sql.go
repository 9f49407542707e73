package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxSQLValue is the largest value that is written, in bytes.
	maxSQLValue = 128 << 20
	// pollInterval is how often the store looks for events of other processes.
	pollInterval = 100 * time.Millisecond
	// purgeInterval is how often expired rows are deleted, and purgeBatch is
	// how many chains are deleted at once.
	purgeInterval = time.Minute
	purgeBatch    = 100
	// ageParts and leastAge bound the writes caused by reads: a read restarts a TTL
	// only if more than 1/ageParts of it, or leastAge, has passed. SQLite evicts what
	// expires first, which is what has not been used for the longest time, to
	// within leastAge.
	ageParts = 20
	leastAge = time.Minute
)

// SQL is a [Store] in the tables of a relational database; see sql_schema.go
// for the schema. Each write is one transaction, so that a process that is
// killed leaves no partial data.
//
// It is large because it implements all methods of Store.
type SQL struct {
	dialect
	// read and write are the same for PostgreSQL.
	read, write *sql.DB

	responseTTL, textTTL time.Duration

	// journals tell followers of new events, by the key of the response.
	journals notifier[string]
	// room bounds the file; nil: the server has its own bounds.
	room *sqliteRoom
	// queue is what waits for the one writer; nil: there are several.
	queue *writeQueue

	// through makes the store's own accesses; see [SQL.Through].
	through atomic.Pointer[Access]
	stop    context.CancelFunc
	done    sync.WaitGroup
}

var _ Store = (*SQL)(nil)

// dialect contains the differences between the databases. In queries, {now} is
// the current time in milliseconds, {keys} is a table made from parameter $1, a
// result of sqlKeys, {rows} is a table made from a result of sqlRows, with row
// numbers, and other words in braces are replaced by phrase.
type dialect struct {
	name   string        // for error messages
	now    func() string // returns an SQL expression
	phrase *strings.Replacer
	schema [][]string // see sqlSchema
	// lock is a statement that prevents other processes from changing the
	// schema until the transaction ends.
	lock string
	// singles says that a response can be written with one statement, and a text
	// be read and written with one; see postgres_single.go.
	singles bool
}

// start starts the background goroutines.
func (s *SQL) start() {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	// Without a breaker nothing stands between.
	s.Through(func(ctx context.Context, do func(context.Context) error) error { return do(ctx) })
	s.done.Go(func() { s.watch(ctx) })
	s.done.Go(func() { s.purge(ctx) })
}

// Close stops the background goroutines and closes the connections.
func (s *SQL) Close() error {
	s.stop()
	s.done.Wait()

	// PostgreSQL has one pool for both; SQLite has a writer of its own.
	if s.read == s.write {
		return s.write.Close()
	}
	return errors.Join(s.read.Close(), s.write.Close())
}

// sqlKey returns the primary key of a tenant's name: a hash of both. Its length
// does not depend on the name's, and names of different tenants have different
// keys.
func sqlKey(tenant, name string) []byte {
	sum := sha256.Sum256(append(append(binary.AppendUvarint(nil, uint64(len(tenant))), tenant...), name...))
	return sum[:]
}

// sqlKeys returns a JSON array of keys in hexadecimal.
func sqlKeys(keys [][]byte) string {
	b := make([]byte, 0, 2+len(keys)*(3+2*sha256.Size))
	b = append(b, '[')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendHex(b, k)
	}
	return string(append(b, ']'))
}

// sqlRows returns a JSON array of arrays of values in hexadecimal.
func sqlRows(rows [][][]byte) string {
	b := []byte{'['}
	for i, row := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for j, value := range row {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendHex(b, value)
		}
		b = append(b, ']')
	}

	return string(append(b, ']'))
}

func appendHex(b, value []byte) []byte {
	return append(hex.AppendEncode(append(b, '"'), value), '"')
}

// querier is a database or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// text returns a query in the dialect.
func (s *SQL) text(query string) string {
	return s.phrase.Replace(strings.ReplaceAll(query, "{now}", s.now()))
}

// exec runs a statement and returns the number of changed rows.
func (s *SQL) exec(ctx context.Context, q querier, query string, args ...any) (int64, error) {
	result, err := q.ExecContext(ctx, s.text(query), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// row reads the first row of a query's result. If there is none, it returns
// sql.ErrNoRows.
func (s *SQL) row(ctx context.Context, q querier, query string, args []any, into ...any) error {
	return q.QueryRowContext(ctx, s.text(query), args...).Scan(into...)
}

// rows calls read for every row of a query's result.
func (s *SQL) rows(
	ctx context.Context, q querier, query string, args []any, read func(scan func(...any) error) error,
) error {
	rows, err := q.QueryContext(ctx, s.text(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports errors
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// transact runs f in a transaction, which it commits unless f fails.
func (s *SQL) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		// The error of f is returned.
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// wrap adds the action to errors that are not this package's own.
func (s *SQL) wrap(action string, err error) error {
	if Answered(err) {
		return err
	}
	return fmt.Errorf("%s: %s: %w", s.name, action, err)
}

// orNotFound replaces sql.ErrNoRows by ErrNotFound.
func orNotFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// due reports whether a TTL with this many milliseconds left should be
// restarted.
func due(left int64, ttl time.Duration) bool {
	return left < (ttl - min(ttl/ageParts, leastAge)).Milliseconds()
}

// purge deletes expired rows periodically until ctx ends.
func (s *SQL) purge(ctx context.Context) {
	ticker := time.NewTicker(purgeInterval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			// Queries ignore expired rows, so errors are harmless. The next
			// tick tries again.
			_ = errors.Join(s.purgeAll(ctx), s.room.tidy(ctx))
		}
	}
}

func (s *SQL) purgeAll(ctx context.Context) error {
	for _, statement := range []string{
		`DELETE FROM harmony_chains WHERE id IN
			(SELECT id FROM harmony_chains WHERE expires < {now} LIMIT $1 {skip locked})`,
		`DELETE FROM harmony_conversations WHERE key IN
			(SELECT key FROM harmony_conversations WHERE expires < {now} LIMIT $1 {skip locked})`,
		`DELETE FROM harmony_texts WHERE key IN
			(SELECT key FROM harmony_texts WHERE expires < {now} LIMIT $1 {skip locked})`,
		`DELETE FROM harmony_budgets WHERE key IN
			(SELECT key FROM harmony_budgets WHERE expires < {now} LIMIT $1 {skip locked})`,
	} {
		// In batches, so that requests need not wait for all of it.
		for deleted := int64(purgeBatch); deleted == purgeBatch; {
			err := s.room.deleting(ctx, func() (err error) {
				deleted, err = s.exec(ctx, s.write, statement, purgeBatch)
				return err
			})
			if err != nil {
				return s.wrap("delete expired rows", err)
			}
		}
	}

	return nil
}
