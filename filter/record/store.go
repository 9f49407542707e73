package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Store returns s with the accesses that are made for recorded exchanges taken down.
// Others pass.
func Store(s store.Store) store.Store { return recordedStore{s} }

// recordedStore is a store whose accesses are taken down. The renewing of leases is
// left out: it is the process's, not an exchange's.
type recordedStore struct{ store.Store }

// storeErrors are the errors of a store that works, by the names that records have for
// them.
var storeErrors = map[string]error{
	"not_found":  store.ErrNotFound,
	"conflict":   store.ErrConflict,
	"too_large":  store.ErrTooLarge,
	"too_costly": work.ErrExceeded,
	"canceled":   context.Canceled,
	"timeout":    context.DeadlineExceeded,
}

// errorName is the name of an error of a store. Other errors may have addresses.
func errorName(err error) string {
	for name, known := range storeErrors {
		if errors.Is(err, known) {
			return name
		}
	}
	return "failed"
}

// errStoreFailed is the error of a store that did not work.
var errStoreFailed = errors.New("the store failed when the exchange was recorded")

// storeError is the error with a name.
func storeError(name string) error {
	if err, ok := storeErrors[name]; ok {
		return err
	}
	return errStoreFailed
}

// Err returns the access's error as the exchange had it; nil if it had none.
func (a *Access) Err() error {
	if a.Error == "" {
		return nil
	}
	return storeError(a.Error)
}

// access makes an access with a result.
func access[T any](ctx context.Context, operation string, key []any, do func() (T, error)) (result T, err error) {
	e := From(ctx)
	if e == nil {
		return do()
	}
	asked, err := json.Marshal(key)
	if err != nil {
		return result, fmt.Errorf("record an access to the store: %w", err)
	}
	done := false
	raw, err := e.Access(operation, asked, func() (json.RawMessage, error) {
		done = true
		var err error
		if result, err = do(); err != nil {
			return nil, err
		}
		raw, err := json.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("record a result of the store: %w", err)
		}
		return raw, nil
	})
	if done || err != nil {
		return result, err
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return result, fmt.Errorf("the recorded result of %s: %w", operation, err)
	}
	return result, nil
}

// accessOnly makes an access without a result.
func accessOnly(ctx context.Context, operation string, key []any, do func() error) error {
	_, err := access(ctx, operation, key, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (s recordedStore) Put(ctx context.Context, tenant string, r *store.Response) error {
	return accessOnly(ctx, "put_response", []any{tenant, r}, func() error { return s.Store.Put(ctx, tenant, r) })
}

func (s recordedStore) Get(ctx context.Context, tenant, id string) (*store.Response, error) {
	return access(ctx, "get_response", []any{tenant, id}, func() (*store.Response, error) { return s.Store.Get(ctx, tenant, id) })
}

func (s recordedStore) Chain(ctx context.Context, tenant, id string) ([]*store.Response, error) {
	return access(ctx, "get_chain", []any{tenant, id}, func() ([]*store.Response, error) { return s.Store.Chain(ctx, tenant, id) })
}

func (s recordedStore) Head(ctx context.Context, tenant, id string) (store.Head, error) {
	return access(ctx, "get_head", []any{tenant, id}, func() (store.Head, error) { return s.Store.Head(ctx, tenant, id) })
}

func (s recordedStore) Items(ctx context.Context, tenant string, ids []string) (map[string]store.Item, error) {
	return access(ctx, "get_items", []any{tenant, ids}, func() (map[string]store.Item, error) { return s.Store.Items(ctx, tenant, ids) })
}

func (s recordedStore) Delete(ctx context.Context, tenant, id string) error {
	return accessOnly(ctx, "delete_response", []any{tenant, id}, func() error { return s.Store.Delete(ctx, tenant, id) })
}

func (s recordedStore) Append(ctx context.Context, tenant, id, owner string, b store.Batch) error {
	return accessOnly(ctx, "append_events", []any{tenant, id, owner, b}, func() error { return s.Store.Append(ctx, tenant, id, owner, b) })
}

func (s recordedStore) Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]store.Batch, error) {
	return access(ctx, "get_events", []any{tenant, id, after, wait}, func() ([]store.Batch, error) { return s.Store.Events(ctx, tenant, id, after, wait) })
}

