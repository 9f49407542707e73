package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// CountErrors returns s with every access counted by failed that s does not
// answer, by operation.
func CountErrors(s store.Store, failed func(operation string)) store.Store {
	return countedStore{s, failed}
}

// countedStore is a store whose errors are counted.
type countedStore struct {
	store.Store
	failed func(operation string)
}

// count returns err. The errors of a store that is up, and those of requests that
// were canceled, are not counted.
func (s countedStore) count(ctx context.Context, operation string, err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrTooLarge):
	case errors.Is(ctx.Err(), context.Canceled):
	default:
		s.failed(operation)
	}
	return err
}

func (s countedStore) Put(ctx context.Context, tenant string, r *store.Response) error {
	return s.count(ctx, "put_response", s.Store.Put(ctx, tenant, r))
}

func (s countedStore) Get(ctx context.Context, tenant, id string) (*store.Response, error) {
	r, err := s.Store.Get(ctx, tenant, id)
	return r, s.count(ctx, "get_response", err)
}

func (s countedStore) Chain(ctx context.Context, tenant, id string) ([]*store.Response, error) {
	chain, err := s.Store.Chain(ctx, tenant, id)
	return chain, s.count(ctx, "get_chain", err)
}

func (s countedStore) Head(ctx context.Context, tenant, id string) (store.Head, error) {
	h, err := s.Store.Head(ctx, tenant, id)
	return h, s.count(ctx, "get_head", err)
}

func (s countedStore) Items(ctx context.Context, tenant string, ids []string) (map[string]store.Item, error) {
	items, err := s.Store.Items(ctx, tenant, ids)
	return items, s.count(ctx, "get_items", err)
}

func (s countedStore) Delete(ctx context.Context, tenant, id string) error {
	return s.count(ctx, "delete_response", s.Store.Delete(ctx, tenant, id))
}

func (s countedStore) Renew(ctx context.Context, owner string, live []store.Key, lease time.Duration) ([]store.Key, error) {
	lost, err := s.Store.Renew(ctx, owner, live, lease)
	return lost, s.count(ctx, "renew_leases", err)
}

func (s countedStore) Append(ctx context.Context, tenant, id, owner string, b store.Batch) error {
	return s.count(ctx, "append_events", s.Store.Append(ctx, tenant, id, owner, b))
}

func (s countedStore) Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]store.Batch, error) {
	batches, err := s.Store.Events(ctx, tenant, id, after, wait)
	return batches, s.count(ctx, "get_events", err)
}

func (s countedStore) PutConversation(ctx context.Context, tenant string, c *store.Conversation) error {
	return s.count(ctx, "put_conversation", s.Store.PutConversation(ctx, tenant, c))
}

func (s countedStore) PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error {
	return s.count(ctx, "put_conversation", s.Store.PutMetadata(ctx, tenant, id, metadata))
}

func (s countedStore) Conversation(ctx context.Context, tenant, id string) (*store.Conversation, error) {
	c, err := s.Store.Conversation(ctx, tenant, id)
	return c, s.count(ctx, "get_conversation", err)
}

func (s countedStore) DeleteConversation(ctx context.Context, tenant, id string) error {
	return s.count(ctx, "delete_conversation", s.Store.DeleteConversation(ctx, tenant, id))
}

func (s countedStore) AddItems(ctx context.Context, tenant, id, holder string, items []store.Item) error {
	return s.count(ctx, "add_conversation_items", s.Store.AddItems(ctx, tenant, id, holder, items))
}

func (s countedStore) ConversationItems(ctx context.Context, tenant, id string, p store.Page) ([]store.Item, error) {
	items, err := s.Store.ConversationItems(ctx, tenant, id, p)
	return items, s.count(ctx, "get_conversation_items", err)
}

func (s countedStore) ConversationSize(ctx context.Context, tenant, id string) (store.Size, error) {
	size, err := s.Store.ConversationSize(ctx, tenant, id)
	return size, s.count(ctx, "get_conversation", err)
}

func (s countedStore) ConversationItem(ctx context.Context, tenant, id, item string) (store.Item, error) {
	i, err := s.Store.ConversationItem(ctx, tenant, id, item)
	return i, s.count(ctx, "get_conversation_items", err)
}

func (s countedStore) DeleteItem(ctx context.Context, tenant, id, item string) error {
	return s.count(ctx, "delete_conversation_item", s.Store.DeleteItem(ctx, tenant, id, item))
}

func (s countedStore) Lock(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	return s.count(ctx, "lock_conversation", s.Store.Lock(ctx, tenant, id, holder, lease))
}

func (s countedStore) RenewLock(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	return s.count(ctx, "lock_conversation", s.Store.RenewLock(ctx, tenant, id, holder, lease))
}

func (s countedStore) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	texts, err := s.Store.Texts(ctx, tenant, names)
	return texts, s.count(ctx, "get_texts", err)
}

func (s countedStore) PutTexts(ctx context.Context, tenant string, texts map[string]string) error {
	return s.count(ctx, "put_texts", s.Store.PutTexts(ctx, tenant, texts))
}

func (s countedStore) PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error) {
	first, err := s.Store.PutTextIfAbsent(ctx, tenant, name, text)
	return first, s.count(ctx, "put_texts", err)
}

func (s countedStore) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	first, err := s.Store.BeginApproval(ctx, tenant, name, text)
	return first, s.count(ctx, "approval", err)
}

func (s countedStore) CompleteApproval(ctx context.Context, tenant, name, text string) error {
	return s.count(ctx, "approval", s.Store.CompleteApproval(ctx, tenant, name, text))
}
