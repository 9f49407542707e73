package filter

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// backgroundCall is a call whose reply can be made after its request has been
// answered.
type backgroundCall interface {
	call
	// Background tells whether it is to be.
	Background() bool
	// Queue stores that owner is going to make the response, and gives its
	// name and the response as it stands.
	Queue(ctx context.Context, owner string, lease time.Duration) (key store.Key, object []byte, err *apierror.Error)
	// Follows tells whether the client wants the stream now, which Follow
	// gives from its beginning.
	Follows() bool
	Follow() follower
}

// backgroundReply is the reply to such a call.
type backgroundReply interface {
	reply
	// Start tells that the stream's first events have been stored already.
	Start()
	// Sequence is the number of the stream's next event.
	Sequence() int
	// Lost is why the response could not be stored as it has ended, nil if
	// it could. Then its stream has no end of ours either.
	Lost() error
}

// The reasons for which a background run ends before its time.
var (
	errLost     = errors.New("the response is not this process's any more: it was cancelled, deleted, or its lease has lapsed")
	errShutdown = errors.New("the filter is shutting down")
)

// background makes the responses that nobody waits for.
type background struct {
	s      *Server
	owner  string // this process, in the store
	leases *leases

	mu      sync.Mutex
	places  int // taken, by runs and those that are about to begin
	running map[*backgroundRun]context.CancelCauseFunc
	closed  bool
	done    sync.WaitGroup
}

func newBackground(s *Server) *background {
	owner := s.newID("")
	return &background{s: s, owner: owner, leases: newLeases(s.store, owner), running: map[*backgroundRun]context.CancelCauseFunc{}}
}

// admit takes a place for one more response; leave gives it back.
func (b *background) admit() *apierror.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.s.cfg.Limits.MaxBackground
	if limit == 0 {
		return apierror.Invalid("background", "Background responses are switched off here (the operator sets limits.max_background). Leave background out.")
	}
	if !b.closed && b.places < limit {
		b.places++
		return nil
	}
	err := apierror.New(http.StatusServiceUnavailable, "overloaded", "background", "Too many background responses are being made. Try again shortly.")
	err.RetryAfter = time.Second
	return err
}

func (b *background) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.places--
}

// start makes the response of a call that has been admitted and queued.
func (b *background) start(r *backgroundRun) {
	ctx, cancel := context.WithCancelCause(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		cancel(errShutdown)
	}
	b.running[r] = cancel
	b.leases.hold(r.journal.key, func() { cancel(errLost) })
	b.done.Go(func() {
		defer b.forget(r)
		r.make(ctx)
	})
}

func (b *background) forget(r *backgroundRun) {
	b.leases.drop(r.journal.key)
	r.share.release()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[r](nil)
	delete(b.running, r)
	b.places--
}

// close waits for the running responses until ctx ends; then they fail.
func (b *background) close(ctx context.Context) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		b.done.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		b.mu.Lock()
		for _, cancel := range b.running {
			cancel(errShutdown)
		}
		b.mu.Unlock()
		<-idle
	}
	b.leases.done.Wait()
}

// backgroundRun is the making of one response in the background: the edge
// around a run whose client is the journal.
type backgroundRun struct {
	subject subject
	rec     record
	timers  timers
	header  http.Header // that goes along with the call
	share   *share      // of the budget: the request
	remote  loopbackCall
	jobs    jobs
	call    backgroundCall
	journal journal
}

// make makes the response. It ends when the response has, or ctx.
func (r *backgroundRun) make(ctx context.Context) {
	s := r.subject.s
	s.safely(&r.rec, &r.subject.id, func() { r.reply(ctx) })
	r.stop()
	r.subject.now = s.now()
	s.safely(&r.rec, &r.subject.id, func() { r.rec.close(&r.subject) })
}

// stop ends what others do for the response.
func (r *backgroundRun) stop() {
	r.remote.hangUp()
	r.jobs.stop()
}

func (r *backgroundRun) reply(ctx context.Context) {
	s := r.subject.s
	r.remote = s.loopback.dial(ctx, r.header, r.subject.target)
	run := newRun(s, &r.journal, r.call, r.subject.target, &r.rec, &r.timers, r.subject.id, s.now())
	defer run.letGo()
	r.subject.run = run
	reply := run.reply.(backgroundReply) // a backgroundCall's reply is one
	reply.Start()
	run.begun = true
	r.journal.reply, r.journal.timers, r.journal.now, r.journal.next = reply, &r.timers, s.now, reply.Sequence()
	r.jobs = newJobs(ctx, s.tools)
	run.start(errands{&r.remote, &r.jobs}, r.header)
	r.loop(ctx, run)
}

func (r *backgroundRun) loop(ctx context.Context, run *run) {
	s := r.subject.s
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for !run.over {
		if next := r.timers.next(); !next.IsZero() {
			alarm.Reset(next.Sub(s.now()))
		}
		select {
		case e := <-r.remote.events:
			run.step(s.now())
			run.news(e)
		case d := <-r.jobs.done:
			run.step(s.now())
			run.did(d)
		case <-alarm.C:
			r.tick(run, s.now())
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errShutdown) {
				run.abandon() // whoever ended it has stored how
				return
			}
			run.step(s.now())
			run.fail(apierror.New(http.StatusServiceUnavailable, "shutdown", "", "The service was shut down before the response was complete. Send the request again."))
		}
	}
	r.stop() // before the store, which may take its time
	r.journal.flush(ctx)
	r.ended()
}

// ended notes how a run has come to its end.
func (r *backgroundRun) ended() {
	lost := r.journal.reply.Lost()
	switch {
	case errors.Is(lost, store.ErrConflict), errors.Is(lost, store.ErrNotFound): // it was cancelled or deleted meanwhile
	case lost != nil:
		r.rec.failed(apierror.New(http.StatusServiceUnavailable, "store_unavailable", "", "the response could not be stored").With(lost))
	default:
		r.subject.over = true
	}
	r.subject.fault = r.journal.fault
}

func (r *backgroundRun) tick(run *run, now time.Time) {
	run.step(now)
	for {
		name, due := r.timers.due(now)
		switch {
		case !due:
			return
		case name == timerJournal:
			r.journal.flush(r.remote.ctx)
		default:
			run.expired(name)
		}
	}
}
