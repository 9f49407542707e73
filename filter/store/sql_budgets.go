package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"
)

// errOverLimit ends a transaction whose charges exceed a limit.
var errOverLimit = errors.New("over the limit")

// Charge implements [Budgets]. Rows are locked in the order of their keys, to avoid
// deadlocks.
func (s *SQL) Charge(ctx context.Context, charges []Charge) (Charged, error) {
	order := make([]int, len(charges))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(charges[a].Name, charges[b].Name) })

	// All charges are made, also after one that is over its limit: the caller gets every count.
	charged := Charged{OK: true, Counts: make([]Count, len(charges))}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		for _, i := range order {
			c, err := s.charge(ctx, tx, &charges[i])
			if err != nil {
				return err
			}
			charged.Counts[i] = c
			charged.OK = charged.OK && (charges[i].Limit == 0 || c.Used <= charges[i].Limit)
		}
		if !charged.OK {
			return errOverLimit
		}
		return nil
	})

	// What was read before the rollback has the amounts, which the counts do not have now. A charge
	// of another window has added nothing.
	if errors.Is(err, errOverLimit) {
		for i := range charges {
			if charges[i].Number == 0 || charges[i].Number == charged.Counts[i].Number {
				charged.Counts[i].Used -= charges[i].Amount
			}
		}
		return charged, nil
	}
	if err != nil {
		return Charged{}, s.wrap("charge budgets", err)
	}

	return charged, nil
}

// charge makes one charge without regard to its limit. A clock that is set back does
// not begin an earlier window, nor does a statement that has waited for another's lock.
func (s *SQL) charge(ctx context.Context, tx *sql.Tx, c *Charge) (Count, error) {
	var count Count
	var left int64
	err := s.row(ctx, tx, `INSERT INTO harmony_budgets (key, name, number, used, expires)
		SELECT $1, $2, n, CASE WHEN CAST($5 AS BIGINT) IN (0, n) THEN CAST($4 AS BIGINT)
			ELSE 0 END, (n + 1) * CAST($3 AS BIGINT)
		FROM (SELECT {now} / CAST($3 AS BIGINT) AS n) w WHERE true
		ON CONFLICT (key) DO UPDATE SET
			used = CASE WHEN harmony_budgets.number < excluded.number THEN excluded.used
				WHEN CAST($5 AS BIGINT) IN (0, harmony_budgets.number)
					THEN harmony_budgets.used + CAST($4 AS BIGINT) ELSE harmony_budgets.used END,
			expires = CASE WHEN harmony_budgets.number < excluded.number THEN excluded.expires
				ELSE harmony_budgets.expires END,
			number = CASE WHEN harmony_budgets.number < excluded.number THEN excluded.number
				ELSE harmony_budgets.number END
		RETURNING used, number, expires - {now}`,
		[]any{
			sqlKey("", c.Name), []byte(c.Name), c.Window.Milliseconds(), c.Amount, c.Number,
		}, &count.Used, &count.Number, &left)
	count.Left = time.Duration(left) * time.Millisecond
	return count, err
}
