package store

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// sqliteReserve is the size of the file that is deleted to make room for
	// deletions on a full disk.
	sqliteReserve = 16 << 20
	// sqliteBase is the size of a file without data, roughly.
	sqliteBase = 1 << 20
	// incrementalVacuum gives free pages back to the file system, at most so many
	// at once.
	incrementalVacuum = `PRAGMA incremental_vacuum(2000)`
	// evictTime bounds the eviction after one write.
	evictTime = 5 * time.Second
)

// sqliteRoom bounds the file of a SQLite store: it deletes the data that has not
// been used for the longest time. It also lets the store delete on a full disk. The
// write-ahead log, where a deletion is written too, needs room for that: a reserve
// beside the file is deleted for the moment.
type sqliteRoom struct {
	*SQL
	reserve   string // path
	limit     int64  // bytes of the file in use
	textLimit int64  // of them, bytes of texts

	mu sync.Mutex // held by what evicts, and by what uses the reserve
}

func newSQLiteRoom(s *SQL, path string, o Options) *sqliteRoom {
	return &sqliteRoom{
		SQL: s, reserve: path + "-reserve", limit: o.ResponseBytes + o.TextBytes + sqliteBase,
		textLimit: o.TextBytes,
	}
}

// neverFits reports whether data of this size is larger than the whole store may
// be. r may be nil.
func (r *sqliteRoom) neverFits(bytes int) bool {
	return r != nil && int64(bytes) > r.limit-r.textLimit-sqliteBase
}

// grown evicts after a write, if the file has too much data. An error is harmless:
// the next write evicts too. r may be nil.
func (r *sqliteRoom) grown(ctx context.Context) {
	// If another write evicts already, this one need not: it would only wait.
	if r == nil || !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()

	// The write has succeeded: its caller's end does not end the eviction.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), evictTime)
	defer cancel()
	if used, err := r.used(ctx); err == nil && used > r.limit {
		_ = r.evict(ctx, used)
	}
}

// used returns the bytes of the file that are in use.
func (r *sqliteRoom) used(ctx context.Context) (bytes int64, err error) {
	err = r.row(ctx, r.write, `SELECT (p.page_count - f.freelist_count) * s.page_size
		FROM pragma_page_count() p, pragma_freelist_count() f, pragma_page_size() s`, nil, &bytes)
	return bytes, err
}

// evict deletes the oldest texts while there are too many of them, then the oldest
// chains and conversations, until a hundredth of the limit is free. Each time it takes
// from the tenant that uses the most bytes, so that a tenant that writes much displaces
// its own data. Responses that are being made and conversations that are locked stay; a
// tenant that has nothing else is passed over.
func (r *sqliteRoom) evict(ctx context.Context, used int64) error {
	var texts int64
	if err := r.row(ctx, r.read, `SELECT coalesce(sum(texts), 0) FROM harmony_totals`, nil, &texts); err != nil {
		return err
	}

	// Some more than needed goes, so that not every write evicts. passed is how many of the largest
	// tenants have nothing that may go.
	free, passed := r.limit/100, 0
	for used > r.limit-free {
		if texts > r.textLimit {
			n, bytes, err := r.deleteRows(ctx, evictTexts, []any{entryOverhead, used - (r.limit - free)})
			if err != nil || n == 0 {
				return err
			}
			texts -= bytes
		} else {
			deleted, err := r.evictGroup(ctx, passed)
			if err != nil {
				return err
			}
			if !deleted {
				if more, err := r.hasTenant(ctx, passed+1); err != nil || !more {
					return err
				}
				passed++
			}
		}
		var err error
		if used, err = r.used(ctx); err != nil {
			return err
		}
	}

	return nil
}

// hasTenant reports whether there is a tenant with chains or conversations after this
// many others.
func (r *sqliteRoom) hasTenant(ctx context.Context, others int) (has bool, err error) {
	err = r.row(
		ctx, r.read,
		`SELECT EXISTS (SELECT 1 FROM harmony_totals WHERE bytes > 0 ORDER BY bytes LIMIT 1 OFFSET $1)`,
		[]any{others}, &has,
	)
	return has, err
}

// evictGroup deletes the oldest chain or conversation of the tenant that uses the most
// bytes except this many others.
func (r *sqliteRoom) evictGroup(ctx context.Context, others int) (deleted bool, err error) {
	// The kind that has the oldest first; the other one if all of the first are in use.
	statements, err := r.oldest(ctx, others)
	for _, statement := range statements {
		if err != nil || deleted {
			break
		}
		var n int
		n, _, err = r.deleteRows(ctx, statement, []any{others})
		deleted = n > 0
	}
	return deleted, err
}

// deleteRows runs a statement that deletes rows and returns their bytes.
func (r *sqliteRoom) deleteRows(ctx context.Context, statement string, args []any) (n int, bytes int64, err error) {
	err = r.withReserve(ctx, func() error {
		return r.rows(ctx, r.write, statement, args, func(scan func(...any) error) error {
			var size int64
			err := scan(&size)
			n++
			bytes += size
			return err
		})
	})
	return n, bytes, err
}

