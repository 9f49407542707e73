package store

import (
	"context"
	_ "embed" // scripts
	"strconv"
	"time"
)

var (
	//go:embed redis/append.lua
	luaAppend string
	//go:embed redis/events.lua
	luaEvents string

	appendScript = newRedisNoRetryScript("append events", luaTenant, luaChain, luaAppend)
	eventsScript = newRedisScript("get events", luaTenant, luaRead, luaChain, luaEvents)
)

// Append implements [Journal]. The script notifies the followers on all
// replicas.
func (s *Redis) Append(ctx context.Context, tenant, id, owner string, b Batch) error {
	_, err := s.run(ctx, appendScript, tenant, s.responseTTL, id, owner, b.First, b.Last, b.End, b.SSE)
	return err
}

// Events implements [Journal]. If a notification is lost, followers get the
// events with their next call.
func (s *Redis) Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]Batch, error) {
	after = max(after, -1)
	if wait <= 0 {
		return s.events(ctx, tenant, id, after)
	}
	// The subscription outlives this call for a while, see subscriptionLinger.
	channel := s.base(tenant) + "events:" + id
	defer s.subscriptions.use(channel)()
	return s.journals.follow(ctx, channel, wait, func() ([]Batch, error) {
		return s.events(ctx, tenant, id, after)
	})
}

func (s *Redis) events(ctx context.Context, tenant, id string, after int) ([]Batch, error) {
	list, _, err := s.read(ctx, eventsScript, tenant, s.responseTTL, id, after, eventsBytes)
	if err != nil {
		return nil, err
	}

	reply := redisReply{parts: list}
	batches := make([]Batch, len(list))
	for i := range batches {
		entry := reply.list()
		first, err := strconv.Atoi(entry.string())
		if err != nil {
			return nil, errRedisReply
		}
		batches[i] = Batch{
			First: first, Last: int(entry.int()), End: entry.string() == "1", SSE: entry.bytes(),
		}
		if entry.err != nil {
			return nil, entry.err
		}
	}

	return batches, reply.err
}
