package store

import (
	"context"
	"time"
)

// none is the value of an access that returns only an error.
type none = struct{}

// guardedError makes an access that returns only an error.
func guardedError(ctx context.Context, g *guard, patient bool, access func(ctx context.Context) error) error {
	_, err := guarded(ctx, g, patient, func(ctx context.Context) (none, error) { return none{}, access(ctx) })
	return err
}

func (g *guard) Put(ctx context.Context, tenant string, r *Response) error {
	return guardedError(ctx, g, r.Version > 1, func(ctx context.Context) error { return g.store.Put(ctx, tenant, r) })
}

func (g *guard) Get(ctx context.Context, tenant, id string) (*Response, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (*Response, error) { return g.store.Get(ctx, tenant, id) })
}

func (g *guard) Chain(ctx context.Context, tenant, id string) ([]*Response, error) {
	return guarded(ctx, g, false, func(ctx context.Context) ([]*Response, error) { return g.store.Chain(ctx, tenant, id) })
}

func (g *guard) Head(ctx context.Context, tenant, id string) (Head, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (Head, error) { return g.store.Head(ctx, tenant, id) })
}

func (g *guard) Items(ctx context.Context, tenant string, ids []string) (map[string]Item, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (map[string]Item, error) { return g.store.Items(ctx, tenant, ids) })
}

func (g *guard) Delete(ctx context.Context, tenant, id string) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.Delete(ctx, tenant, id) })
}

func (g *guard) Renew(ctx context.Context, owner string, live []Key, lease time.Duration) (lost []Key, err error) {
	return guarded(ctx, g, true, func(ctx context.Context) ([]Key, error) { return g.store.Renew(ctx, owner, live, lease) })
}

func (g *guard) Append(ctx context.Context, tenant, id, owner string, b Batch) error {
	return guardedError(ctx, g, true, func(ctx context.Context) error { return g.store.Append(ctx, tenant, id, owner, b) })
}

func (g *guard) Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]Batch, error) {
	return guarded(ctx, g, wait > 0, func(ctx context.Context) ([]Batch, error) { return g.store.Events(ctx, tenant, id, after, wait) })
}

func (g *guard) PutConversation(ctx context.Context, tenant string, c *Conversation) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.PutConversation(ctx, tenant, c) })
}

func (g *guard) PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.PutMetadata(ctx, tenant, id, metadata) })
}

func (g *guard) Conversation(ctx context.Context, tenant, id string) (*Conversation, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (*Conversation, error) { return g.store.Conversation(ctx, tenant, id) })
}

func (g *guard) DeleteConversation(ctx context.Context, tenant, id string) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.DeleteConversation(ctx, tenant, id) })
}

func (g *guard) AddItems(ctx context.Context, tenant, id, lockOwner string, items []Item) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.AddItems(ctx, tenant, id, lockOwner, items) })
}

func (g *guard) ConversationItems(ctx context.Context, tenant, id string, p Page) ([]Item, error) {
	return guarded(ctx, g, false, func(ctx context.Context) ([]Item, error) { return g.store.ConversationItems(ctx, tenant, id, p) })
}

func (g *guard) ConversationSize(ctx context.Context, tenant, id string) (Size, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (Size, error) { return g.store.ConversationSize(ctx, tenant, id) })
}

func (g *guard) ConversationItem(ctx context.Context, tenant, id, item string) (Item, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (Item, error) { return g.store.ConversationItem(ctx, tenant, id, item) })
}

func (g *guard) DeleteItem(ctx context.Context, tenant, id, item string) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.DeleteItem(ctx, tenant, id, item) })
}

func (g *guard) Lock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.Lock(ctx, tenant, id, lockOwner, lease) })
}

func (g *guard) RenewLock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.RenewLock(ctx, tenant, id, lockOwner, lease) })
}

func (g *guard) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (map[string]string, error) { return g.store.Texts(ctx, tenant, names) })
}

func (g *guard) PutTexts(ctx context.Context, tenant string, texts map[string]string) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.PutTexts(ctx, tenant, texts) })
}

func (g *guard) PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (string, error) { return g.store.PutTextIfAbsent(ctx, tenant, name, text) })
}

func (g *guard) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (string, error) { return g.store.BeginApproval(ctx, tenant, name, text) })
}

func (g *guard) CompleteApproval(ctx context.Context, tenant, name, text string) error {
	return guardedError(ctx, g, false, func(ctx context.Context) error { return g.store.CompleteApproval(ctx, tenant, name, text) })
}