// Statements that delete the oldest data of a tenant and return the bytes of texts. Of
// evictTexts, $1 is what a text takes beside itself, and $2 how many bytes have to be
// freed: no more texts are deleted than that takes, a hundred at most, of the tenant with
// the most texts and until another has more. Of the others, $1 is how many tenants with more bytes are passed
// over.
const (
	evictTexts = `DELETE FROM harmony_texts WHERE key IN (
			SELECT key FROM (
				SELECT key, sum(size) OVER (ORDER BY expires ROWS UNBOUNDED PRECEDING) - size AS before FROM (
					SELECT key, length(text) + $1 AS size, expires FROM harmony_texts
					WHERE tenant = (SELECT tenant FROM harmony_totals ORDER BY texts DESC LIMIT 1)
						ORDER BY expires LIMIT 100
				)
			) WHERE before < min($2, 1 + (SELECT max(texts) - min(texts) FROM (
				SELECT texts FROM harmony_totals UNION ALL SELECT 0 ORDER BY texts DESC LIMIT 2)))
		) RETURNING length(text) + $1`
	largestTenant = `(SELECT tenant FROM harmony_totals WHERE bytes > 0 ORDER BY bytes DESC, tenant LIMIT 1 OFFSET $1)`
	evictChain    = `DELETE FROM harmony_chains WHERE id = (
			SELECT c.id FROM harmony_chains c WHERE c.tenant = ` + largestTenant + ` AND NOT EXISTS (
				SELECT 1 FROM harmony_responses r JOIN harmony_leases l ON l.response = r.key
					WHERE r.chain = c.id AND l.until >= {now}
			) ORDER BY c.expires LIMIT 1
		) RETURNING 0`
	evictConversation = `DELETE FROM harmony_conversations WHERE key = (
			SELECT key FROM harmony_conversations WHERE tenant = ` + largestTenant + `
				AND (lock_owner = x'' OR locked_until < {now}) ORDER BY expires LIMIT 1
		) RETURNING 0`
)

// oldest returns the statements that delete a chain and a conversation of the tenant
// that evictGroup means, first that of what has not been used for the longest time.
func (r *sqliteRoom) oldest(ctx context.Context, others int) (statements []string, err error) {
	var chain bool
	err = r.row(ctx, r.read, `WITH most AS (SELECT `+largestTenant+` AS tenant)
		SELECT coalesce((SELECT min(expires) FROM harmony_chains WHERE tenant = most.tenant)
				<= (SELECT min(expires) FROM harmony_conversations WHERE tenant = most.tenant),
			NOT EXISTS (SELECT 1 FROM harmony_conversations WHERE tenant = most.tenant))
				FROM most`, []any{others}, &chain)
	if chain {
		return []string{evictChain, evictConversation}, err
	}
	return []string{evictConversation, evictChain}, err
}

// deleting runs a deletion, again with the reserve if the disk is full. r may be nil.
func (r *sqliteRoom) deleting(ctx context.Context, deletion func() error) error {
	if r == nil {
		return deletion()
	}
	// Most deletions need no reserve, and do not wait for those that do.
	err := deletion()
	if !isFull(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.withReserve(ctx, deletion)
}

// withReserve runs a deletion, again with the reserve if the disk is full. r.mu is
// held.
func (r *sqliteRoom) withReserve(ctx context.Context, deletion func() error) error {
	err := deletion()
	if !isFull(err) {
		return err
	}
	if os.Remove(r.reserve) != nil {
		return err
	}
	defer r.fill()

	if err := deletion(); err != nil {
		return err
	}
	// Now the log can begin anew in the room that it has.
	_, _ = r.exec(ctx, r.write, `PRAGMA wal_checkpoint(PASSIVE)`)
	return nil
}

// tidy gives free pages back to the file system, and restores the reserve. It is
// called from time to time. r may be nil.
func (r *sqliteRoom) tidy(ctx context.Context) error {
	if r == nil {
		return nil
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.fill()

	var pages, free int64
	err := r.row(
		ctx, r.write,
		`SELECT p.page_count, f.freelist_count FROM pragma_page_count() p, pragma_freelist_count() f`, nil,
		&pages, &free,
	)

	// Some are kept, so that the file does not shrink and grow all the time.
	if err == nil && free > pages/4 {
		_, err = r.exec(ctx, r.write, incrementalVacuum)
	}
	return err
}

// fill writes the reserve as far as it is missing and there is room. An error is
// harmless: what could be written is a reserve too.
func (r *sqliteRoom) fill() {
	f, err := os.OpenFile(r.reserve, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return
	}

	block := make([]byte, 64<<10)
	// So that no file system compresses it.
	_, _ = rand.Read(block)
	for size := info.Size(); size < sqliteReserve; size += int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// isFull reports whether an error of SQLite shows that the disk is full.
func isFull(err error) bool {
	var failed *sqlite.Error
	if !errors.As(err, &failed) {
		return false
	}
	switch failed.Code() {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE:
		return true
	}
	return false
}
