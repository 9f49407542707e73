package store

import (
	"context"
	"database/sql"
)

// Purge deletes expired rows now.
func (s *SQL) Purge(ctx context.Context) error { return s.purgeAll(ctx) }

// Tables returns the database, for tests that inspect the tables.
func (s *SQL) Tables() *sql.DB { return s.write }

// SQLSchemaVersion returns the version of the tables of this program.
func SQLSchemaVersion() int { return len(sqlSchema) }
