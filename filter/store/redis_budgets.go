package store

import (
	"context"
	_ "embed" // scripts
	"time"
)

//go:embed redis/charge.lua
var luaCharge string

var chargeScript = newRedisNoRetryScript("charge budgets", luaTenant, luaCharge)

// Charge implements [Budgets]. All counts are on one node of a cluster, that of the
// tenant "".
func (s *Redis) Charge(ctx context.Context, charges []Charge) (Charged, error) {
	args := make([]any, 0, 5*len(charges))
	for _, c := range charges {
		args = append(args, c.Name, c.Window.Milliseconds(), c.Amount, c.Limit, c.Number)
	}

	// Under the tenant "", whatever the subjects: one script can only change keys of one hash tag,
	// and all charges are made or none.
	list, err := s.run(ctx, chargeScript, "", 0, args...)
	if err != nil {
		return Charged{}, err
	}

	reply := redisReply{parts: list}
	charged := Charged{OK: reply.int() == 1, Counts: make([]Count, len(charges))}
	for i := range charged.Counts {
		charged.Counts[i] = Count{
			Used: reply.int(), Number: reply.int(), Left: time.Duration(reply.int()) * time.Millisecond,
		}
	}

	return charged, reply.err
}
