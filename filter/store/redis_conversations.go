package store

import (
	"context"
	_ "embed" // scripts
	"strconv"
	"time"
)

var (
	//go:embed redis/conversation.lua
	luaConversation string
	//go:embed redis/conversation_put.lua
	luaConversationPut string
	//go:embed redis/conversation_metadata.lua
	luaConversationMetadata string
	//go:embed redis/conversation_get.lua
	luaConversationGet string
	//go:embed redis/conversation_delete.lua
	luaConversationDelete string
	//go:embed redis/conversation_lock.lua
	luaConversationLock string
	//go:embed redis/conversation_add.lua
	luaConversationAdd string
	//go:embed redis/conversation_items.lua
	luaConversationItems string
	//go:embed redis/conversation_size.lua
	luaConversationSize string
	//go:embed redis/conversation_item.lua
	luaConversationItem string
	//go:embed redis/conversation_remove.lua
	luaConversationRemove string

	conversationPutScript = newRedisNoRetryScript(
		"put conversation", luaTenant, luaConversation, luaConversationPut,
	)
	conversationMetadataScript = newRedisScript("put metadata", luaTenant, luaConversation, luaConversationMetadata)
	conversationGetScript      = newRedisScript("get conversation", luaTenant, luaConversation, luaConversationGet)
	conversationDeleteScript   = newRedisNoRetryScript(
		"delete conversation", luaTenant, luaConversation, luaConversationDelete,
	)
	conversationLockScript  = newRedisScript("lock conversation", luaTenant, luaConversation, luaConversationLock)
	conversationAddScript   = newRedisNoRetryScript("add items", luaTenant, luaConversation, luaConversationAdd)
	conversationItemsScript = newRedisScript("list items", luaTenant, luaRead, luaConversation, luaConversationItems)
	conversationSizeScript  = newRedisScript(
		"get conversation's size", luaTenant, luaConversation, luaConversationSize,
	)
	conversationItemScript   = newRedisScript("get item", luaTenant, luaRead, luaConversation, luaConversationItem)
	conversationRemoveScript = newRedisNoRetryScript("delete item", luaTenant, luaConversation, luaConversationRemove)
)

// PutConversation implements [Conversations].
func (s *Redis) PutConversation(ctx context.Context, tenant string, c *Conversation) error {
	if len(c.Metadata) > maxRedisValue {
		return ErrTooLarge
	}
	_, err := s.run(ctx, conversationPutScript, tenant, s.responseTTL, c.ID, c.Created, c.Metadata)
	return err
}

// PutMetadata implements [Conversations].
func (s *Redis) PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error {
	if len(metadata) > maxRedisValue {
		return ErrTooLarge
	}
	_, err := s.run(ctx, conversationMetadataScript, tenant, s.responseTTL, id, metadata)
	return err
}

// Conversation implements [Conversations].
func (s *Redis) Conversation(ctx context.Context, tenant, id string) (*Conversation, error) {
	list, err := s.run(ctx, conversationGetScript, tenant, s.responseTTL, id)
	if err != nil {
		return nil, err
	}
	reply := redisReply{parts: list}
	created, err := strconv.ParseInt(reply.string(), 10, 64)
	if err != nil {
		return nil, errRedisReply
	}
	return &Conversation{ID: id, Created: created, Metadata: reply.bytes()}, reply.err
}

// DeleteConversation implements [Conversations].
func (s *Redis) DeleteConversation(ctx context.Context, tenant, id string) error {
	_, err := s.run(ctx, conversationDeleteScript, tenant, s.responseTTL, id)
	return err
}

// AddItems implements [Conversations].
func (s *Redis) AddItems(ctx context.Context, tenant, id, lockOwner string, items []Item) error {
	args := make([]any, 0, 2+2*len(items))
	args = append(args, id, lockOwner)

	size := 0
	for _, item := range items {
		args = append(args, item.ID, item.JSON)
		size += len(item.JSON)
	}
	if size > maxRedisValue {
		return ErrTooLarge
	}
	_, err := s.run(ctx, conversationAddScript, tenant, s.responseTTL, args...)
	return err
}

// ConversationItems implements [Conversations].
func (s *Redis) ConversationItems(ctx context.Context, tenant, id string, p Page) ([]Item, error) {
	list, _, err := s.read(ctx, conversationItemsScript, tenant, s.responseTTL, id, p.After, p.Limit, p.Descending)
	if err != nil {
		return nil, err
	}
	reply := redisReply{parts: list}
	items := make([]Item, len(list)/2)
	for i := range items {
		items[i] = Item{ID: reply.string(), JSON: reply.bytes()}
	}
	return items, reply.err
}

// ConversationSize implements [Conversations].
func (s *Redis) ConversationSize(ctx context.Context, tenant, id string) (Size, error) {
	list, err := s.run(ctx, conversationSizeScript, tenant, s.responseTTL, id)
	if err != nil {
		return Size{}, err
	}
	reply := redisReply{parts: list}
	size := Size{Items: int(reply.int()), Bytes: reply.int()}
	return size, reply.err
}

// ConversationItem implements [Conversations].
func (s *Redis) ConversationItem(ctx context.Context, tenant, id, item string) (Item, error) {
	list, _, err := s.read(ctx, conversationItemScript, tenant, s.responseTTL, id, item)
	if err != nil {
		return Item{}, err
	}
	reply := redisReply{parts: list}
	return Item{ID: item, JSON: reply.bytes()}, reply.err
}

// DeleteItem implements [Conversations].
func (s *Redis) DeleteItem(ctx context.Context, tenant, id, item string) error {
	_, err := s.run(ctx, conversationRemoveScript, tenant, s.responseTTL, id, item)
	return err
}

// Lock implements [Conversations].
func (s *Redis) Lock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	_, err := s.run(ctx, conversationLockScript, tenant, s.responseTTL, id, lockOwner, lease.Milliseconds(), false)
	return err
}

// RenewLock implements [Conversations].
func (s *Redis) RenewLock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	_, err := s.run(ctx, conversationLockScript, tenant, s.responseTTL, id, lockOwner, lease.Milliseconds(), true)
	return err
}
