package store

import (
	"context"
	"database/sql"
	"fmt"
)

// sqlSchema makes the tables. Each part brings a database from the version
// before it, which is its number here, to the next; what has been released is
// never changed.
//
// Keys are those of sqlKey. Names are kept beside them as they are, for those
// who look at the tables. Times are Unix times in milliseconds.
var sqlSchema = [][]string{{
	// Responses that continue one another. Everything else of a chain goes
	// with it.
	`CREATE TABLE harmony_chains (
		id      {identity},
		epoch   BIGINT NOT NULL,
		expires BIGINT NOT NULL
	)`,
	`CREATE INDEX harmony_chains_expires ON harmony_chains (expires)`,
	`CREATE TABLE harmony_responses (
		key          {blob} PRIMARY KEY,
		chain        BIGINT NOT NULL REFERENCES harmony_chains (id) ON DELETE CASCADE,
		depth        INTEGER NOT NULL, -- 1 for the first of the chain
		previous_key {blob} NOT NULL,
		tenant       {blob} NOT NULL,
		id           {blob} NOT NULL,
		previous     {blob} NOT NULL,
		conversation {blob} NOT NULL,
		version      BIGINT NOT NULL,
		live         INTEGER NOT NULL,
		owner        {blob} NOT NULL,
		written      BIGINT NOT NULL, -- the greater, the later
		body         {blob} NOT NULL  -- see body.go
	)`,
	`{sequence}`,
	`CREATE INDEX harmony_responses_chain ON harmony_responses (chain)`,
	`CREATE UNIQUE INDEX harmony_responses_written ON harmony_responses (written)`,
	// Of live responses. They are renewed often and are small.
	`CREATE TABLE harmony_leases (
		response {blob} PRIMARY KEY REFERENCES harmony_responses (key) ON DELETE CASCADE,
		until    BIGINT NOT NULL
	)`,
	// Which responses have an item.
	`CREATE TABLE harmony_items (
		item     {blob} NOT NULL,
		response {blob} NOT NULL REFERENCES harmony_responses (key) ON DELETE CASCADE,
		written  BIGINT NOT NULL,
		PRIMARY KEY (item, response)
	)`,
	`CREATE INDEX harmony_items_response ON harmony_items (response)`,
	`CREATE TABLE harmony_events (
		response {blob} NOT NULL REFERENCES harmony_responses (key) ON DELETE CASCADE,
		first    BIGINT NOT NULL,
		last     BIGINT NOT NULL,
		ends     INTEGER NOT NULL,
		sse      {blob} NOT NULL,
		PRIMARY KEY (response, first)
	)`,
	`CREATE UNIQUE INDEX harmony_events_ends ON harmony_events (response) WHERE ends = 1`,
	`CREATE TABLE harmony_conversations (
		key      {blob} PRIMARY KEY,
		tenant   {blob} NOT NULL,
		id       {blob} NOT NULL,
		created  BIGINT NOT NULL,
		metadata {blob} NOT NULL,
		holder   {blob} NOT NULL,
		held     BIGINT NOT NULL, -- until when
		items    BIGINT NOT NULL, -- how many were ever added
		expires  BIGINT NOT NULL
	)`,
	`CREATE INDEX harmony_conversations_expires ON harmony_conversations (expires)`,
	`CREATE TABLE harmony_conversation_items (
		conversation {blob} NOT NULL REFERENCES harmony_conversations (key) ON DELETE CASCADE,
		position     BIGINT NOT NULL,
		item         {blob} NOT NULL,
		id           {blob} NOT NULL,
		json         {blob} NOT NULL,
		PRIMARY KEY (conversation, position),
		UNIQUE (conversation, item)
	)`,
	`CREATE TABLE harmony_texts (
		key     {blob} PRIMARY KEY,
		text    {blob} NOT NULL,
		expires BIGINT NOT NULL
	)`,
	`CREATE INDEX harmony_texts_expires ON harmony_texts (expires)`,
}}

// migrate brings the tables to this version. Replicas may do so at once.
func (s *SQL) migrate(ctx context.Context) error {
	version, err := s.schemaVersion(ctx, s.write)
	if err != nil || version < len(sqlSchema) { // an error: that there is no such table
		err = s.transact(ctx, func(tx *sql.Tx) error {
			if err := s.lockSchema(ctx, tx); err != nil {
				return err
			}
			if version, err = s.schemaVersion(ctx, tx); err != nil {
				return err
			}
			return s.upgrade(ctx, tx, version)
		})
	}
	if err == nil && version > len(sqlSchema) {
		err = fmt.Errorf("the tables have version %d, this program knows %d: use the program that made them, or a newer one", version, len(sqlSchema))
	}
	return s.wrap("make the tables", err)
}

// lockSchema lets others wait who would change the schema, and makes sure that
// there is a table that tells its version.
func (s *SQL) lockSchema(ctx context.Context, tx *sql.Tx) error {
	for _, statement := range []string{s.lock, `CREATE TABLE IF NOT EXISTS harmony_schema (version INTEGER NOT NULL)`} {
		if _, err := s.exec(ctx, tx, statement); err != nil {
			return err
		}
	}
	return nil
}

// schemaVersion is the version of the tables; 0 where there are none.
func (s *SQL) schemaVersion(ctx context.Context, q querier) (version int, err error) {
	err = s.row(ctx, q, `SELECT coalesce(max(version), 0) FROM harmony_schema`, nil, &version)
	return version, err
}

func (s *SQL) upgrade(ctx context.Context, tx *sql.Tx, from int) error {
	for v := from; v < len(sqlSchema); v++ {
		for _, statement := range sqlSchema[v] {
			if _, err := s.exec(ctx, tx, statement); err != nil {
				return err
			}
		}
		if _, err := s.exec(ctx, tx, `INSERT INTO harmony_schema (version) VALUES ($1)`, v+1); err != nil {
			return err
		}
	}
	return nil
}
