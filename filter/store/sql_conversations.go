package store

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"
)

const (
	// sqlUnlocked is true if the conversation is not locked by an owner other
	// than $2.
	sqlUnlocked = `(length(lock_owner) = 0 OR lock_owner = $2 OR locked_until < {now})`
	// sqlLockOwner is true if $2 was the last to lock the conversation.
	sqlLockOwner = `lock_owner = $2`
)

// PutConversation implements [Conversations].
func (s *SQL) PutConversation(ctx context.Context, tenant string, c *Conversation) (err error) {
	if len(c.Metadata) > maxSQLValue || s.room.neverFits(len(c.Metadata)) {
		return ErrTooLarge
	}
	defer s.room.grown(ctx)

	leave := s.queue.enter(len(c.Metadata))
	defer func() { leave(err) }()

	key := sqlKey(tenant, c.ID)
	return s.wrap("put a conversation", s.transact(ctx, func(tx *sql.Tx) error {
		// The id may belong to an expired conversation that has not been purged
		// yet.
		if _, err := s.exec(
			ctx, tx, `DELETE FROM harmony_conversations WHERE key = $1 AND expires < {now}`, key,
		); err != nil {
			return err
		}
		added, err := s.exec(ctx, tx, `INSERT INTO harmony_conversations
				(key, tenant, id, created, metadata, lock_owner, locked_until, items, expires)
			VALUES ($1, $2, $3, $4, $5, $6, 0, 0, {now} + $7) ON CONFLICT DO NOTHING`,
			key, []byte(tenant), []byte(c.ID), c.Created, notNull(c.Metadata), []byte{}, s.responseTTL.Milliseconds())
		if err == nil && added == 0 {
			err = ErrConflict
		}
		return err
	}))
}

// PutMetadata implements [Conversations].
func (s *SQL) PutMetadata(ctx context.Context, tenant, id string, metadata []byte) (err error) {
	if len(metadata) > maxSQLValue || s.room.neverFits(len(metadata)) {
		return ErrTooLarge
	}
	defer s.room.grown(ctx)

	leave := s.queue.enter(len(metadata))
	defer func() { leave(err) }()

	found, err := s.exec(ctx, s.write, `UPDATE harmony_conversations SET metadata = $2, expires = {now} + $3
			WHERE key = $1 AND expires >= {now}`,
		sqlKey(tenant, id), notNull(metadata), s.responseTTL.Milliseconds())
	if err == nil && found == 0 {
		err = ErrNotFound
	}
	return s.wrap("put metadata of a conversation", err)
}

// notNull returns b, or an empty slice instead of nil, which a driver would
// write as NULL.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Conversation implements [Conversations].
func (s *SQL) Conversation(ctx context.Context, tenant, id string) (*Conversation, error) {
	c := Conversation{ID: id}
	err := s.row(ctx, s.read, `SELECT created, metadata FROM harmony_conversations WHERE key = $1 AND expires >= {now}`,
		[]any{sqlKey(tenant, id)}, &c.Created, &c.Metadata)
	if err != nil {
		return nil, s.wrap("get a conversation", orNotFound(err))
	}
	return &c, nil
}

// DeleteConversation implements [Conversations].
func (s *SQL) DeleteConversation(ctx context.Context, tenant, id string) error {
	var found int64
	err := s.room.deleting(ctx, func() (err error) {
		found, err = s.exec(
			ctx, s.write, `DELETE FROM harmony_conversations WHERE key = $1 AND expires >= {now}`,
			sqlKey(tenant, id),
		)
		return err
	})
	if err == nil && found == 0 {
		err = ErrNotFound
	}
	return s.wrap("delete a conversation", err)
}

