package store

import (
	"context"
	_ "embed" // scripts
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed redis/tenant.lua
	luaTenant string
	//go:embed redis/read.lua
	luaRead string
	//go:embed redis/chain.lua
	luaChain string
	//go:embed redis/put.lua
	luaPut string
	//go:embed redis/get.lua
	luaGet string
	//go:embed redis/head.lua
	luaHead string
	//go:embed redis/items.lua
	luaItems string
	//go:embed redis/delete.lua
	luaDelete string
	//go:embed redis/lease.lua
	luaLease string

	putScript    = newRedisNoRetryScript("put response", luaTenant, luaChain, luaPut)
	getScript    = newRedisScript("get responses", luaTenant, luaRead, luaChain, luaGet)
	headScript   = newRedisScript("get head", luaTenant, luaChain, luaHead)
	itemsScript  = newRedisScript("get items", luaTenant, luaRead, luaChain, luaItems)
	deleteScript = newRedisNoRetryScript("delete response", luaTenant, luaChain, luaDelete)
	leaseScript  = newRedisScript("renew leases", luaTenant, luaChain, luaLease)
)

// Put implements [Responses].
func (s *Redis) Put(ctx context.Context, tenant string, r *Response) error {
	size := bodySize(r)
	if size > maxRedisValue {
		return ErrTooLarge
	}

	// The ids are arguments of their own: the script indexes them, and cannot read the body.
	body := appendBody(make([]byte, 0, size), r)
	args := make([]any, 0, 8+len(r.Input)+len(r.Output))
	args = append(args, r.ID, r.Version, r.Previous, r.Conversation, r.Live, r.Owner, r.Lease.Milliseconds(), body)
	for _, items := range [][]Item{r.Input, r.Output} {
		for _, item := range items {
			args = append(args, item.ID)
		}
	}
	_, err := s.run(ctx, putScript, tenant, s.responseTTL, args...)
	return err
}

// Get implements [Responses].
func (s *Redis) Get(ctx context.Context, tenant, id string) (*Response, error) {
	responses, err := s.responses(ctx, tenant, id, false)
	if err != nil {
		return nil, err
	}
	return responses[0], nil
}

// Chain implements [Responses].
func (s *Redis) Chain(ctx context.Context, tenant, id string) ([]*Response, error) {
	return s.responses(ctx, tenant, id, true)
}

// responses returns a response, preceded by all responses that it continues if
// all is set. The result is not empty unless there is an error.
func (s *Redis) responses(ctx context.Context, tenant, id string, all bool) ([]*Response, error) {
	list, _, err := s.read(ctx, getScript, tenant, s.responseTTL, id, all)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, ErrNotFound
	}

	reply := redisReply{parts: list}
	responses := make([]*Response, len(list))
	for i := range responses {
		if responses[i], err = decodeRedisResponse(ctx, reply.list()); err != nil {
			return nil, err
		}
	}

	return responses, reply.err
}

func decodeRedisResponse(ctx context.Context, reply redisReply) (*Response, error) {
	r := &Response{ID: reply.string(), Version: reply.int(), Previous: reply.string(), Conversation: reply.string()}
	r.Live, r.Owner, r.Lapsed = reply.int() == 1, reply.string(), reply.int() == 1
	body := reply.bytes()
	if reply.err != nil {
		return nil, reply.err
	}
	return r, decodeBody(ctx, body, r)
}

// Head implements [Responses].
func (s *Redis) Head(ctx context.Context, tenant, id string) (Head, error) {
	list, err := s.run(ctx, headScript, tenant, s.responseTTL, id)
	if err != nil {
		return Head{}, err
	}
	reply := redisReply{parts: list}
	// Lua's numbers have 53 bits: the epoch is a string.
	head := Head{Version: reply.int()}
	if head.Epoch, err = strconv.ParseInt(reply.string(), 10, 64); err != nil {
		return Head{}, errRedisReply
	}
	head.Live = reply.int() == 1
	return head, reply.err
}

// Items implements [Responses].
func (s *Redis) Items(ctx context.Context, tenant string, ids []string) (map[string]Item, error) {
	if len(ids) == 0 {
		return map[string]Item{}, nil
	}

	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}

	list, size, err := s.read(ctx, itemsScript, tenant, s.responseTTL, args...)
	if err != nil {
		return nil, err
	}

	// Each element is a response, and which of its items are wanted of it.
	found := make(map[string]Item, len(ids))
	reply := redisReply{parts: list}
	for range list {
		group := reply.list()
		var r Response
		if err := decodeBody(ctx, group.bytes(), &r); err != nil {
			return nil, err
		}
		wanted := make(map[string]bool, len(group.parts))
		for len(group.parts) > 0 {
			wanted[group.string()] = true
		}
		if group.err != nil {
			return nil, group.err
		}
		r.take(wanted, found)
	}

	// The bodies go with this call.
	_ = TakeRoom(ctx, foundBytes(found)-size)
	return found, reply.err
}

// Delete implements [Responses].
func (s *Redis) Delete(ctx context.Context, tenant, id string) error {
	_, err := s.run(ctx, deleteScript, tenant, s.responseTTL, id)
	return err
}

// Renew implements [Responses]. It is one round trip with one script per
// tenant.
func (s *Redis) Renew(ctx context.Context, owner string, live []Key, lease time.Duration) ([]Key, error) {
	// A script has keys of one tenant only, whose hash tag puts them on one server of a cluster.
	ids := map[string][]any{}
	for _, key := range live {
		if ids[key.Tenant] == nil {
			ids[key.Tenant] = []any{s.responseTTL.Milliseconds(), owner, lease.Milliseconds()}
		}
		ids[key.Tenant] = append(ids[key.Tenant], key.ID)
	}

	replies := make(map[string]*redis.Cmd, len(ids))
	_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for tenant, args := range ids {
			// Not EVALSHA: a missing script would be noticed only after the
			// round trip.
			replies[tenant] = pipe.Eval(ctx, leaseScript.source, []string{s.base(tenant)}, args...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("redis: %s: %w", leaseScript.name, err)
	}

	var lost []Key
	for tenant, cmd := range replies {
		list, err := leaseScript.list(cmd.Val())
		if err != nil {
			return nil, err
		}
		reply := redisReply{parts: list}
		for range list {
			lost = append(lost, Key{tenant, reply.string()})
		}
		if reply.err != nil {
			return nil, reply.err
		}
	}

	return lost, nil
}