func (s recordedStore) PutConversation(ctx context.Context, tenant string, c *store.Conversation) error {
	return accessOnly(ctx, "put_conversation", []any{tenant, c}, func() error { return s.Store.PutConversation(ctx, tenant, c) })
}

func (s recordedStore) PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error {
	return accessOnly(ctx, "put_metadata", []any{tenant, id, metadata}, func() error { return s.Store.PutMetadata(ctx, tenant, id, metadata) })
}

func (s recordedStore) Conversation(ctx context.Context, tenant, id string) (*store.Conversation, error) {
	return access(ctx, "get_conversation", []any{tenant, id}, func() (*store.Conversation, error) { return s.Store.Conversation(ctx, tenant, id) })
}

func (s recordedStore) DeleteConversation(ctx context.Context, tenant, id string) error {
	return accessOnly(ctx, "delete_conversation", []any{tenant, id}, func() error { return s.Store.DeleteConversation(ctx, tenant, id) })
}

func (s recordedStore) AddItems(ctx context.Context, tenant, id, holder string, items []store.Item) error {
	return accessOnly(ctx, "add_conversation_items", []any{tenant, id, holder, items}, func() error { return s.Store.AddItems(ctx, tenant, id, holder, items) })
}

func (s recordedStore) ConversationItems(ctx context.Context, tenant, id string, p store.Page) ([]store.Item, error) {
	return access(ctx, "get_conversation_items", []any{tenant, id, p}, func() ([]store.Item, error) { return s.Store.ConversationItems(ctx, tenant, id, p) })
}

func (s recordedStore) ConversationSize(ctx context.Context, tenant, id string) (store.Size, error) {
	return access(ctx, "get_conversation_size", []any{tenant, id}, func() (store.Size, error) { return s.Store.ConversationSize(ctx, tenant, id) })
}

func (s recordedStore) ConversationItem(ctx context.Context, tenant, id, item string) (store.Item, error) {
	return access(ctx, "get_conversation_item", []any{tenant, id, item}, func() (store.Item, error) { return s.Store.ConversationItem(ctx, tenant, id, item) })
}

func (s recordedStore) DeleteItem(ctx context.Context, tenant, id, item string) error {
	return accessOnly(ctx, "delete_conversation_item", []any{tenant, id, item}, func() error { return s.Store.DeleteItem(ctx, tenant, id, item) })
}

func (s recordedStore) Lock(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	return accessOnly(ctx, "lock_conversation", []any{tenant, id, holder, lease}, func() error { return s.Store.Lock(ctx, tenant, id, holder, lease) })
}

func (s recordedStore) RenewLock(ctx context.Context, tenant, id, holder string, lease time.Duration) error {
	return accessOnly(ctx, "renew_lock", []any{tenant, id, holder, lease}, func() error { return s.Store.RenewLock(ctx, tenant, id, holder, lease) })
}

func (s recordedStore) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	return access(ctx, "get_texts", []any{tenant, names}, func() (map[string]string, error) { return s.Store.Texts(ctx, tenant, names) })
}

func (s recordedStore) PutTexts(ctx context.Context, tenant string, texts map[string]string) error {
	return accessOnly(ctx, "put_texts", []any{tenant, texts}, func() error { return s.Store.PutTexts(ctx, tenant, texts) })
}

func (s recordedStore) PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error) {
	return access(ctx, "put_text_if_absent", []any{tenant, name, text}, func() (string, error) { return s.Store.PutTextIfAbsent(ctx, tenant, name, text) })
}

func (s recordedStore) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	return access(ctx, "begin_approval", []any{tenant, name, text}, func() (string, error) { return s.Store.BeginApproval(ctx, tenant, name, text) })
}

func (s recordedStore) CompleteApproval(ctx context.Context, tenant, name, text string) error {
	return accessOnly(ctx, "complete_approval", []any{tenant, name, text}, func() error { return s.Store.CompleteApproval(ctx, tenant, name, text) })
}

func (s recordedStore) WithdrawApproval(ctx context.Context, tenant, name, text string) error {
	return accessOnly(ctx, "withdraw_approval", []any{tenant, name, text}, func() error { return s.Store.WithdrawApproval(ctx, tenant, name, text) })
}
