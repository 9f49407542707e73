package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"
)

// Texts implements [Texts].
func (s *SQL) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	texts := make(map[string]string, len(names))
	if len(names) == 0 {
		return texts, nil
	}

	keys, nameOf := make([][]byte, len(names)), make(map[string]string, len(names))
	for i, name := range names {
		keys[i] = sqlKey(tenant, name)
		nameOf[string(keys[i])] = name
	}

	_, err := sized(ctx, func(limit int) (size int, err error) {
		err = s.rows(ctx, s.read, textsQuery, []any{sqlKeys(keys), limit}, func(scan func(...any) error) error {
			var key []byte
			var text sql.NullString
			if err := scan(&key, &size, &text); err != nil || size > limit {
				return err
			}
			texts[nameOf[string(key)]] = text.String
			return nil
		})
		return size, err
	})
	if err != nil {
		return nil, s.wrap("get texts", err)
	}
	return texts, nil
}

const textsQuery = `WITH page AS (
		SELECT key, length(text) AS size FROM harmony_texts WHERE key IN (SELECT key FROM {keys}) AND expires >= {now}
	), total AS (SELECT sum(size) AS bytes FROM page)
	SELECT page.key, total.bytes, CASE WHEN total.bytes <= CAST($2 AS BIGINT)
			THEN (SELECT text FROM harmony_texts t WHERE t.key = page.key LIMIT 1) END
		FROM page CROSS JOIN total`

// PutTexts implements [Texts]. Rows are locked in the order of their keys, to
// avoid deadlocks.
func (s *SQL) PutTexts(ctx context.Context, tenant string, texts map[string]string) error {
	if len(texts) == 0 {
		return nil
	}
	return s.wrap("put texts", s.putTexts(ctx, tenant, s.textTTL, texts))
}

func (s *SQL) putTexts(ctx context.Context, tenant string, ttl time.Duration, texts map[string]string) (err error) {
	byKey, size := make(map[string]string, len(texts)), 0
	for name, text := range texts {
		byKey[string(sqlKey(tenant, name))] = text
		size += len(text)
	}

	if size > maxSQLValue {
		return ErrTooLarge
	}
	defer s.room.grown(ctx)

	leave := s.queue.enter(size)
	defer func() { leave(err) }()

	// Two writers of the same texts lock them in the same order.
	rows := make([][][]byte, 0, len(texts))
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		rows = append(rows, [][]byte{[]byte(key), []byte(byKey[key]), []byte(tenant)})
	}

	// WHERE true tells SQLite's parser that ON CONFLICT is not a join's ON.
	_, err = s.exec(ctx, s.write, `INSERT INTO harmony_texts (key, text, expires{, tenant})
		SELECT a, b, {now} + CAST($2 AS BIGINT){, c} FROM {rows} WHERE true ORDER BY n
		ON CONFLICT (key) DO UPDATE
			SET text = excluded.text, expires = excluded.expires`, sqlRows(rows), ttl.Milliseconds())

	return err
}

// PutTextIfAbsent implements [Texts].
func (s *SQL) PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error) {
	return s.putIfAbsent(ctx, tenant, s.textTTL, name, text)
}

func (s *SQL) putIfAbsent(
	ctx context.Context, tenant string, ttl time.Duration, name, text string,
) (_ string, err error) {
	// As one statement it is one round trip, also where the text is there already.
	key := sqlKey(tenant, name)
	var kept []byte
	if s.singles {
		due := (ttl - min(ttl/ageParts, leastAge)).Milliseconds()
		err := s.row(ctx, s.write, singleText, []any{key, []byte(text), ttl.Milliseconds(), due}, &kept)
		if err != nil {
			return "", s.wrap("get a text", err)
		}
		return string(kept), nil
	}

	// SQLite has one writer: most texts are there already, and a read does not wait for it.
	var left int64
	err = s.row(
		ctx, s.read, `SELECT text, expires - {now} FROM harmony_texts WHERE key = $1 AND expires >= {now}`,
		[]any{key}, &kept, &left,
	)
	if errors.Is(err, sql.ErrNoRows) || err == nil && due(left, ttl) {
		defer s.room.grown(ctx)
		leave := s.queue.enter(len(text))
		defer func() { leave(err) }()
		err = s.row(ctx, s.write, `INSERT INTO harmony_texts (key, text, expires, tenant)
				VALUES ($1, $2, {now} + $3, $4)
			ON CONFLICT (key) DO UPDATE SET expires = excluded.expires,
				text = CASE WHEN harmony_texts.expires >= {now} THEN harmony_texts.text ELSE excluded.text END
			RETURNING text`, []any{key, []byte(text), ttl.Milliseconds(), []byte(tenant)}, &kept)
	}
	if err != nil {
		return "", s.wrap("get a text", err)
	}

	return string(kept), nil
}

// sqlApproval is the prefix that distinguishes the names of approvals
// from those of texts.
const sqlApproval = "\x00approval:"

// BeginApproval implements [Approvals].
func (s *SQL) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	return s.putIfAbsent(ctx, tenant, s.responseTTL, sqlApproval+name, text)
}

// CompleteApproval implements [Approvals].
func (s *SQL) CompleteApproval(ctx context.Context, tenant, name, text string) error {
	return s.wrap(
		"complete an approval",
		s.putTexts(ctx, tenant, s.responseTTL, map[string]string{sqlApproval + name: text}),
	)
}

// WithdrawApproval implements [Approvals].
func (s *SQL) WithdrawApproval(ctx context.Context, tenant, name, text string) error {
	return s.wrap("withdraw an approval", s.room.deleting(ctx, func() error {
		_, err := s.exec(
			ctx, s.write, `DELETE FROM harmony_texts WHERE key = $1 AND text = $2`,
			sqlKey(tenant, sqlApproval+name), []byte(text),
		)
		return err
	}))
}
