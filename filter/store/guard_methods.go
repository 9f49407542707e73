package store

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// none is the value of an access that returns only an error.
type none = struct{}

// guardedError makes an access that returns only an error.
func guardedError(ctx context.Context, g *guard, patient bool, access func(ctx context.Context) error) error {
	return guardedWriteError(ctx, g, patient, write[none]{}, access)
}

// guardedWriteError makes an access that returns only an error and changes a resource.
func guardedWriteError(ctx context.Context, g *guard, patient bool, w write[none], access func(ctx context.Context) error) error {
	_, err := guardedWrite(ctx, g, patient, w, func(ctx context.Context) (none, error) { return none{}, access(ctx) })
	return err
}

// Put deletes a new response that is stored late. A later version needs no undoing: it
// is put again, see again.
func (g *guard) Put(ctx context.Context, tenant string, r *Response) error {
	key := resource("response", tenant, r.ID)
	w := write[none]{key: key}
	if r.Version == 1 {
		w.undo = func(ctx context.Context, _ none) error { return g.store.Delete(ctx, tenant, r.ID) }
	}
	return g.again(ctx, resource("put", tenant, r.ID), r.Version > 1, w,
		func(ctx context.Context) error { return g.store.Put(ctx, tenant, r) },
		func(ctx context.Context) bool { return g.hasResponse(ctx, tenant, r) })
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
	return guardedWriteError(ctx, g, false, write[none]{key: resource("response", tenant, id)}, func(ctx context.Context) error { return g.store.Delete(ctx, tenant, id) })
}

func (g *guard) Renew(ctx context.Context, owner string, live []Key, lease time.Duration) (lost []Key, err error) {
	return guarded(ctx, g, true, func(ctx context.Context) ([]Key, error) { return g.store.Renew(ctx, owner, live, lease) })
}

func (g *guard) Append(ctx context.Context, tenant, id, owner string, b Batch) error {
	key := resource("journal", tenant, id)
	return g.again(ctx, key, true, write[none]{key: key},
		func(ctx context.Context) error { return g.store.Append(ctx, tenant, id, owner, b) },
		func(ctx context.Context) bool { return g.hasBatch(ctx, tenant, id, b) })
}

func (g *guard) Events(ctx context.Context, tenant, id string, after int, wait time.Duration) ([]Batch, error) {
	return guarded(ctx, g, wait > 0, func(ctx context.Context) ([]Batch, error) { return g.store.Events(ctx, tenant, id, after, wait) })
}

func (g *guard) PutConversation(ctx context.Context, tenant string, c *Conversation) error {
	undo := func(ctx context.Context, _ none) error { return g.store.DeleteConversation(ctx, tenant, c.ID) }
	return guardedWriteError(ctx, g, false, write[none]{key: resource("conversation", tenant, c.ID), undo: undo},
		func(ctx context.Context) error { return g.store.PutConversation(ctx, tenant, c) })
}

func (g *guard) PutMetadata(ctx context.Context, tenant, id string, metadata []byte) error {
	return guardedWriteError(ctx, g, false, write[none]{key: resource("conversation", tenant, id)},
		func(ctx context.Context) error { return g.store.PutMetadata(ctx, tenant, id, metadata) })
}

func (g *guard) Conversation(ctx context.Context, tenant, id string) (*Conversation, error) {
	return guarded(ctx, g, false, func(ctx context.Context) (*Conversation, error) { return g.store.Conversation(ctx, tenant, id) })
}

func (g *guard) DeleteConversation(ctx context.Context, tenant, id string) error {
	return guardedWriteError(ctx, g, false, write[none]{key: resource("conversation", tenant, id)},
		func(ctx context.Context) error { return g.store.DeleteConversation(ctx, tenant, id) })
}

// AddItems deletes items that are added late.
func (g *guard) AddItems(ctx context.Context, tenant, id, lockOwner string, items []Item) error {
	undo := func(ctx context.Context, _ none) error {
		errs := make([]error, 0, len(items))
		for _, item := range items {
			errs = append(errs, g.store.DeleteItem(ctx, tenant, id, item.ID))
		}
		return errors.Join(errs...)
	}
	return guardedWriteError(ctx, g, false, write[none]{key: resource("conversation", tenant, id), undo: undo},
		func(ctx context.Context) error { return g.store.AddItems(ctx, tenant, id, lockOwner, items) })
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
	return guardedWriteError(ctx, g, false, write[none]{key: resource("conversation", tenant, id)},
		func(ctx context.Context) error { return g.store.DeleteItem(ctx, tenant, id, item) })
}

// Lock releases a lock that is taken late, or may have been taken when the store failed.
func (g *guard) Lock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	w := write[none]{key: resource("conversation", tenant, id), always: true}
	if lease > 0 {
		w.undo = func(ctx context.Context, _ none) error { return g.store.Lock(ctx, tenant, id, lockOwner, 0) }
	}
	return guardedWriteError(ctx, g, false, w, func(ctx context.Context) error { return g.store.Lock(ctx, tenant, id, lockOwner, lease) })
}

// RenewLock only extends a lock: a later release waits for it.
func (g *guard) RenewLock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	return guardedWriteError(ctx, g, false, write[none]{key: resource("conversation", tenant, id)},
		func(ctx context.Context) error { return g.store.RenewLock(ctx, tenant, id, lockOwner, lease) })
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

// BeginApproval withdraws an approval that is begun late, or may have been begun when
// the store failed.
func (g *guard) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	undo := func(ctx context.Context, _ string) error { return g.store.WithdrawApproval(ctx, tenant, name, text) }
	return guardedWrite(ctx, g, false, write[string]{key: resource("approval", tenant, name), undo: undo, always: true},
		func(ctx context.Context) (string, error) { return g.store.BeginApproval(ctx, tenant, name, text) })
}

func (g *guard) CompleteApproval(ctx context.Context, tenant, name, text string) error {
	return guardedWriteError(ctx, g, false, write[none]{key: resource("approval", tenant, name)},
		func(ctx context.Context) error { return g.store.CompleteApproval(ctx, tenant, name, text) })
}

func (g *guard) WithdrawApproval(ctx context.Context, tenant, name, text string) error {
	return guardedWriteError(ctx, g, false, write[none]{key: resource("approval", tenant, name)},
		func(ctx context.Context) error { return g.store.WithdrawApproval(ctx, tenant, name, text) })
}

// Charge returns what is charged late. What may have been charged when the store failed
// stays charged until the window ends. Each charge is a resource of its own: none waits
// for another.
func (g *guard) Charge(ctx context.Context, charges []Charge) (Charged, error) {
	undo := func(ctx context.Context, charged Charged) error {
		if !charged.OK {
			return nil
		}
		_, err := g.store.Charge(ctx, returned(charges, charged.Counts))
		return err
	}
	key := resource("charge", strconv.FormatUint(g.charges.Add(1), 10), "")
	return guardedWrite(ctx, g, false, write[Charged]{key: key, undo: undo}, func(ctx context.Context) (Charged, error) { return g.store.Charge(ctx, charges) })
}

// returned are the charges that undo others.
func returned(charges []Charge, counts []Count) []Charge {
	back := make([]Charge, len(charges))
	for i, c := range charges {
		back[i] = Charge{Budget: c.Budget, Name: c.Name, Window: c.Window, Amount: -c.Amount, Number: counts[i].Number}
	}
	return back
}
