package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Put implements [Responses].
func (s *SQL) Put(ctx context.Context, tenant string, r *Response) (err error) {
	if r.Version < 1 {
		return ErrConflict
	}
	if bodySize(r) > maxSQLValue || s.room.neverFits(bodySize(r)) {
		return ErrTooLarge
	}
	defer s.room.grown(ctx)

	leave := s.queue.enter(bodySize(r))
	defer func() { leave(err) }()

	w := sqlWrite{
		SQL: s, tenant: tenant, r: r,
		key: sqlKey(tenant, r.ID), body: appendBody(make([]byte, 0, bodySize(r)), r),
	}

	// One statement is one round trip to PostgreSQL, in place of several. It cannot tell an expired
	// response from one that exists.
	if s.singles {
		if err := w.single(ctx); !errors.Is(err, errExists) {
			return s.wrap("put a response", err)
		}
	}

	return s.wrap("put a response", s.transact(ctx, func(tx *sql.Tx) error {
		put := w.overwrite
		if r.Version == 1 {
			put = w.add
		}
		written, err := put(ctx, tx)
		if err != nil {
			return err
		}
		if err := w.lease(ctx, tx); err != nil {
			return err
		}
		return w.index(ctx, tx, written)
	}))
}

// sqlWrite is the state of one call of Put. It locks the row of a chain before
// the rows of the chain's responses, to avoid deadlocks.
type sqlWrite struct {
	*SQL
	tenant string
	r      *Response
	key    []byte
	body   []byte
}

// add inserts a new response, and a new chain unless it continues a stored
// response.
func (w *sqlWrite) add(ctx context.Context, tx *sql.Tx) (written int64, err error) {
	r, previous := w.r, sqlKey(w.tenant, w.r.Previous)

	// The chain of the previous response, if that is stored; else a new one.
	var chain int64
	err = w.row(ctx, tx, `UPDATE harmony_chains SET expires = {now} + $2
		WHERE id = (SELECT chain FROM harmony_responses WHERE key = $1) AND expires >= {now} RETURNING id`,
		[]any{previous, w.responseTTL.Milliseconds()}, &chain)
	if errors.Is(err, sql.ErrNoRows) {
		err = w.row(ctx, tx, `INSERT INTO harmony_chains (epoch, expires) VALUES ($1, {now} + $2) RETURNING id`,
			[]any{newEpoch(), w.responseTTL.Milliseconds()}, &chain)
	}
	if err != nil {
		return 0, err
	}

	insert := func() error {
		return w.row(ctx, tx, `INSERT INTO harmony_responses
			(key, chain, depth, previous_key, tenant, id, previous, conversation, version, live, owner, written, body)
			VALUES ($1, $2, coalesce((SELECT depth + 1 FROM harmony_responses WHERE key = $3 AND chain = $2), 1),
				$3, $4, $5, $6, $7, 1, $8, $9, {written}, $10)
			ON CONFLICT DO NOTHING RETURNING written`,
			[]any{
				w.key, chain, previous, []byte(w.tenant), []byte(r.ID), []byte(r.Previous),
				[]byte(r.Conversation), flag(r.Live), []byte(r.Owner), w.body,
			},
			&written)
	}

	// The id is rarely taken: it is inserted first, and looked at only if that does nothing.
	if err = insert(); !errors.Is(err, sql.ErrNoRows) {
		return written, err
	}

	// The id may belong to an expired response that has not been purged yet.
	expired, err := w.exec(ctx, tx, `DELETE FROM harmony_chains
		WHERE id = (SELECT chain FROM harmony_responses WHERE key = $1) AND expires < {now}`, w.key)
	if err != nil {
		return 0, err
	}
	if expired == 0 {
		return 0, ErrConflict
	}

	return written, insert()
}

