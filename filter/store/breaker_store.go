package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// accessTime is how long an access goes on at least, even if its caller
	// waits for a shorter time.
	accessTime = 5 * time.Second
	// longestAccess bounds an access whose caller has no deadline. Without it a caller that
	// only cares that the access is made would wait for a store that hangs as long as it does.
	longestAccess = 30 * time.Second
	// probeName is the name of the text that a probe writes, for the tenant "".
	probeName = "probe:"
)

// ErrHangs is the error of accesses that are not made because the store hangs.
var ErrHangs = errors.New("the store has not answered several accesses in a row: none is made until it answers again")

var errClosed = errors.New("the store is closed")

// BreakerOptions are the options of [WithBreaker].
type BreakerOptions struct {
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Changed is called when the store begins to hang and when it stops. It must
	// not access the store. It may be nil.
	Changed func(hangs bool)
	// Contact is called with how each of the first accesses ended, which are made until one is
	// answered: the first one before WithBreaker returns, then one a second. reached says that it
	// is the last one. An error beside it is that of a store that answers and takes no writes. It
	// must not access the store. nil: none of them is made.
	Contact func(reached bool, err error)
}

// WithBreaker returns s with a circuit breaker. It is one of three reasons why a store that
// hangs does not delay the streams of clients:
//
//  1. The run of a reply never waits for a store. What a reply needs is a job on a goroutine of
//     its own (api.Job), and the run goes on with its timers and keep-alives until the result
//     arrives. The other accesses are not on the run's goroutine either: decoding has one of its
//     own (extproc), and so have locks (run.Locks), the journal and the leases of background
//     responses, and streams that are followed.
//  2. A call returns at the deadline of its context, even if s does not: so a job ends, and its
//     reply goes on without the store, or fails. A context without a deadline gets one of 30 s.
//     One that is canceled ends its access by canceling it, and waits for that.
//  3. After five accesses in a row that were not answered in time, accesses return [ErrHangs] at
//     once, so that not each request waits for its deadlines. Meanwhile a small text is written
//     once a second; accesses are made again when that does not hang.
//
// Accesses that no client waits for are not rejected: they wait, until their context ends, for
// the store to answer again. Their callers say so with [Patiently].
//
// Accesses that a store makes of its own accord, such as the polls of [SQL], are made as those
// of callers are, if it has [SQL.Through].
//
// The access of a call that has returned at its deadline goes on for five seconds in all, so
// that a slow store is not mistaken for one that hangs. Callers must not change its arguments.
// If it takes effect after its caller has been told that it failed, it is undone: see access.
func WithBreaker(s Store, o BreakerOptions) Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func(bool) {}
	}

	b := &breakerStore{inner: s, o: o, changed: make(chan struct{})}
	b.Store = Intercept(s, b.intercept)
	b.ctx, b.stop = context.WithCancel(context.Background())
	if o.Contact != nil && !b.contact() {
		b.running.Go(b.awaitContact)
	}

	// Last: from here on the store makes accesses of its own.
	if own, ok := s.(interface{ Through(a Access) }); ok {
		own.Through(func(ctx context.Context, do func(context.Context) error) error {
			return b.access(ctx, write{}, do)
		})
	}
	return b
}

// Access makes an access to a store, which is do, if that may be made at present.
type Access func(ctx context.Context, do func(ctx context.Context) error) error

// patientKey is the key of a context whose accesses are patient.
type patientKey struct{}

// Patiently returns a context for accesses that no client waits for: while the store hangs they
// wait for it to answer again, until the context ends, in place of being rejected.
func Patiently(ctx context.Context) context.Context {
	return context.WithValue(ctx, patientKey{}, true)
}

func isPatient(ctx context.Context) bool { return ctx.Value(patientKey{}) != nil }

// breakerStore is a store behind a breaker. It is large because it implements all methods
// of Store: most of them by its interceptor, the others in breaker_methods.go.
type breakerStore struct {
	// Store is inner with the interceptor.
	Store

	inner Store
	o     BreakerOptions

	// ctx is that of all accesses: it ends with Close, which waits for those that run.
	ctx     context.Context //nolint:containedctx // of all accesses, until Close
	stop    context.CancelFunc
	running sync.WaitGroup

	// mu protects what follows, and the states of accesses.
	mu      sync.Mutex
	closed  bool
	breaker breaker
	// changed is closed, and replaced, when the store begins to hang and when it answers again.
	changed chan struct{}
	// held are the resources whose next write has to wait.
	held map[string]*hold
	// uncertain are the writes that may have taken effect, though they failed.
	uncertain map[string]bool
}

// Close implements [Store]. It cancels the accesses whose callers have left.
func (b *breakerStore) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()

	// Accesses that have been left still use the store: it is closed after the last of them.
	b.stop()
	b.running.Wait()
	return b.inner.Close()
}

