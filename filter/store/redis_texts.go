package store

import (
	"context"
	_ "embed" // scripts
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed redis/texts.lua
	luaTexts string

	//go:embed redis/text_if_absent.lua
	luaTextIfAbsent string

	//go:embed redis/text_withdraw.lua
	luaTextWithdraw string

	textsScript        = newRedisScript("get texts", luaTenant, luaRead, luaTexts)
	textIfAbsentScript = newRedisScript("put text if absent", luaTenant, luaTextIfAbsent)
	textWithdrawScript = newRedisScript("withdraw an approval", luaTenant, luaTextWithdraw)
)

func (s *Redis) textKey(tenant, name string) string { return s.base(tenant) + "text:" + name }

// Texts implements [Texts].
func (s *Redis) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	texts := make(map[string]string, len(names))
	if len(names) == 0 {
		return texts, nil
	}

	args := make([]any, len(names))
	for i, name := range names {
		args[i] = name
	}
	values, _, err := s.read(ctx, textsScript, tenant, s.textTTL, args...)
	if err != nil {
		return nil, err
	}

	for i, value := range values[:min(len(values), len(names))] {
		// nil stands for a text that is not there.
		if text, ok := value.(string); ok {
			texts[names[i]] = text
		}
	}

	return texts, nil
}

// PutTexts implements [Texts].
func (s *Redis) PutTexts(ctx context.Context, tenant string, texts map[string]string) error {
	// Not MSET, which takes no TTL.
	_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for name, text := range texts {
			pipe.Set(ctx, s.textKey(tenant, name), text, s.textTTL)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("redis: put texts: %w", err)
	}
	return nil
}

// PutTextIfAbsent implements [Texts].
func (s *Redis) PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error) {
	return s.putIfAbsent(ctx, tenant, s.textTTL, "text:"+name, text)
}

func (s *Redis) putIfAbsent(ctx context.Context, tenant string, ttl time.Duration, key, text string) (string, error) {
	list, err := s.run(ctx, textIfAbsentScript, tenant, ttl, key, text)
	if err != nil {
		return "", err
	}
	reply := redisReply{parts: list}
	return reply.string(), reply.err
}

const redisApproval = "approval:"

// BeginApproval implements [Approvals].
func (s *Redis) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	return s.putIfAbsent(ctx, tenant, s.responseTTL, redisApproval+name, text)
}

// CompleteApproval implements [Approvals].
func (s *Redis) CompleteApproval(ctx context.Context, tenant, name, text string) error {
	// Whatever is there: only the first caller, who has begun the approval, completes it.
	if err := s.client.Set(ctx, s.base(tenant)+redisApproval+name, text, s.responseTTL).Err(); err != nil {
		return fmt.Errorf("redis: complete an approval: %w", err)
	}
	return nil
}

// WithdrawApproval implements [Approvals].
func (s *Redis) WithdrawApproval(ctx context.Context, tenant, name, text string) error {
	// A script, because nothing may come between comparing and deleting.
	_, err := s.run(ctx, textWithdrawScript, tenant, s.responseTTL, redisApproval+name, text)
	return err
}
