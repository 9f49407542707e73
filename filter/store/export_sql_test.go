package store

import (
	"context"
	"database/sql"
)

// Purge deletes now what has aged.
func (s *SQL) Purge(ctx context.Context) error { return s.purgeAll(ctx) }

// Tables gives the database, for tests that look at the tables.
func (s *SQL) Tables() *sql.DB { return s.write }

// SQLSchemaVersion is the version of the tables that this program knows.
func SQLSchemaVersion() int { return len(sqlSchema) }