// AddItems implements [Conversations].
func (s *SQL) AddItems(ctx context.Context, tenant, id, lockOwner string, items []Item) (err error) {
	size := 0
	rows := make([][][]byte, len(items))
	for i, item := range items {
		size += len(item.ID) + len(item.JSON)
		rows[i] = [][]byte{sqlKey(tenant, item.ID), []byte(item.ID), item.JSON}
	}

	if size > maxSQLValue || s.room.neverFits(size) {
		return ErrTooLarge
	}
	defer s.room.grown(ctx)

	leave := s.queue.enter(size)
	defer func() { leave(err) }()

	// The owner of an expired lock may still add: nobody else has locked the conversation since.
	key, condition := sqlKey(tenant, id), sqlLockOwner
	if lockOwner == "" {
		condition = sqlUnlocked
	}
	if s.singles {
		return s.wrap("add items", s.addSingle(ctx, key, lockOwner, condition, rows))
	}

	// The update locks the conversation and counts the items, so that positions of two writers
	// cannot meet.
	return s.wrap("add items", s.transact(ctx, func(tx *sql.Tx) error {
		var after int64
		err := s.row(ctx, tx, `UPDATE harmony_conversations
				SET lock_owner = $2, items = items + $3, expires = {now} + $4
			WHERE key = $1 AND expires >= {now} AND `+condition+` RETURNING items`,
			[]any{key, []byte(lockOwner), len(items), s.responseTTL.Milliseconds()}, &after)
		if errors.Is(err, sql.ErrNoRows) {
			return s.conflictOrNotFound(ctx, tx, key)
		}
		if err != nil || len(items) == 0 {
			return err
		}
		added, err := s.exec(ctx, tx, `INSERT INTO harmony_conversation_items (conversation, position, item, id, json)
			SELECT CAST($2 AS {blob}), CAST($3 AS BIGINT) + n, a, b, c FROM {rows}
			WHERE true ON CONFLICT DO NOTHING`, sqlRows(rows), key, after-int64(len(items)))
		// A row that was not added has an id that the conversation has already.
		if err == nil && added != int64(len(items)) {
			err = ErrConflict
		}
		return err
	}))
}

// conflictOrNotFound returns the error for a conversation that an update did
// not find.
func (s *SQL) conflictOrNotFound(ctx context.Context, q querier, key []byte) error {
	var exists bool
	err := s.row(
		ctx, q, `SELECT count(*) FROM harmony_conversations WHERE key = $1 AND expires >= {now}`, []any{key},
		&exists,
	)
	switch {
	case err != nil:
		return err
	case exists:
		return ErrConflict
	}

	return ErrNotFound
}

// ConversationItems implements [Conversations].
func (s *SQL) ConversationItems(ctx context.Context, tenant, id string, p Page) ([]Item, error) {
	key, most := sqlKey(tenant, id), int64(math.MaxInt32)
	if p.Limit > 0 {
		most = int64(p.Limit)
	}

	// An empty page of an existing conversation is one row without an item.
	var items []Item
	var left int64
	found := false
	_, err := sized(ctx, func(limit int) (size int, err error) {
		items = nil
		args := []any{key, limit, sqlKey(tenant, p.After), most}
		err = s.rows(ctx, s.read, pageQuery(p), args, func(scan func(...any) error) error {
			var id, json []byte
			err := scan(&left, &size, &id, &json)
			if found = true; id != nil {
				items = append(items, Item{ID: string(id), JSON: json})
			}
			return err
		})
		return size, err
	})
	switch {
	case err != nil:
	case !found:
		err = ErrNotFound
	case due(left, s.responseTTL):
		_, err = s.exec(
			ctx, s.write, `UPDATE harmony_conversations SET expires = {now} + $2 WHERE key = $1`, key,
			s.responseTTL.Milliseconds(),
		)
	}
	if err != nil {
		return nil, s.wrap("get items of a conversation", err)
	}
	return items, nil
}

// pageQuery returns the query for a page of the conversation with key $1 after
// the item $3, with at most $4 items.
func pageQuery(p Page) string {
	order, after := "", ">"
	if p.Descending {
		order, after = " DESC", "<"
	}

	// Without Page.After, the join must keep the row of the conversation, and
	// $3 is the key of no item.
	join, start := "LEFT JOIN", ""
	if p.After != "" {
		join, start = "JOIN", " AND i.position "+after+" a.position"
	}
	return `WITH page AS (
		SELECT c.expires - {now} AS remaining, i.position, length(i.json) AS size FROM harmony_conversations c
			` + join + ` harmony_conversation_items a ON a.conversation = c.key AND a.item = $3
			LEFT JOIN harmony_conversation_items i ON i.conversation = c.key` + start + `
			WHERE c.key = $1 AND c.expires >= {now} ORDER BY i.position` + order + ` LIMIT $4
	), total AS (SELECT coalesce(sum(size), 0) AS bytes FROM page)
	SELECT page.remaining, total.bytes, i.id, CASE WHEN total.bytes <= CAST($2 AS BIGINT) THEN i.json END
		FROM page CROSS JOIN total
		LEFT JOIN harmony_conversation_items i ON i.conversation = $1 AND i.position = page.position
		ORDER BY page.position` + order
}

