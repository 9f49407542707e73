package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"
)

// resources says what kind of resource an operation changes whose late effect needs no undoing:
// the next write of the resource waits for it. All others that come to the interceptor only
// read, or may be made twice.
var resources = map[Operation]string{
	OpDelete: "response",

	OpPutMetadata:        "conversation",
	OpDeleteConversation: "conversation",
	OpDeleteItem:         "conversation",
	// A lock is only extended: a later release waits for that.
	OpRenewLock: "conversation",

	OpCompleteApproval: "approval",
	OpWithdrawApproval: "approval",
}

// intercept is an [Interceptor], for all methods but those below.
func (b *breakerStore) intercept(ctx context.Context, c *Call, do func(context.Context) error) error {
	var w write
	if kind, ok := resources[c.Operation]; ok {
		w.resource = resource(kind, c.Arguments[0], c.Arguments[1])
	}
	return b.access(ctx, w, do)
}

// Put deletes a new response that is stored late. A later version needs no undoing: it
// is put again, see again.
func (b *breakerStore) Put(ctx context.Context, tenant string, r *Response) error {
	w := write{resource: resource("response", tenant, r.ID)}
	if r.Version == 1 {
		w.undo = func(ctx context.Context) error { return b.inner.Delete(ctx, tenant, r.ID) }
	}
	return b.again(ctx, resource("put", tenant, r.ID), w,
		func(ctx context.Context) error { return b.inner.Put(ctx, tenant, r) },
		func(ctx context.Context) bool { return hasResponse(ctx, b.inner, tenant, r) })
}

func (b *breakerStore) Append(ctx context.Context, tenant, id, owner string, batch Batch) error {
	journal := resource("journal", tenant, id)
	return b.again(ctx, journal, write{resource: journal},
		func(ctx context.Context) error { return b.inner.Append(ctx, tenant, id, owner, batch) },
		func(ctx context.Context) bool { return hasBatch(ctx, b.inner, tenant, id, batch) })
}

func (b *breakerStore) PutConversation(ctx context.Context, tenant string, c *Conversation) error {
	w := write{
		resource: resource("conversation", tenant, c.ID),
		undo:     func(ctx context.Context) error { return b.inner.DeleteConversation(ctx, tenant, c.ID) },
	}
	return b.access(ctx, w, func(ctx context.Context) error { return b.inner.PutConversation(ctx, tenant, c) })
}

// AddItems deletes items that are added late.
func (b *breakerStore) AddItems(ctx context.Context, tenant, id, lockOwner string, items []Item) error {
	w := write{resource: resource("conversation", tenant, id)}
	w.undo = func(ctx context.Context) error {
		errs := make([]error, 0, len(items))
		for _, item := range items {
			errs = append(errs, b.inner.DeleteItem(ctx, tenant, id, item.ID))
		}
		return errors.Join(errs...)
	}
	return b.access(ctx, w, func(ctx context.Context) error {
		return b.inner.AddItems(ctx, tenant, id, lockOwner, items)
	})
}

// Lock releases a lock that is taken late, or may have been taken when the store failed.
func (b *breakerStore) Lock(ctx context.Context, tenant, id, lockOwner string, lease time.Duration) error {
	w := write{resource: resource("conversation", tenant, id), always: true}
	if lease > 0 {
		w.undo = func(ctx context.Context) error { return b.inner.Lock(ctx, tenant, id, lockOwner, 0) }
	}
	return b.access(ctx, w, func(ctx context.Context) error {
		return b.inner.Lock(ctx, tenant, id, lockOwner, lease)
	})
}

// BeginApproval withdraws an approval that is begun late, or may have been begun when
// the store failed.
func (b *breakerStore) BeginApproval(ctx context.Context, tenant, name, text string) (string, error) {
	w := write{
		resource: resource("approval", tenant, name),
		undo:     func(ctx context.Context) error { return b.inner.WithdrawApproval(ctx, tenant, name, text) },
		always:   true,
	}
	return resultOf(func(first *string) error {
		return b.access(ctx, w, func(ctx context.Context) (err error) {
			*first, err = b.inner.BeginApproval(ctx, tenant, name, text)
			return err
		})
	})
}

// Charge returns what is charged late. What may have been charged when the store failed
// stays charged until the window ends. A charge holds no resource: none waits for another.
func (b *breakerStore) Charge(ctx context.Context, charges []Charge) (Charged, error) {
	return resultOf(func(charged *Charged) error {
		w := write{undo: func(ctx context.Context) error {
			if !charged.OK {
				return nil
			}
			_, err := b.inner.Charge(ctx, returned(charges, charged.Counts))
			return err
		}}
		return b.access(ctx, w, func(ctx context.Context) (err error) {
			*charged, err = b.inner.Charge(ctx, charges)
			return err
		})
	})
}

// returned are the charges that undo others.
func returned(charges []Charge, counts []Count) []Charge {
	back := make([]Charge, len(charges))
	for i, c := range charges {
		// With its number, nothing is returned to a window that has begun since.
		back[i] = Charge{
			Budget: c.Budget, Name: c.Name, Window: c.Window, Amount: -c.Amount, Number: counts[i].Number,
		}
	}
	return back
}

// hasResponse reports whether exactly this response is stored.
func hasResponse(ctx context.Context, s Store, tenant string, r *Response) bool {
	stored, err := s.Get(ctx, tenant, r.ID)
	return err == nil && stored.Version == r.Version && stored.Live == r.Live && stored.Owner == r.Owner &&
		stored.Previous == r.Previous && stored.Conversation == r.Conversation &&
		bytes.Equal(stored.Object, r.Object) &&
		sameItems(stored.Input, r.Input) && sameItems(stored.Output, r.Output)
}

func sameItems(a, b []Item) bool {
	return slices.EqualFunc(a, b, func(a, b Item) bool { return a.ID == b.ID && bytes.Equal(a.JSON, b.JSON) })
}

// hasBatch reports whether exactly this batch of events is stored.
func hasBatch(ctx context.Context, s Store, tenant, id string, b Batch) bool {
	stored, err := s.Events(ctx, tenant, id, b.First-1, 0)
	return err == nil && len(stored) > 0 && stored[0].First == b.First && stored[0].Last == b.Last &&
		stored[0].End == b.End && bytes.Equal(stored[0].SSE, b.SSE)
}
