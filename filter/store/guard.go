package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// accessTime is how long an access goes on at least, even if its caller
	// waits for a shorter time.
	accessTime = 5 * time.Second
	// probeName is the name of the text that a probe writes, for the tenant "".
	probeName = "probe:"
)

// ErrHangs is the error of accesses that are not made because the store hangs.
var ErrHangs = errors.New("the store has not answered several accesses in a row: none is made until it answers again")

// GuardOptions are the options of [Guard].
type GuardOptions struct {
	Now func() time.Time // nil: time.Now
	// Changed is called when the store begins to hang and when it stops. It must
	// not access the store. It may be nil.
	Changed func(hangs bool)
}

// Guard returns s with a circuit breaker, so that a store that hangs does not
// delay its callers: after five accesses in a row that were not answered in
// time, accesses return [ErrHangs] at once. Meanwhile the guard writes a small
// text once a second; accesses are made again when that does not hang.
//
// Accesses for replies that no client waits for are not rejected: they wait,
// until their context ends, for the store to answer again. These are
// [Journal.Append], [Journal.Events] that waits, [Responses.Renew], and
// [Responses.Put] of a version after the first.
//
// A call returns at the deadline of its context, even if s does not. The access
// itself goes on for five seconds in all, so that a slow store is not mistaken for
// one that hangs. Callers must not change the arguments of such an access. If such an
// access takes effect after its caller has been told that it failed, the guard undoes
// it; see guard_late.go.
func Guard(s Store, o GuardOptions) Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func(bool) {}
	}
	g := &guard{store: s, o: o}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g
}

// guard is a store behind a breaker. It is large because it implements all methods
// of Store.
type guard struct {
	store Store
	o     GuardOptions

	ctx     context.Context //nolint:containedctx // of all accesses, until Close
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	breaker breaker
	answers chan struct{}          // closed when the store answers again; nil: it does
	late    map[string]*lateWrites // by resource

	charges   atomic.Uint64   // that were made so far
	uncertain map[string]bool // writes that may have taken effect, though they failed
}

// Close implements [Store]. It cancels the accesses whose callers have left.
func (g *guard) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop()
	g.running.Wait()
	return g.store.Close()
}

// begin begins an access, unless the store hangs. A patient access waits until the
// store answers again. The caller must call g.running.Done at its end.
func (g *guard) begin(ctx context.Context, patient bool) error {
	for {
		g.mu.Lock()
		answers := g.answers
		if g.closed {
			g.mu.Unlock()
			return errors.New("the store is closed")
		}
		if answers == nil {
			g.running.Add(1)
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		if !patient {
			return ErrHangs
		}
		select {
		case <-answers:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), ErrHangs)
		case <-g.ctx.Done():
		}
	}
}

// update changes the breaker, and does what follows from it.
func (g *guard) update(change func(b *breaker)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.breaker)
	switch hangs := g.breaker.state != breakerClosed; {
	case hangs && g.answers == nil:
		g.answers = make(chan struct{})
		g.o.Changed(true)
		if answers := g.answers; !g.closed {
			g.running.Go(func() { g.probe(answers) })
		}
	case !hangs && g.answers != nil:
		close(g.answers)
		g.answers = nil
		g.o.Changed(false)
	}
}

// probe makes probes until the store answers again, which closes answers.
func (g *guard) probe(answers <-chan struct{}) {
	ticker := time.NewTicker(breakerPause)
	defer ticker.Stop()
	for {
		select {
		case <-answers:
			return
		case <-g.ctx.Done():
			return
		case <-ticker.C:
		}
		began, due := g.o.Now(), false
		g.update(func(b *breaker) { due = b.probe(began) })
		if !due {
			continue
		}
		ctx, cancel := context.WithTimeout(g.ctx, accessTime)
		err := g.store.PutTexts(ctx, "", map[string]string{probeName: "1"})
		cancel()
		now := g.o.Now()
		v := g.judge(err, now.Sub(began))
		g.update(func(b *breaker) { b.probed(v, now) })
	}
}

// judge returns what an access shows about the store. A store that is busy with writes,
// for which others wait, does not hang.
func (g *guard) judge(err error, took time.Duration) verdict {
	v := judge(err, took)
	if s, ok := g.store.(interface{ Busy() bool }); ok && v == verdictHung && s.Busy() {
		return verdictFailed
	}
	return v
}

// result is what an access returned.
type result[T any] struct {
	value T
	err   error
}

// guarded makes an access to g's store that changes nothing, or that may be made
// twice.
func guarded[T any](ctx context.Context, g *guard, patient bool, access func(ctx context.Context) (T, error)) (T, error) {
	return guardedWrite(ctx, g, patient, write[T]{}, access)
}

// guardedWrite makes an access to g's store.
func guardedWrite[T any](ctx context.Context, g *guard, patient bool, w write[T], access func(ctx context.Context) (T, error)) (value T, err error) {
	if err := g.waitLate(ctx, w.key); err != nil {
		return value, err
	}
	if err := g.begin(ctx, patient); err != nil {
		return value, err
	}
	began := g.o.Now()
	var once sync.Once // an access is judged once: when its caller leaves, or at its end
	judged := func(err error) {
		once.Do(func() {
			now := g.o.Now()
			v := g.judge(err, now.Sub(began))
			g.update(func(b *breaker) { b.ended(v, now) })
		})
	}
	own, release := g.outlive(ctx)
	done := make(chan result[T], 1)
	late := &lateWrite{guard: g, key: w.key}
	go func() {
		defer g.running.Done()
		defer release()
		var r result[T]
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("access to the store: panic: %v", p)
			}
			defer settle(late, w, &r)
			if judge(r.err, 0) == verdictAnswered {
				g.update(func(b *breaker) { b.ended(verdictAnswered, g.o.Now()) }) // late answers count too
			} else {
				judged(r.err)
			}
			late.end(w.undone(r))
			done <- r
		}()
		r.value, r.err = access(own)
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.Canceled) || !late.leave() { // a canceled access ends too
		r := <-done
		return r.value, r.err
	}
	judged(ctx.Err())
	return value, ctx.Err()
}

// outlive returns the context of an access whose caller has ctx. It ends when the
// caller is canceled, or with the caller's deadline, but not before accessTime.
func (g *guard) outlive(ctx context.Context) (own context.Context, release func()) {
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	if deadline, ok := ctx.Deadline(); ok {
		end()
		own, end = context.WithTimeout(context.WithoutCancel(ctx), max(time.Until(deadline), accessTime))
	}
	left := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			end()
		}
	})
	closed := context.AfterFunc(g.ctx, end)
	return own, func() { left(); closed(); end() }
}