// ConversationSize implements [Conversations].
func (s *SQL) ConversationSize(ctx context.Context, tenant, id string) (Size, error) {
	var size Size
	err := s.row(ctx, s.read, `SELECT count(i.json), coalesce(sum(length(i.json)), 0) FROM harmony_conversations c
		LEFT JOIN harmony_conversation_items i ON i.conversation = c.key
		WHERE c.key = $1 AND c.expires >= {now} GROUP BY c.key`, []any{sqlKey(tenant, id)}, &size.Items, &size.Bytes)
	if err != nil {
		return Size{}, s.wrap("get the size of a conversation", orNotFound(err))
	}
	return size, nil
}

// ConversationItem implements [Conversations].
func (s *SQL) ConversationItem(ctx context.Context, tenant, id, item string) (Item, error) {
	// The key has the tenant, so that an id of another tenant's conversation finds nothing.
	found := Item{ID: item}
	_, err := sized(ctx, func(limit int) (size int, err error) {
		err = s.row(ctx, s.read, `SELECT length(i.json), CASE WHEN length(i.json) <= CAST($2 AS BIGINT) THEN i.json END
			FROM harmony_conversation_items i JOIN harmony_conversations c ON c.key = i.conversation
			WHERE i.conversation = $1 AND i.item = $3 AND c.expires >= {now}`,
			[]any{sqlKey(tenant, id), limit, sqlKey(tenant, item)}, &size, &found.JSON)
		return size, err
	})
	if err != nil {
		return Item{}, s.wrap("get an item of a conversation", orNotFound(err))
	}
	return found, nil
}

// DeleteItem implements [Conversations].
func (s *SQL) DeleteItem(ctx context.Context, tenant, id, item string) error {
	var found int64
	err := s.room.deleting(ctx, func() (err error) {
		found, err = s.exec(ctx, s.write, `DELETE FROM harmony_conversation_items WHERE conversation = $1 AND item = $2
			AND EXISTS (SELECT 1 FROM harmony_conversations WHERE key = $1
				AND expires >= {now})`, sqlKey(tenant, id), sqlKey(tenant, item))
		return err
	})
	if err == nil && found == 0 {
		err = ErrNotFound
	}
	return s.wrap("delete an item of a conversation", err)
}

// Lock implements [Conversations].
func (s *SQL) Lock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	// Unlocking what another has locked meanwhile must not unlock it, and is no error either.
	newOwner := `$2`
	if lease <= 0 {
		newOwner = `CASE WHEN ` + sqlLockOwner + ` THEN CAST('' AS {blob}) ELSE lock_owner END`
	}
	return s.wrap("lock a conversation", s.setLock(ctx, sqlKey(tenant, id), lockOwner, newOwner, sqlUnlocked, lease))
}

// RenewLock implements [Conversations].
func (s *SQL) RenewLock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	return s.wrap(
		"renew the lock of a conversation",
		s.setLock(ctx, sqlKey(tenant, id), lockOwner, `$2`, sqlLockOwner, lease),
	)
}

// setLock sets the lock owner of a conversation to the SQL expression newOwner
// if the SQL condition is true. $2 is lockOwner in both.
func (s *SQL) setLock(
	ctx context.Context, key []byte, lockOwner, newOwner, condition string, lease time.Duration,
) error {
	found, err := s.exec(ctx, s.write, `UPDATE harmony_conversations
			SET lock_owner = `+newOwner+`, locked_until = {now} + $3, expires = {now} + $4
		WHERE key = $1 AND expires >= {now}
			AND `+condition, key, []byte(lockOwner), lease.Milliseconds(), s.responseTTL.Milliseconds())
	if err == nil && found == 0 {
		err = s.conflictOrNotFound(ctx, s.write, key)
	}
	return err
}
