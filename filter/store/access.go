package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// access is one access to a store behind a breaker. Two goroutines share it: the one that makes
// it, and that of its caller, who waits until the deadline at most.
//
//	state     what may follow                                             who does it
//	running   ended: the caller gets the result                           the access
//	          left: the deadline has passed, the caller is told that the  the caller
//	          access failed, and the resource is held
//	left      ended: what the access has made is undone, then the         the access
//	          resource is released
//	ended     nothing: a caller whose deadline passes now takes the result
//
// What has to be undone when an access ends:
//
//	it returned                    from running                from left
//	nil                            nothing                     it is undone
//	an answer, such as a conflict  nothing                     nothing: it has changed nothing
//	a failure, so that it is open  with write.always it is undone, else nothing
//	whether it took effect
//
// So a write that takes effect late does no harm:
//
//   - what it has made is undone: a lock is released, an approval withdrawn, a new response,
//     conversation or item deleted;
//   - a later write of the same resource waits until that has happened, because the resource
//     is held;
//   - a write that finds the same one stored, its own of an earlier attempt, has succeeded:
//     see breakerStore.again.
//
// If the undoing fails too, a lock and a live response expire with their lease, an approval
// stays begun (its call is never made), and the rest expires by its age.
type access struct {
	store *breakerStore
	write write
	began time.Time

	// state is protected by store.mu.
	state accessState
}

// accessState is where an access is.
type accessState uint8

const (
	accessRunning accessState = iota // it is being made, and its caller waits for it
	accessLeft                       // it is being made, and its caller has been told that it failed
	accessEnded                      // its result is there
)

// write says how an access changes a resource. The zero write changes nothing, or does no harm
// when it takes effect late.
type write struct {
	// resource is what is held until a write that has been left is undone or has failed; "": no
	// other access waits for it.
	resource string
	// undo undoes an access that has taken effect; nil: late effects are harmless.
	undo func(ctx context.Context) error
	// always says that undo is also called after an error that leaves open whether
	// the access has taken effect. It must not undo another's.
	always bool
}

// resource returns the name of what a write changes.
func resource(kind string, tenant, id any) string {
	return fmt.Sprintf("%s %q %s", kind, tenant, id)
}

// leave takes the access from running to left. It returns false if the access has ended: its
// result is there in a moment.
func (a *access) leave() bool {
	a.store.mu.Lock()
	ended := a.state == accessEnded
	if !ended {
		a.state = accessLeft
		a.store.hold(a.write.resource)
	}
	a.store.mu.Unlock()

	if !ended {
		a.judge(context.DeadlineExceeded)
	}
	return !ended
}

// end takes the access to ended: it has returned err. undo says that it is to be undone now,
// and held that its resource is to be released then.
func (a *access) end(err error) (undo, held bool) {
	a.store.mu.Lock()
	left := a.state == accessLeft
	a.state = accessEnded
	undo = a.mustUndo(left, err)
	if undo && !left {
		a.store.hold(a.write.resource)
	}
	a.store.mu.Unlock()

	// An access is judged once, when its caller leaves or at its end. Only an answer that comes
	// late counts too: the store is slow then, and does not hang.
	if !left || Answered(err) {
		a.judge(err)
	}
	return undo, left || undo
}

// mustUndo reports whether an access that has returned err is to be undone. left says that its
// caller has been told that it failed.
func (a *access) mustUndo(left bool, err error) bool {
	switch {
	case a.write.undo == nil:
		return false
	case err == nil:
		return left
	}
	return a.write.always && !Answered(err)
}

// judge tells the breaker what the access shows about the store.
func (a *access) judge(err error) {
	now := a.store.o.Now()
	shown := a.store.judge(err, now.Sub(a.began))
	a.store.update(func(b *breaker) { b.ended(shown, now) })
}

// undo undoes the access. Its error changes nothing: the lease or the age ends what is left.
func (a *access) undo() {
	ctx, cancel := context.WithTimeout(a.store.ctx, accessTime)
	defer cancel()
	_ = protect(ctx, a.write.undo)
}

// release lets the next write of the resource go on.
func (a *access) release() {
	a.store.mu.Lock()
	defer a.store.mu.Unlock()
	a.store.releaseHold(a.write.resource)
}

// hold has the next write of a resource wait for accesses that may still take effect, or are
// being undone.
type hold struct {
	accesses int
	// released is closed when accesses is 0.
	released chan struct{}
}

// hold holds a resource for one access. The caller has b.mu.
func (b *breakerStore) hold(resource string) {
	if resource == "" {
		return
	}

	held := b.held[resource]
	if held == nil {
		if b.held == nil {
			b.held = map[string]*hold{}
		}
		held = &hold{released: make(chan struct{})}
		b.held[resource] = held
	}
	held.accesses++
}

// releaseHold releases a resource of one access. The caller has b.mu.
func (b *breakerStore) releaseHold(resource string) {
	held := b.held[resource]
	if held == nil {
		return
	}
	held.accesses--
	if held.accesses == 0 {
		close(held.released)
		delete(b.held, resource)
	}
}

// maxUncertain is the most writes that are remembered because they may have taken effect.
const maxUncertain = 1024

// again makes an access that its caller repeats when the store has failed. If an
// earlier attempt may have taken effect, and the access has a conflict, there shows
// whether the conflict is with the same write; the access has succeeded then.
func (b *breakerStore) again(
	ctx context.Context, name string, w write,
	do func(context.Context) error, there func(context.Context) bool,
) error {
	err := b.access(ctx, w, func(ctx context.Context) error {
		err := do(ctx)
		if errors.Is(err, ErrConflict) && b.isUncertain(name) && there(ctx) {
			return nil
		}
		return err
	})
	b.noteUncertain(name, err)
	return err
}

func (b *breakerStore) isUncertain(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.uncertain[name]
}

// noteUncertain notes whether a write that returned err may have taken effect.
func (b *breakerStore) noteUncertain(name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if Answered(err) {
		delete(b.uncertain, name)
		return
	}

	if b.uncertain == nil {
		b.uncertain = map[string]bool{}
	}
	// Any other write makes room: if it is repeated, a conflict with itself is then its error.
	for other := range b.uncertain {
		if len(b.uncertain) < maxUncertain {
			break
		}
		delete(b.uncertain, other)
	}
	b.uncertain[name] = true
}
