package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
)

// An access may take effect after its caller has been told that it failed. So that
// this does no harm,
//
//   - what such a write has made is undone: a lock is released, an approval withdrawn,
//     a new response, conversation or item deleted;
//   - a later write of the same resource waits until that has happened;
//   - a write that finds the same one stored, its own of an earlier attempt, has
//     succeeded.
//
// If the undoing fails too, a lock and a live response expire with their lease, an
// approval stays begun (its call is never made), and the rest has its age.

// write says how an access changes a resource.
type write[T any] struct {
	key string // the resource; "": the access may take effect late
	// undo undoes an access that returned value after its caller had left; nil:
	// late effects are harmless.
	undo func(ctx context.Context, value T) error
	// always says that undo is also called after an error that leaves open whether
	// the access has taken effect. It must not undo another's.
	always bool
}

// undone reports whether the end of an access with this result must be followed by
// undo, even if its caller has not left.
func (w *write[T]) undone(r result[T]) bool {
	return w.undo != nil && w.always && judge(r.err, 0) != verdictAnswered
}

// lateWrites are the writes of a resource that may still take effect, though their
// callers have been told that they failed.
type lateWrites struct {
	count int
	done  chan struct{} // closed when count is 0
}

// lateWrite is an access that its caller may leave.
type lateWrite struct {
	guard       *guard
	key         string
	left, ended bool // guarded by guard.mu
}

// leave notes that the caller leaves. It returns false if the access has ended: its
// result is there in a moment.
func (l *lateWrite) leave() bool {
	l.guard.mu.Lock()
	defer l.guard.mu.Unlock()
	if l.ended {
		return false
	}
	l.left = true
	l.hold()
	return true
}

// end notes that the access has ended. uncertain says that it may still have to be
// undone.
func (l *lateWrite) end(uncertain bool) {
	l.guard.mu.Lock()
	defer l.guard.mu.Unlock()
	l.ended = true
	if uncertain && !l.left {
		l.hold()
	}
}

// hold has writes of the resource wait for this one.
func (l *lateWrite) hold() {
	if l.key == "" {
		return
	}
	all := l.guard.late[l.key]
	if all == nil {
		if l.guard.late == nil {
			l.guard.late = map[string]*lateWrites{}
		}
		all = &lateWrites{done: make(chan struct{})}
		l.guard.late[l.key] = all
	}
	all.count++
}

// release ends the waiting for this write.
func (l *lateWrite) release() {
	l.guard.mu.Lock()
	defer l.guard.mu.Unlock()
	all := l.guard.late[l.key]
	if all == nil {
		return
	}
	all.count--
	if all.count == 0 {
		close(all.done)
		delete(l.guard.late, l.key)
	}
}

// settle undoes an access that has ended, if its caller has been told that it failed.
func settle[T any](l *lateWrite, w write[T], r *result[T]) {
	l.guard.mu.Lock()
	left := l.left
	l.guard.mu.Unlock()
	undone := w.undone(*r)
	if !left && !undone || l.key == "" {
		return
	}
	defer l.release()
	if w.undo == nil || !undone && r.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.guard.ctx, accessTime)
	defer cancel()
	defer func() { _ = recover() }() // as in the access itself; the lease or the age ends what is left
	_ = w.undo(ctx, r.value)
}

// waitLate waits until the writes of a resource that were given up have ended.
func (g *guard) waitLate(ctx context.Context, key string) error {
	for key != "" {
		g.mu.Lock()
		late := g.late[key]
		g.mu.Unlock()
		if late == nil {
			break
		}
		select {
		case <-late.done:
		case <-ctx.Done():
			return fmt.Errorf("an earlier write has not ended: %w", ctx.Err())
		}
	}
	return nil
}

// resource returns the key of a resource.
func resource(kind, tenant, id string) string {
	return fmt.Sprintf("%s %q %s", kind, tenant, id)
}

// maxUncertain is the most writes of which the guard remembers that they may have taken
// effect.
const maxUncertain = 1024

// again makes an access that its caller repeats when the store has failed. If an
// earlier attempt may have taken effect, and the access has a conflict, there shows
// whether the conflict is with the same write; the access has succeeded then.
func (g *guard) again(ctx context.Context, key string, patient bool, w write[none], access func(ctx context.Context) error, there func(ctx context.Context) bool) error {
	return g.uncertainAfter(key, guardedWriteError(ctx, g, patient, w, func(ctx context.Context) error {
		err := access(ctx)
		if errors.Is(err, ErrConflict) && g.isUncertain(key) && there(ctx) {
			return nil
		}
		return err
	}))
}

func (g *guard) isUncertain(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.uncertain[key]
}

// uncertainAfter notes whether a write that returned err may have taken effect, and
// returns err.
func (g *guard) uncertainAfter(key string, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if judge(err, 0) == verdictAnswered {
		delete(g.uncertain, key)
		return err
	}
	if g.uncertain == nil {
		g.uncertain = map[string]bool{}
	}
	for other := range g.uncertain { // any; its conflict is then one
		if len(g.uncertain) < maxUncertain {
			break
		}
		delete(g.uncertain, other)
	}
	g.uncertain[key] = true
	return err
}

// hasResponse reports whether exactly this response is stored.
func (g *guard) hasResponse(ctx context.Context, tenant string, r *Response) bool {
	stored, err := g.store.Get(ctx, tenant, r.ID)
	return err == nil && stored.Version == r.Version && stored.Live == r.Live && stored.Owner == r.Owner &&
		stored.Previous == r.Previous && stored.Conversation == r.Conversation && bytes.Equal(stored.Object, r.Object) &&
		sameItems(stored.Input, r.Input) && sameItems(stored.Output, r.Output)
}

func sameItems(a, b []Item) bool {
	return slices.EqualFunc(a, b, func(a, b Item) bool { return a.ID == b.ID && bytes.Equal(a.JSON, b.JSON) })
}

// hasBatch reports whether exactly this batch of events is stored.
func (g *guard) hasBatch(ctx context.Context, tenant, id string, b Batch) bool {
	stored, err := g.store.Events(ctx, tenant, id, b.First-1, 0)
	return err == nil && len(stored) > 0 && stored[0].First == b.First && stored[0].Last == b.Last &&
		stored[0].End == b.End && bytes.Equal(stored[0].SSE, b.SSE)
}