// overwrite replaces the previous version of a response.
func (w *sqlWrite) overwrite(ctx context.Context, tx *sql.Tx) (written int64, err error) {
	// The chain first, as everywhere: it is what writers of its responses wait for.
	before := w.r.Version - 1
	found, err := w.exec(ctx, tx, `UPDATE harmony_chains SET epoch = epoch + 1, expires = {now} + $3
		WHERE id = (SELECT chain FROM harmony_responses WHERE key = $1 AND version = $2) AND expires >= {now}`,
		w.key, before, w.responseTTL.Milliseconds())
	if err != nil {
		return 0, err
	}
	if found == 0 {
		return 0, ErrConflict
	}

	err = w.row(ctx, tx, `UPDATE harmony_responses
		SET version = version + 1, conversation = $3, live = $4, owner = $5, written = {written}, body = $6
		WHERE key = $1 AND version = $2 RETURNING written`,
		[]any{w.key, before, []byte(w.r.Conversation), flag(w.r.Live), []byte(w.r.Owner), w.body}, &written)
	// Another writer was between the two statements.
	if errors.Is(err, sql.ErrNoRows) {
		return 0, ErrConflict
	}
	return written, err
}

// lease writes or deletes the lease of the response.
func (w *sqlWrite) lease(ctx context.Context, tx *sql.Tx) (err error) {
	switch {
	case w.r.Live:
		_, err = w.exec(ctx, tx, `INSERT INTO harmony_leases (response, until) VALUES ($1, {now} + $2)
			ON CONFLICT (response) DO UPDATE SET until = excluded.until`, w.key, w.r.Lease.Milliseconds())
	case w.r.Version > 1:
		_, err = w.exec(ctx, tx, `DELETE FROM harmony_leases WHERE response = $1`, w.key)
	}
	return err
}

// index writes the ids of the response's items.
func (w *sqlWrite) index(ctx context.Context, tx *sql.Tx, written int64) error {
	// The version before may have had other items.
	if w.r.Version > 1 {
		if _, err := w.exec(ctx, tx, `DELETE FROM harmony_items WHERE response = $1`, w.key); err != nil {
			return err
		}
	}

	ids := w.r.itemsByID()
	if len(ids) == 0 {
		return nil
	}

	items := make([][]byte, 0, len(ids))
	for id := range ids {
		items = append(items, sqlKey(w.tenant, id))
	}

	_, err := w.exec(ctx, tx, `INSERT INTO harmony_items (item, response, written)
		SELECT key, CAST($2 AS {blob}), CAST($3 AS BIGINT) FROM {keys}`, sqlKeys(items), w.key, written)
	return err
}

// flag returns the stored value of a boolean.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Of the queries that read what may be large, $2 is the limit of sized: where there is more, they
// return the size and no contents. The sizes come from rows in which nothing else is, so that
// SQLite does not read the contents to know them. length costs no reading in either database.

// sqlResponse lists the columns that scanResponse reads, except size and body.
const sqlResponse = `r.id, r.previous, r.conversation, r.version, r.live, r.owner,
	coalesce((SELECT until FROM harmony_leases WHERE response = r.key), 0) < {now}`

// scanResponse reads a response, and further columns of the row into more. It returns the size of
// what is read. Above limit there is no body.
func scanResponse(
	ctx context.Context, limit int, scan func(...any) error, more ...any,
) (r *Response, size int, err error) {
	r = &Response{}
	var body []byte
	var lapsed bool
	if err := scan(append([]any{
		&r.ID, &r.Previous, &r.Conversation, &r.Version, &r.Live, &r.Owner, &lapsed, &size, &body,
	}, more...)...); err != nil {
		return nil, 0, err
	}

	r.Lapsed = r.Live && lapsed
	if size > limit {
		return nil, size, nil
	}
	return r, size, decodeBody(ctx, body, r)
}

// Get implements [Responses].
func (s *SQL) Get(ctx context.Context, tenant, id string) (r *Response, err error) {
	_, err = sized(ctx, func(limit int) (size int, err error) {
		scan := func(into ...any) error {
			return s.row(ctx, s.read, `SELECT `+sqlResponse+`, length(r.body),
					CASE WHEN length(r.body) <= CAST($2 AS BIGINT) THEN r.body END
				FROM harmony_responses r JOIN harmony_chains c ON c.id = r.chain
				WHERE r.key = $1 AND c.expires >= {now}`, []any{sqlKey(tenant, id), limit}, into...)
		}
		r, size, err = scanResponse(ctx, limit, scan)
		return size, err
	})
	if err != nil {
		return nil, s.wrap("get a response", orNotFound(err))
	}
	return r, nil
}