// begin begins an access of a resource, unless the store hangs: a patient access waits until it
// answers again. Every access waits until the resource is not held. The caller must call
// b.running.Done at its end.
func (b *breakerStore) begin(ctx context.Context, resource string) error {
	patient := isPatient(ctx)
	for {
		b.mu.Lock()
		hangs, changed, held := b.hangs(), b.changed, b.held[resource]
		switch {
		case b.closed:
			b.mu.Unlock()
			return errClosed
		// Before the hold: it is not released while the store hangs, and who waits for it would wait
		// for as long as it may.
		case hangs && !patient:
			b.mu.Unlock()
			return ErrHangs
		case !hangs && held == nil:
			// Under the lock: after closed is set, nothing may be added that Close waits for.
			b.running.Add(1)
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock()

		if err := b.await(ctx, hangs, changed, held); err != nil {
			return err
		}
	}
}

// await waits for a change that lets an access begin, or rejects it.
func (b *breakerStore) await(ctx context.Context, hangs bool, changed <-chan struct{}, held *hold) error {
	// Nothing is received from a nil channel.
	var released <-chan struct{}
	if held != nil {
		released = held.released
	}

	select {
	case <-changed:
	case <-released:
	case <-b.ctx.Done():
	case <-ctx.Done():
		if hangs {
			return fmt.Errorf("%w: %w", ctx.Err(), ErrHangs)
		}
		return fmt.Errorf("an earlier write has not ended: %w", ctx.Err())
	}
	return nil
}

// hangs reports whether accesses are rejected. The caller has b.mu.
func (b *breakerStore) hangs() bool { return b.breaker.state != breakerClosed }

// update changes the breaker, and does what follows from it.
func (b *breakerStore) update(change func(breaker *breaker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.hangs()
	change(&b.breaker)
	hangs := b.hangs()
	if hangs == before {
		return
	}

	close(b.changed)
	b.changed = make(chan struct{})
	b.o.Changed(hangs)
	if answers := b.changed; hangs && !b.closed {
		b.running.Go(func() { b.probe(answers) })
	}
}

// probe makes probes until the store answers again, which closes answers.
func (b *breakerStore) probe(answers <-chan struct{}) {
	ticker := time.NewTicker(breakerPause)
	defer ticker.Stop()
	for {
		select {
		case <-answers:
			return
		case <-b.ctx.Done():
			return
		case <-ticker.C:
		}

		// The breaker knows better than the ticker: an access that ran when it opened may have
		// closed it.
		began, due := b.o.Now(), false
		b.update(func(breaker *breaker) { due = breaker.probe(began) })
		if !due {
			continue
		}

		// A probe writes: a database that hangs on its disk may still answer reads.
		ctx, cancel := context.WithTimeout(b.ctx, accessTime)
		err := b.inner.PutTexts(ctx, "", map[string]string{probeName: "1"})
		cancel()

		now := b.o.Now()
		shown := b.judge(err, now.Sub(began))
		b.update(func(breaker *breaker) { breaker.probed(shown, now) })
	}
}

// contact makes a first access, and reports whether it was answered.
func (b *breakerStore) contact() (reached bool) {
	ctx, cancel := context.WithTimeout(b.ctx, accessTime)
	defer cancel()

	err := b.inner.PutTexts(ctx, "", map[string]string{probeName: "1"})
	reached = Answered(err)
	// A server that is full, or a copy, rejects writes. What reads has its use of it.
	if !reached && ctx.Err() == nil {
		_, readErr := b.inner.Texts(ctx, "", []string{probeName})
		reached = Answered(readErr)
	}
	b.o.Contact(reached, err)
	return reached
}

// awaitContact makes first accesses until one is answered, or the store is closed.
func (b *breakerStore) awaitContact() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(breakerPause):
		}
		if b.contact() {
			return
		}
	}
}

// judge returns what an access shows about the store. A store that is busy with writes,
// for which others wait, does not hang.
func (b *breakerStore) judge(err error, took time.Duration) verdict {
	shown := judge(err, took)
	if s, ok := b.inner.(interface{ Busy() bool }); ok && shown == verdictHung && s.Busy() {
		return verdictFailed
	}
	return shown
}

// access makes an access, and returns its error: at the latest at the deadline of ctx. While
// the store hangs, an access waits for it to answer again if ctx is of [Patiently]. After an
// error, do may still be running.
func (b *breakerStore) access(ctx context.Context, w write, do func(context.Context) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longestAccess)
		defer cancel()
	}

	if err := b.begin(ctx, w.resource); err != nil {
		return err
	}

	a := &access{store: b, write: w, began: b.o.Now()}
	own, release := b.outlive(ctx)
	done := make(chan error, 1)
	go func() {
		defer b.running.Done()
		defer release()
		err := protect(own, do)
		undo, held := a.end(err)
		// The caller need not wait for the undoing: only the next write of the resource does.
		done <- err
		if undo {
			a.undo()
		}
		if held {
			a.release()
		}
	}()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}

	// A canceled caller does not leave: its access is canceled too, and ends in a moment.
	if errors.Is(ctx.Err(), context.Canceled) || !a.leave() {
		return <-done
	}
	return ctx.Err()
}

// outlive returns the context of an access whose caller has ctx. It ends when the
// caller is canceled, or with the caller's deadline, but not before accessTime.
func (b *breakerStore) outlive(ctx context.Context) (own context.Context, release func()) {
	// Not the caller's deadline itself: a store that answers a little after it is slow, and only one
	// that does not answer for accessTime hangs.
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
	closed := context.AfterFunc(b.ctx, end)
	return own, func() { left(); closed(); end() }
}

// protect does a part of an access. A panic is its error: it must not end the process, nor
// leave the access without an end.
func protect(ctx context.Context, part func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("access to the store: panic: %v", p)
		}
	}()
	return part(ctx)
}
