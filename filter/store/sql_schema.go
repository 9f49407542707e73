package store

import (
	"context"
	"database/sql"
	"fmt"
)

// sqlSchema contains the statements that create the tables. Element n upgrades
// a database from version n to version n+1. Released elements must not change. SQLite
// has one more, see sqliteSchema.
//
// Keys are results of sqlKey. The names they are made from are stored beside
// them for people who inspect the tables. Times are Unix times in milliseconds.
var sqlSchema = [][]string{{
	// Chains of responses. Deleting a chain deletes all its data.
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
		written      BIGINT NOT NULL, -- order of writing
		body         {blob} NOT NULL  -- see body.go
	)`,
	`{sequence}`,
	`CREATE INDEX harmony_responses_chain ON harmony_responses (chain)`,
	`CREATE UNIQUE INDEX harmony_responses_written ON harmony_responses (written)`,
	// Leases of live responses, in a table of their own because they change
	// often.
	`CREATE TABLE harmony_leases (
		response {blob} PRIMARY KEY REFERENCES harmony_responses (key) ON DELETE CASCADE,
		until    BIGINT NOT NULL
	)`,
	// The responses that have an item.
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
		key          {blob} PRIMARY KEY,
		tenant       {blob} NOT NULL,
		id           {blob} NOT NULL,
		created      BIGINT NOT NULL,
		metadata     {blob} NOT NULL,
		lock_owner   {blob} NOT NULL, -- empty: not locked
		locked_until BIGINT NOT NULL,
		items        BIGINT NOT NULL, -- number of items ever added
		expires      BIGINT NOT NULL
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
}, {
	// What was taken of budgets in the window with a number.
	`CREATE TABLE harmony_budgets (
		key     {blob} PRIMARY KEY,
		name    {blob} NOT NULL,
		number  BIGINT NOT NULL,
		used    BIGINT NOT NULL,
		expires BIGINT NOT NULL -- the end of the window
	)`,
	`CREATE INDEX harmony_budgets_expires ON harmony_budgets (expires)`,
}}

// migrate upgrades the tables to the version of this program. Several replicas
// may call it at the same time.
func (s *SQL) migrate(ctx context.Context) error {
	version, err := s.schemaVersion(ctx, s.write)
	// An error means that the table does not exist.
	if err != nil || version < len(s.schema) {
		err = s.transact(ctx, func(tx *sql.Tx) error {
			if err := s.lockSchema(ctx, tx); err != nil {
				return err
			}
			// Another process may have made the tables while this one waited for the lock.
			if version, err = s.schemaVersion(ctx, tx); err != nil {
				return err
			}
			return s.upgrade(ctx, tx, version)
		})
	}
	if err == nil && version > len(s.schema) {
		err = fmt.Errorf(
			"the tables have version %d, but this program supports only version %d. Use the version of the "+
				"program that created them, or a newer one",
			version, len(s.schema),
		)
	}

	return s.wrap("create the tables", err)
}

// lockSchema makes other processes that want to change the schema wait until
// the transaction ends, and creates the table with the version.
func (s *SQL) lockSchema(ctx context.Context, tx *sql.Tx) error {
	for _, statement := range []string{s.lock, `CREATE TABLE IF NOT EXISTS harmony_schema (version INTEGER NOT NULL)`} {
		if _, err := s.exec(ctx, tx, statement); err != nil {
			return err
		}
	}
	return nil
}

// schemaVersion returns the version of the tables, or 0 if there are none.
func (s *SQL) schemaVersion(ctx context.Context, q querier) (version int, err error) {
	err = s.row(ctx, q, `SELECT coalesce(max(version), 0) FROM harmony_schema`, nil, &version)
	return version, err
}

func (s *SQL) upgrade(ctx context.Context, tx *sql.Tx, from int) error {
	for v := from; v < len(s.schema); v++ {
		for _, statement := range s.schema[v] {
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
