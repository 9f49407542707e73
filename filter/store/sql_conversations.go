package store

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"
)

const (
	// sqlFree is the condition that nobody but $2 holds a conversation.
	sqlFree = `(length(holder) = 0 OR holder = $2 OR held < {now})`
	// sqlHolds is the condition that $2 was the last to hold it.
	sqlHolds = `holder = $2`
)

// PutConversation implements [Conversations].
func (s *SQL) PutConversation(ctx context.Context, tenant string, c *Conversation) error {
	if len(c.Metadata) > maxSQLValue {
		return ErrTooLarge
	}
	key := sqlKey(tenant, c.ID)
	return s.wrap("put a conversation", s.transact(ctx, func(tx *sql.Tx) error {
		// What has aged is not there, even if it has not been deleted yet.
		if _, err := s.exec(ctx, tx, `DELETE FROM harmony_conversations WHERE key = $1 AND expires < {now}`, key); err != nil {
			return err
		}
		added, err := s.exec(ctx, tx, `INSERT INTO harmony_conversations (key, tenant, id, created, metadata, holder, held, items, expires)
			VALUES ($1, $2, $3, $4, $5, $6, 0, 0, {now} + $7) ON CONFLICT DO NOTHING`,
			key, []byte(tenant), []byte(c.ID), c.Created, notNull(c.Metadata), []byte{}, s.responseTTL.Milliseconds())
		if err == nil && added == 0 {
			err = ErrConflict
		}
		return err
	}))
}

// PutMetadata implements [Conversations].
func (s *SQL) PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error {
	if len(metadata) > maxSQLValue {
		return ErrTooLarge
	}
	found, err := s.exec(ctx, s.write, `UPDATE harmony_conversations SET metadata = $2, expires = {now} + $3 WHERE key = $1 AND expires >= {now}`,
		sqlKey(tenant, id), notNull(metadata), s.responseTTL.Milliseconds())
	if err == nil && found == 0 {
		err = ErrNotFound
	}
	return s.wrap("put metadata of a conversation", err)
}

// notNull is b, which a database does not take for NULL.
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
	found, err := s.exec(ctx, s.write, `DELETE FROM harmony_conversations WHERE key = $1 AND expires >= {now}`, sqlKey(tenant, id))
	if err == nil && found == 0 {
		err = ErrNotFound
	}
	return s.wrap("delete a conversation", err)
}

// AddItems implements [Conversations].
func (s *SQL) AddItems(ctx context.Context, tenant, id, holder string, items []Item) error {
	size := 0
	rows := make([][][]byte, len(items))
	for i, item := range items {
		size += len(item.ID) + len(item.JSON)
		rows[i] = [][]byte{sqlKey(tenant, item.ID), []byte(item.ID), item.JSON}
	}
	if size > maxSQLValue {
		return ErrTooLarge
	}
	key, may := sqlKey(tenant, id), sqlHolds
	if holder == "" {
		may = sqlFree
	}
	return s.wrap("add items", s.transact(ctx, func(tx *sql.Tx) error {
		var after int64
		err := s.row(ctx, tx, `UPDATE harmony_conversations SET holder = $2, items = items + $3, expires = {now} + $4
			WHERE key = $1 AND expires >= {now} AND `+may+` RETURNING items`,
			[]any{key, []byte(holder), len(items), s.responseTTL.Milliseconds()}, &after)
		if errors.Is(err, sql.ErrNoRows) {
			return s.heldOrGone(ctx, tx, key)
		}
		if err != nil || len(items) == 0 {
			return err
		}
		added, err := s.exec(ctx, tx, `INSERT INTO harmony_conversation_items (conversation, position, item, id, json)
			SELECT CAST($2 AS {blob}), CAST($3 AS BIGINT) + n, a, b, c FROM {rows}
			WHERE true ON CONFLICT DO NOTHING`, sqlRows(rows), key, after-int64(len(items)))
		if err == nil && added != int64(len(items)) {
			err = ErrConflict
		}
		return err
	}))
}

// heldOrGone is the error for a conversation that could not be changed.
func (s *SQL) heldOrGone(ctx context.Context, q querier, key []byte) error {
	var there bool
	err := s.row(ctx, q, `SELECT count(*) FROM harmony_conversations WHERE key = $1 AND expires >= {now}`, []any{key}, &there)
	switch {
	case err != nil:
		return err
	case there:
		return ErrConflict
	}
	return ErrNotFound
}

