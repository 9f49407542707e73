package store

import (
	"context"
	"database/sql"
)

// Purge deletes expired rows now.
func (s *SQL) Purge(ctx context.Context) error { return s.purgeAll(ctx) }

// Tables returns the database, for tests that inspect the tables.
func (s *SQL) Tables() *sql.DB { return s.write }

// SchemaVersion returns the version of the tables of this program.
func (s *SQL) SchemaVersion() int { return len(s.schema) }

// Tidy gives free pages back to the file system, and restores the reserve.
func (s *SQL) Tidy(ctx context.Context) error { return s.room.tidy(ctx) }

// Used returns the bytes of the file that are in use, and their bound.
func (s *SQL) Used(ctx context.Context) (bytes, limit int64, err error) {
	bytes, err = s.room.used(ctx)
	return bytes, s.room.limit, err
}
