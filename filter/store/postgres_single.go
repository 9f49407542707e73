package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// PostgreSQL can do in one statement, which is one round trip, what takes SQLite a
// transaction of several. In a statement, all parts see the tables as they were
// before it, and rows are locked in the same order as in the transaction: a part
// that refers to another part waits for it.

// singlePut inserts a response. It fails with a unique violation if the id exists.
const singlePut = `WITH continued AS (
		UPDATE harmony_chains SET expires = {now} + CAST($2 AS BIGINT)
		WHERE id = (SELECT chain FROM harmony_responses WHERE key = $4) AND expires >= {now} RETURNING id
	), begun AS (
		INSERT INTO harmony_chains (epoch, expires)
		SELECT CAST($5 AS BIGINT), {now} + CAST($2 AS BIGINT) WHERE NOT EXISTS (SELECT 1 FROM continued) RETURNING id
	), put AS (
		INSERT INTO harmony_responses
			(key, chain, depth, previous_key, tenant, id, previous, conversation, version, live, owner, written, body)
		SELECT CAST($3 AS BYTEA), c.id,
			coalesce((SELECT depth + 1 FROM harmony_responses WHERE key = $4 AND chain = c.id), 1),
			CAST($4 AS BYTEA), CAST($6 AS BYTEA), CAST($7 AS BYTEA), CAST($8 AS BYTEA), CAST($9 AS BYTEA), 1,
			CAST($10 AS INTEGER), CAST($11 AS BYTEA), {written}, CAST($12 AS BYTEA)
		FROM (SELECT id FROM continued UNION ALL SELECT id FROM begun) c
		RETURNING key, written
	), leased AS (
		INSERT INTO harmony_leases (response, until)
		SELECT key, {now} + CAST($13 AS BIGINT) FROM put WHERE CAST($10 AS INTEGER) = 1
	), indexed AS (
		INSERT INTO harmony_items (item, response, written) SELECT k.key, put.key, put.written FROM put, {keys}
	)
	SELECT count(*) FROM put`

// singleOverwrite replaces the version $4 of a response.
const singleOverwrite = `WITH touched AS (
		UPDATE harmony_chains SET epoch = epoch + 1, expires = {now} + CAST($2 AS BIGINT)
		WHERE id = (SELECT chain FROM harmony_responses WHERE key = $3 AND version = $4) AND expires >= {now}
			RETURNING id
	), put AS (
		UPDATE harmony_responses
		SET version = version + 1, conversation = $5, live = $6, owner = $7, written = {written}, body = $8
		WHERE key = $3 AND version = $4 AND EXISTS (SELECT 1 FROM touched) RETURNING key, written
	), leased AS (
		INSERT INTO harmony_leases (response, until)
		SELECT key, {now} + CAST($9 AS BIGINT) FROM put WHERE CAST($6 AS INTEGER) = 1
		ON CONFLICT (response) DO UPDATE SET until = excluded.until
	), released AS (
		DELETE FROM harmony_leases WHERE CAST($6 AS INTEGER) = 0 AND response IN (SELECT key FROM put)
	), removed AS (
		DELETE FROM harmony_items WHERE response IN (SELECT key FROM put) AND item NOT IN (SELECT k.key FROM {keys})
	), indexed AS (
		INSERT INTO harmony_items (item, response, written) SELECT k.key, put.key, put.written FROM put, {keys}
		ON CONFLICT (item, response) DO UPDATE SET written = excluded.written
	)
	SELECT count(*) FROM put`

// singleText returns the text $1, which it writes if there is none, and restarts
// its TTL if less than $4 milliseconds are left.
const singleText = `WITH kept AS (
		SELECT text, expires - {now} AS remaining FROM harmony_texts WHERE key = $1 AND expires >= {now}
	), put AS (
		INSERT INTO harmony_texts (key, text, expires)
		SELECT CAST($1 AS BYTEA), CAST($2 AS BYTEA), {now} + CAST($3 AS BIGINT)
		WHERE NOT EXISTS (SELECT 1 FROM kept WHERE remaining >= CAST($4 AS BIGINT))
		ON CONFLICT (key) DO UPDATE SET expires = excluded.expires,
			text = CASE WHEN harmony_texts.expires >= {now} THEN harmony_texts.text ELSE excluded.text END
		RETURNING text
	)
	SELECT text FROM put UNION ALL SELECT text FROM kept LIMIT 1`

// singleDelete deletes a response.
const singleDelete = `WITH touched AS (
		UPDATE harmony_chains SET epoch = epoch + 1
		WHERE id = (SELECT chain FROM harmony_responses WHERE key = $1) AND expires >= {now} RETURNING id
	)
	DELETE FROM harmony_responses WHERE key = $1 AND EXISTS (SELECT 1 FROM touched)`

// singleAdd returns the statement that adds items to the conversation $3 if the
// condition holds. It fails with a unique violation if the conversation has one of
// them.
func singleAdd(condition string) string {
	return `WITH c AS (
		UPDATE harmony_conversations SET lock_owner = $2, items = items + $4, expires = {now} + CAST($5 AS BIGINT)
		WHERE key = $3 AND expires >= {now} AND ` + condition + ` RETURNING key, items
	), added AS (
		INSERT INTO harmony_conversation_items (conversation, position, item, id, json)
		SELECT c.key, c.items - CAST($4 AS BIGINT) + r.n, r.a, r.b, r.c FROM c, {rows}
	)
	SELECT count(*) FROM c`
}

// addSingle adds items to a conversation with one statement, with another one if
// that finds no conversation.
func (s *SQL) addSingle(ctx context.Context, key []byte, lockOwner, condition string, rows [][][]byte) error {
	// An item that is there already violates a key, which undoes the whole statement.
	var found int
	err := s.row(ctx, s.write, singleAdd(condition),
		[]any{sqlRows(rows), []byte(lockOwner), key, len(rows), s.responseTTL.Milliseconds()}, &found)
	switch {
	case isDuplicate(err):
		return ErrConflict
	case err == nil && found == 0:
		return s.conflictOrNotFound(ctx, s.write, key)
	}
	return err
}

// isDuplicate reports whether an error is PostgreSQL's for a unique violation.
func isDuplicate(err error) bool {
	var rejected *pgconn.PgError
	return errors.As(err, &rejected) && rejected.Code == "23505"
}

// single writes the response with one statement. errExists means that the
// transaction has to decide.
func (w *sqlWrite) single(ctx context.Context) error {
	r := w.r
	ids := r.itemsByID()
	items := make([][]byte, 0, len(ids))
	for id := range ids {
		items = append(items, sqlKey(w.tenant, id))
	}

	query := singleOverwrite
	args := []any{
		sqlKeys(items), w.responseTTL.Milliseconds(), w.key, r.Version - 1, []byte(r.Conversation),
		flag(r.Live), []byte(r.Owner), w.body, r.Lease.Milliseconds(),
	}
	if r.Version == 1 {
		query = singlePut
		args = []any{
			sqlKeys(items), w.responseTTL.Milliseconds(), w.key, sqlKey(w.tenant, r.Previous), newEpoch(),
			[]byte(w.tenant), []byte(r.ID), []byte(r.Previous), []byte(r.Conversation),
			flag(r.Live), []byte(r.Owner), w.body, r.Lease.Milliseconds(),
		}
	}

	var put int
	err := w.row(ctx, w.write, query, args, &put)
	switch {
	case isDuplicate(err):
		return errExists
	case err == nil && put == 0:
		return ErrConflict
	}

	return err
}

// errExists is the error of singlePut for an id that exists, perhaps in an expired
// chain.
var errExists = errors.New("the id exists")
