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
	"time"
)

const (
	// maxSQLValue is the largest value that is written, in bytes.
	maxSQLValue = 128 << 20
	// pollInterval is how often the events of other processes are looked for.
	pollInterval = 100 * time.Millisecond
	// purgeInterval is how often what has aged is deleted, purgeBatch how many
	// chains at once.
	purgeInterval = time.Minute
	purgeBatch    = 100
	// ageParts is the precision of ages: reading begins an age anew once one
	// of so many parts of it is over, and does not write before.
	ageParts = 20
)

// SQL keeps everything in the tables of a relational database. The schema, in
// sql_schema.go, says which there are. What is written is one transaction, so
// that a process that dies leaves nothing half.
type SQL struct {
	dialect
	read, write *sql.DB // may be one

	responseTTL, textTTL time.Duration

	bell bell[string] // for the keys of responses
	stop context.CancelFunc
	done sync.WaitGroup
}

var _ Store = (*SQL)(nil)

// dialect is how databases differ. In queries {now} stands for the time in
// milliseconds, {keys} for a table of $1, which sqlKeys has made, {rows} for
// one of what sqlRows has made, with their numbers, and other words in braces
// for what the dialect says.
type dialect struct {
	name   string        // for errors
	now    func() string // an expression
	phrase *strings.Replacer
	// lock lets no other process change the schema until the transaction
	// ends.
	lock string
}

// start begins what the store does by itself.
func (s *SQL) start() {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(func() { s.watch(ctx) })
	s.done.Go(func() { s.purge(ctx) })
}

// Close gives up the connections.
func (s *SQL) Close() error {
	s.stop()
	s.done.Wait()
	if s.read == s.write {
		return s.write.Close()
	}
	return errors.Join(s.read.Close(), s.write.Close())
}

// sqlKey is what the rows of a name of a tenant have as their key. It has the
// same length for names of any length, and no other tenant can have it.
func sqlKey(tenant, name string) []byte {
	sum := sha256.Sum256(append(append(binary.AppendUvarint(nil, uint64(len(tenant))), tenant...), name...))
	return sum[:]
}

// sqlKeys is a JSON list of keys in hexadecimal.
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

// sqlRows is a JSON list of lists of values in hexadecimal.
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

// text is a query in the dialect.
func (s *SQL) text(query string) string {
	return s.phrase.Replace(strings.ReplaceAll(query, "{now}", s.now()))
}

// exec runs a statement and tells how many rows it has changed.
func (s *SQL) exec(ctx context.Context, q querier, query string, args ...any) (int64, error) {
	result, err := q.ExecContext(ctx, s.text(query), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// row reads the first row that a query gives. If there is none, the error is
// sql.ErrNoRows.
func (s *SQL) row(ctx context.Context, q querier, query string, args []any, into ...any) error {
	return q.QueryRowContext(ctx, s.text(query), args...).Scan(into...)
}

// rows reads all rows that a query gives.
func (s *SQL) rows(ctx context.Context, q querier, query string, args []any, read func(scan func(...any) error) error) error {
	rows, err := q.QueryContext(ctx, s.text(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// transact does all of what f does, or nothing.
func (s *SQL) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // what f says is what matters
		return err
	}
	return tx.Commit()
}

// wrap says what was being done when an error came that is none of this
// package's.
func (s *SQL) wrap(doing string, err error) error {
	if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) || errors.Is(err, ErrTooLarge) {
		return err
	}
	return fmt.Errorf("%s: %s: %w", s.name, doing, err)
}

// orNotFound makes ErrNotFound of the error that there is no row.
func orNotFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// due tells whether an age of which so many milliseconds are left should begin
// anew.
func due(left int64, ttl time.Duration) bool { return left < (ttl - ttl/ageParts).Milliseconds() }

// purge deletes what has aged, until ctx ends.
func (s *SQL) purge(ctx context.Context) {
	ticker := time.NewTicker(purgeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			// If it fails, what has aged is still not seen by anyone, and
			// there is a next time.
			_ = s.purgeAll(ctx)
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
	} {
		for deleted := int64(purgeBatch); deleted == purgeBatch; {
			var err error
			if deleted, err = s.exec(ctx, s.write, statement, purgeBatch); err != nil {
				return s.wrap("delete what has aged", err)
			}
		}
	}
	return nil
}