// chainQuery reads the chain of the response with key $1, the first response
// first.
const chainQuery = `WITH RECURSIVE r (
		key, chain, depth, previous_key, id, previous, conversation, version, live, owner, size, remaining
	) AS (
		SELECT p.key, p.chain, p.depth, p.previous_key, p.id, p.previous, p.conversation,
			p.version, p.live, p.owner, length(p.body), c.expires - {now}
		FROM harmony_responses p JOIN harmony_chains c ON c.id = p.chain
		WHERE p.key = $1 AND c.expires >= {now}
	UNION ALL
		SELECT p.key, p.chain, p.depth, p.previous_key, p.id, p.previous, p.conversation,
			p.version, p.live, p.owner, length(p.body), r.remaining
		FROM r {previous} p ON p.key = r.previous_key AND p.chain = r.chain AND p.depth = r.depth - 1
	), total AS (SELECT sum(size) AS bytes FROM r)
	SELECT ` + sqlResponse + `, total.bytes, CASE WHEN total.bytes <= CAST($2 AS BIGINT)
			THEN (SELECT body FROM harmony_responses WHERE key = r.key LIMIT 1) END,
		r.chain, r.remaining FROM r CROSS JOIN total ORDER BY r.depth`

// Chain implements [Responses].
func (s *SQL) Chain(ctx context.Context, tenant, id string) ([]*Response, error) {
	var found []*Response
	var chain, left int64
	_, err := sized(ctx, func(limit int) (size int, err error) {
		found = nil
		args := []any{sqlKey(tenant, id), limit}
		err = s.rows(ctx, s.read, chainQuery, args, func(scan func(...any) error) (err error) {
			var r *Response
			r, size, err = scanResponse(ctx, limit, scan, &chain, &left)
			found = append(found, r)
			return err
		})
		return size, err
	})
	// A chain that does not begin with a first response has lost one: it cannot be continued.
	if err == nil && (len(found) == 0 || found[0].Previous != "") {
		err = ErrNotFound
	}
	if err == nil {
		err = s.renewChain(ctx, chain, left)
	}
	if err != nil {
		return nil, s.wrap("get a chain", err)
	}

	return found, nil
}

// renewChain restarts the TTL of a chain, which has this many milliseconds
// left, if it is due.
func (s *SQL) renewChain(ctx context.Context, chain, left int64) error {
	if !due(left, s.responseTTL) {
		return nil
	}
	_, err := s.exec(
		ctx, s.write, `UPDATE harmony_chains SET expires = {now} + $2 WHERE id = $1`, chain,
		s.responseTTL.Milliseconds(),
	)
	return err
}

// Head implements [Responses].
func (s *SQL) Head(ctx context.Context, tenant, id string) (Head, error) {
	var h Head
	var chain, left int64
	err := s.row(ctx, s.read, `SELECT r.version, c.epoch, r.live = 1 AND coalesce((SELECT until
			FROM harmony_leases WHERE response = r.key), 0) >= {now},
		c.id, c.expires - {now} FROM harmony_responses r
		JOIN harmony_chains c ON c.id = r.chain WHERE r.key = $1 AND c.expires >= {now}`,
		[]any{sqlKey(tenant, id)}, &h.Version, &h.Epoch, &h.Live, &chain, &left)
	if err == nil {
		err = s.renewChain(ctx, chain, left)
	}
	if err != nil {
		return Head{}, s.wrap("get the head of a chain", orNotFound(err))
	}

	return h, nil
}

// Items implements [Responses].
func (s *SQL) Items(ctx context.Context, tenant string, ids []string) (map[string]Item, error) {
	found := make(map[string]Item, len(ids))
	if len(ids) == 0 {
		return found, nil
	}

	wanted := make(map[string]bool, len(ids))
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		wanted[id] = true
		keys[i] = sqlKey(tenant, id)
	}

	size, err := sized(ctx, func(limit int) (size int, err error) {
		err = s.rows(ctx, s.read, itemsQuery, []any{sqlKeys(keys), limit}, func(scan func(...any) error) error {
			var body []byte
			if err := scan(&size, &body); err != nil || size > limit {
				return err
			}
			var r Response
			if err := decodeBody(ctx, body, &r); err != nil {
				return err
			}
			r.take(wanted, found)
			return nil
		})
		return size, err
	})
	if err != nil {
		return nil, s.wrap("get items", err)
	}

	// The bodies go with this call.
	_ = TakeRoom(ctx, foundBytes(found)-size)
	return found, nil
}