// ConversationItems implements [Conversations].
func (s *SQL) ConversationItems(ctx context.Context, tenant, id string, p Page) ([]Item, error) {
	key, limit := sqlKey(tenant, id), int64(math.MaxInt32)
	if p.Limit > 0 {
		limit = int64(p.Limit)
	}
	var items []Item
	var left int64
	found := false
	// A page without items is a row without an item: the conversation is there.
	err := s.rows(ctx, s.read, pageQuery(p), []any{key, sqlKey(tenant, p.After), limit}, func(scan func(...any) error) error {
		var id, json []byte
		err := scan(&left, &id, &json)
		if found = true; id != nil {
			items = append(items, Item{ID: string(id), JSON: json})
		}
		return err
	})
	switch {
	case err != nil:
	case !found:
		err = ErrNotFound
	case due(left, s.responseTTL):
		_, err = s.exec(ctx, s.write, `UPDATE harmony_conversations SET expires = {now} + $2 WHERE key = $1`, key, s.responseTTL.Milliseconds())
	}
	if err != nil {
		return nil, s.wrap("get items of a conversation", err)
	}
	return items, nil
}

// pageQuery reads a page of the conversation $1 after the item $2, of at most
// $3 items.
func pageQuery(p Page) string {
	order, beyond := "", ">"
	if p.Descending {
		order, beyond = " DESC", "<"
	}
	// Where there is no item to begin after, any item is one that is not the conversation's.
	after, begin := "LEFT JOIN", ""
	if p.After != "" {
		after, begin = "JOIN", " AND i.position "+beyond+" a.position"
	}
	return `SELECT c.expires - {now}, i.id, i.json FROM harmony_conversations c
		` + after + ` harmony_conversation_items a ON a.conversation = c.key AND a.item = $2
		LEFT JOIN harmony_conversation_items i ON i.conversation = c.key` + begin + `
		WHERE c.key = $1 AND c.expires >= {now} ORDER BY i.position` + order + ` LIMIT $3`
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
	found := Item{ID: item}
	err := s.row(ctx, s.read, `SELECT i.json FROM harmony_conversation_items i JOIN harmony_conversations c ON c.key = i.conversation
		WHERE i.conversation = $1 AND i.item = $2 AND c.expires >= {now}`,
		[]any{sqlKey(tenant, id), sqlKey(tenant, item)}, &found.JSON)
	if err != nil {
		return Item{}, s.wrap("get an item of a conversation", orNotFound(err))
	}
	return found, nil
}

// DeleteItem implements [Conversations].
func (s *SQL) DeleteItem(ctx context.Context, tenant, id, item string) error {
	found, err := s.exec(ctx, s.write, `DELETE FROM harmony_conversation_items WHERE conversation = $1 AND item = $2
		AND EXISTS (SELECT 1 FROM harmony_conversations WHERE key = $1 AND expires >= {now})`, sqlKey(tenant, id), sqlKey(tenant, item))
	if err == nil && found == 0 {
		err = ErrNotFound
	}
	return s.wrap("delete an item of a conversation", err)
}

// Hold implements [Conversations].
func (s *SQL) Hold(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	to := `$2`
	if lease <= 0 {
		to = `CASE WHEN ` + sqlHolds + ` THEN CAST('' AS {blob}) ELSE holder END`
	}
	return s.wrap("hold a conversation", s.hold(ctx, sqlKey(tenant, id), holder, to, sqlFree, lease))
}

// RenewHold implements [Conversations].
func (s *SQL) RenewHold(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	return s.wrap("renew the hold of a conversation", s.hold(ctx, sqlKey(tenant, id), holder, `$2`, sqlHolds, lease))
}

// hold makes the expression to the holder of a conversation, where the condition
// holds.
func (s *SQL) hold(ctx context.Context, key []byte, holder, to, condition string, lease time.Duration) error {
	found, err := s.exec(ctx, s.write, `UPDATE harmony_conversations SET holder = `+to+`, held = {now} + $3, expires = {now} + $4
		WHERE key = $1 AND expires >= {now} AND `+condition, key, []byte(holder), lease.Milliseconds(), s.responseTTL.Milliseconds())
	if err == nil && found == 0 {
		err = s.heldOrGone(ctx, s.write, key)
	}
	return err
}
