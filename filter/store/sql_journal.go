package store

import (
	"context"
	"time"
)

// Append implements [Journal]. The response's row is locked, because another
// process may end the response at the same time.
func (s *SQL) Append(ctx context.Context, tenant, id, owner string, b Batch) (err error) {
	if len(b.SSE) > maxSQLValue {
		return ErrTooLarge
	}
	defer s.room.grown(ctx)

	leave := s.queue.enter(len(b.SSE))
	defer func() { leave(err) }()

	key := sqlKey(tenant, id)
	added, err := s.exec(ctx, s.write, `INSERT INTO harmony_events (response, first, last, ends, sse)
		SELECT r.key, CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS INTEGER), CAST($5 AS {blob})
		FROM harmony_responses r JOIN harmony_chains c ON c.id = r.chain
		WHERE r.key = $1 AND c.expires >= {now}
			AND (r.live = 1 AND r.owner = $6 OR r.live = 0 AND CAST($4 AS INTEGER) = 1)
			AND coalesce((SELECT e.last FROM harmony_events e WHERE e.response = $1
				ORDER BY e.first DESC LIMIT 1), -1) < CAST($2 AS BIGINT)
			AND NOT EXISTS (SELECT 1 FROM harmony_events e WHERE e.response = $1 AND e.ends = 1)
		{share}
		ON CONFLICT DO NOTHING`, key, b.First, b.Last, flag(b.End), notNull(b.SSE), []byte(owner))
	// Why nothing was added is asked for only then.
	if err == nil && added == 0 {
		err = ErrConflict
		if _, getErr := s.Head(ctx, tenant, id); getErr != nil {
			err = getErr
		}
	}
	if err != nil {
		return s.wrap("append events", err)
	}
	s.journals.notify(string(key))
	return nil
}

// Events implements [Journal].
func (s *SQL) Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]Batch, error) {
	key := sqlKey(tenant, id)
	batches, err := s.journals.follow(
		ctx, string(key), wait, func() ([]Batch, error) { return s.eventsAfter(ctx, key, after) },
	)
	return batches, s.wrap("get events", err)
}

// eventsQuery reads the batches of the response $1 after event number $3, at
// most $4 bytes and $5 rows, but at least one batch. The inner query reads only
// the sizes, starting with the batch that contains the event.
const eventsQuery = `WITH sizes AS (
		SELECT first, size, sum(size) OVER (ORDER BY first ROWS UNBOUNDED PRECEDING) AS total FROM (
			SELECT first, length(sse) AS size FROM harmony_events
			WHERE response = $1 AND last > $3
				AND first >= coalesce((SELECT max(first) FROM harmony_events WHERE response = $1 AND first <= $3), 0)
			ORDER BY first LIMIT $5
		) each
	), page AS (
		SELECT min(first) AS first, max(first) AS last, max(total) AS bytes FROM sizes
		WHERE total <= $4 OR total = size
	)
	SELECT e.first, e.last, e.ends, page.bytes, CASE WHEN page.bytes <= CAST($2 AS BIGINT) THEN e.sse END
		FROM page JOIN harmony_events e ON e.response = $1 AND e.first >= page.first AND e.first <= page.last
		JOIN harmony_responses r ON r.key = e.response JOIN harmony_chains c ON c.id = r.chain
		WHERE c.expires >= {now} ORDER BY e.first`

// eventsRows is the most batches considered for one page.
const eventsRows = 4096

func (s *SQL) eventsAfter(ctx context.Context, key []byte, after int) (batches []Batch, err error) {
	_, err = sized(ctx, func(limit int) (size int, err error) {
		batches = nil
		args := []any{key, limit, after, eventsBytes, eventsRows}
		err = s.rows(ctx, s.read, eventsQuery, args, func(scan func(...any) error) error {
			var b Batch
			err := scan(&b.First, &b.Last, &b.End, &size, &b.SSE)
			batches = append(batches, b)
			return err
		})
		return size, err
	})
	return batches, err
}

// watch notifies local followers about events appended by other processes until
// ctx ends. It uses one query for all followed responses.
func (s *SQL) watch(ctx context.Context) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	seen := map[string]int64{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			seen = s.poll(ctx, seen)
		}
	}
}

// pollTime bounds one poll. As with other accesses, one that takes less shows a store that is slow,
// and does not hang.
const pollTime = accessTime

// Through has the accesses that the store makes of its own accord, its polls, made by access. So
// they are not made while a breaker is open, and show it whether the store hangs.
func (s *SQL) Through(access Access) { s.through.Store(&access) }

// poll notifies the followers of responses whose last batch is not the one in
// seen. It returns the last batches. After an error it returns seen.
func (s *SQL) poll(ctx context.Context, seen map[string]int64) map[string]int64 {
	followed := s.journals.subscribed()
	if len(followed) == 0 {
		return nil
	}

	keys := make([][]byte, len(followed))
	for i, k := range followed {
		keys[i] = []byte(k)
	}

	ctx, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	now, err := resultOf(func(now *map[string]int64) error {
		return (*s.through.Load())(ctx, func(ctx context.Context) (err error) {
			*now, err = s.lastBatches(ctx, keys)
			return err
		})
	})
	if err != nil {
		return seen
	}

	for k, first := range now {
		if before, ok := seen[k]; !ok || before != first {
			s.journals.notify(k)
		}
	}

	return now
}

// lastBatches returns the first event of the last batch of each response.
func (s *SQL) lastBatches(ctx context.Context, keys [][]byte) (map[string]int64, error) {
	last := make(map[string]int64, len(keys))
	err := s.rows(ctx, s.read, `SELECT response, max(first) FROM harmony_events
		WHERE response IN (SELECT key
			FROM {keys}) GROUP BY response`, []any{sqlKeys(keys)}, func(scan func(...any) error) error {
		var key []byte
		var first int64
		err := scan(&key, &first)
		last[string(key)] = first
		return err
	})
	return last, err
}