// itemsQuery reads the bodies of the responses that have the items, in the order of writing: of an
// item in several responses the last one stays.
const itemsQuery = `WITH page AS (
		SELECT written, length(body) AS size FROM harmony_responses WHERE written IN (
			SELECT max(i.written) FROM harmony_items i
			JOIN harmony_responses r ON r.key = i.response JOIN harmony_chains c ON c.id = r.chain
			WHERE i.item IN (SELECT key FROM {keys}) AND c.expires >= {now} GROUP BY i.item
		)
	), total AS (SELECT sum(size) AS bytes FROM page)
	SELECT total.bytes, CASE WHEN total.bytes <= CAST($2 AS BIGINT)
			THEN (SELECT body FROM harmony_responses r WHERE r.written = page.written LIMIT 1) END
		FROM page CROSS JOIN total ORDER BY page.written`

// Delete implements [Responses].
func (s *SQL) Delete(ctx context.Context, tenant, id string) error {
	key := sqlKey(tenant, id)
	if s.singles {
		found, err := s.exec(ctx, s.write, singleDelete, key)
		if err == nil && found == 0 {
			err = ErrNotFound
		}
		return s.wrap("delete a response", err)
	}

	return s.wrap("delete a response", s.room.deleting(ctx, func() error {
		return s.transact(ctx, func(tx *sql.Tx) error {
			// Replicas that have the chain in memory find another epoch, and read it again.
			found, err := s.exec(ctx, tx, `UPDATE harmony_chains SET epoch = epoch + 1
				WHERE id = (SELECT chain FROM harmony_responses WHERE key = $1) AND expires >= {now}`, key)
			if err == nil && found > 0 {
				found, err = s.exec(ctx, tx, `DELETE FROM harmony_responses WHERE key = $1`, key)
			}
			if err == nil && found == 0 {
				err = ErrNotFound
			}
			return err
		})
	}))
}

// renewQuery renews the leases of $3 among the keys and returns the remaining
// milliseconds of their chains.
const renewQuery = `UPDATE harmony_leases SET until = {now} + $2 WHERE response IN (
		SELECT r.key FROM harmony_responses r JOIN harmony_chains c ON c.id = r.chain
		WHERE r.key IN (SELECT key FROM {keys}) AND r.live = 1 AND r.owner = $3 AND c.expires >= {now}
	) RETURNING response,
		(SELECT r.chain FROM harmony_responses r WHERE r.key = response),
		(SELECT c.expires - {now} FROM harmony_responses r JOIN harmony_chains c ON c.id = r.chain
			WHERE r.key = response)`

// Renew implements [Responses].
func (s *SQL) Renew(ctx context.Context, owner string, live []Key, lease time.Duration) (lost []Key, err error) {
	if len(live) == 0 {
		return nil, nil
	}

	keys := make([][]byte, len(live))
	for i, k := range live {
		keys[i] = sqlKey(k.Tenant, k.ID)
	}

	renewed, aging := make(map[string]bool, len(live)), map[int64]int64{}
	args := []any{sqlKeys(keys), lease.Milliseconds(), []byte(owner)}
	err = s.rows(ctx, s.write, renewQuery, args, func(scan func(...any) error) error {
		var key []byte
		var chain, left int64
		err := scan(&key, &chain, &left)
		renewed[string(key)] = true
		if due(left, s.responseTTL) {
			aging[chain] = left
		}
		return err
	})

	// A lease is renewed each half second, the TTL of its chain only when it is due.
	for chain, left := range aging {
		if err == nil {
			err = s.renewChain(ctx, chain, left)
		}
	}
	if err != nil {
		return nil, s.wrap("renew leases", err)
	}

	for i, k := range live {
		if !renewed[string(keys[i])] {
			lost = append(lost, k)
		}
	}

	return lost, nil
}
