// Package background makes responses whose clients do not wait for them.
//
// A response is queued in the store while its request is answered, and made by a
// run whose downstream is a journal in the store ([Maker.Start]), which clients
// follow from any replica. Leases tell other replicas that its maker is alive, and
// the maker that a response was canceled or deleted elsewhere.
//
// How a response ends, and who ends it:
//
//  1. The run completes it: its events are stored, then the response, then the last
//     event. From the second on others may write that event too.
//  2. An engine fails, or a deadline expires: the same, with a failed response.
//  3. Another replica cancels or deletes it, or this process has lost its lease:
//     the run is abandoned; how the response ended is stored already.
//  4. The process shuts down and its time is up: the response fails and is stored,
//     unless its end is being stored already.
//  5. The process dies: the lease expires, and the next reader of the response
//     stores it as failed.
//
// What a response holds here, and who takes and returns it:
//
//	                    taken by                    returned by
//	place               admit, for Queue            leave: Queue that fails, else the end of making
//	lease in the store  Queue, as the response      the write of the ended response, or its expiry
//	renewal of it       Start (leases.add)          forget (leases.drop)
//	journal             making.begin                the journal's own close
//	memory, quota       the request, before Queue   forget (Response.Release), the run's settling
//
// A response goes through these states; journalPhase has those of its journal:
//
//	state      begins with                    who ends it
//	admitted   a place                        Queue: it stores the response, or gives the place back
//	queued     the response in the store      Start
//	making     the run's first step           the run, at the end of the reply; or abandon (case 3)
//	ending     the jobs that store the end    the run; only endTimeout can cut it short
//	forgotten  no renewal, no place           –
//
// The package knows runs, the store and the loopback listener. It does not know any API: a
// response has an [api.Background], which stores its own beginning and end.
package background

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// Why a response ends before its run does.
var (
	errLost = errors.New("the response is not this process's any more: " +
		"it was canceled or deleted, or its lease has expired")
	errShutdown = errors.New("the filter is shutting down")
)

// Options are what a [Maker] is made of.
type Options struct {
	Store store.Store
	// Owner is this process, in the store.
	Owner string
	Env   *run.Env
	// Client makes the model calls; nil: no background responses are made.
	Client run.Dialer
	// Max is how many responses are made at one time; 0: none are made.
	Max int
	// TenantHeader is the request header that names the tenant; "": none does.
	TenantHeader string
}

// Maker makes background responses. It is safe for concurrent use.
type Maker struct {
	o Options
	*work
}

// work is what the makers of all configurations have begun: a reload must neither lose a
// response nor give each configuration places of its own.
type work struct {
	leases *leases

	mu sync.Mutex
	// places is how many are taken, by responses and by requests that are about to queue one.
	places int
	// running are the responses being made, with what ends each.
	running map[*making]context.CancelCauseFunc
	closed  bool
	// done waits for the places.
	done sync.WaitGroup
}

// New makes a maker.
func New(o Options) *Maker {
	return &Maker{o: o, work: &work{
		leases:  newLeases(o.Store, o.Owner),
		running: map[*making]context.CancelCauseFunc{},
	}}
}

// With returns a maker of another configuration, with the same store and owner.
// Their responses count together, and closing one of the two closes both. With m
// nil it is New.
func (m *Maker) With(o Options) *Maker {
	if m == nil {
		return New(o)
	}
	return &Maker{o: o, work: m.work}
}

// Response is a response that is stored as queued.
type Response struct {
	// API is the label in logs and metrics.
	API       string
	RequestID string
	Tenant    string
	Started   time.Time

	// Request is one whose Info has a Background.
	Request api.Request
	Target  run.Target
	// Header is that of the client's request, and Parent its span.
	Header http.Header
	Parent telemetry.Parent
	// Tape goes on with the making; nil: the exchange is not recorded.
	Tape *record.Tape

	// Quota is what the response takes of token quotas; nil: none bounds it.
	Quota *budget.Account
	// Reserve takes room for memory of the making, of the memory budget. nil: there is
	// room for all.
	Reserve func(bytes int) *apierror.Error
	// Release is called when the response has ended. It returns what the
	// request has taken of that budget.
	Release func()

	key store.Key
}

// Queue takes a place for one more response and stores that it is going to be made.
// It returns the object that the client gets. [Maker.Start] has to follow.
func (m *Maker) Queue(ctx context.Context, r *Response) (object []byte, err *apierror.Error) {
	if err := m.admit(); err != nil {
		return nil, err
	}

	// Deferred, so that a panic gives the place back too.
	queued := false
	defer func() {
		if !queued {
			m.leave()
		}
	}()

	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	r.key, object, err = r.Request.Info().Background.Queue(ctx, m.o.Owner, leaseTime)
	queued = err == nil
	return object, err
}

// admit takes a place for one more response; leave gives it back.
func (m *Maker) admit() *apierror.Error {
	m.mu.Lock()
	defer m.mu.Unlock()

	switch {
	case m.o.Client == nil:
		return apierror.Invalid("background", "Background responses need Envoy's loopback listener, "+
			"which is not configured here (the operator sets loopback). Leave background out.")
	case m.o.Max == 0:
		return apierror.Invalid("background", "Background responses are switched off here "+
			"(the operator sets limits.max_background). Leave background out.")
	case !m.closed && m.places < m.o.Max:
		m.places++
		m.done.Add(1)
		return nil
	}

	return apierror.New(http.StatusServiceUnavailable, "overloaded", "background",
		"Too many background responses are being made. Try again shortly.")
}

func (m *Maker) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.places--
	m.done.Done()
}

// Start makes a response that has been queued.
func (m *Maker) Start(r *Response) {
	ctx, cancel := context.WithCancelCause(context.Background())
	k := newMaking(ctx, m, r)

	m.mu.Lock()
	defer m.mu.Unlock()
	// A response may have been queued while Close began. The client has got its id: it is made
	// all the same, to be stored as failed at once.
	if m.closed {
		cancel(errShutdown)
	}
	m.running[k] = cancel
	m.leases.add(r.key, func() { cancel(errLost) })
	go func() {
		defer m.leave()
		defer m.forget(k)
		k.make(ctx)
	}()
}

// forget ends a response's lease and releases what it has taken.
func (m *Maker) forget(k *making) {
	m.leases.drop(k.response.key)
	k.response.Release()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[k](nil)
	delete(m.running, k)
}

// Close waits for the responses that are queued or being made until ctx ends; then
// they fail.
func (m *Maker) Close(ctx context.Context) {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()

	idle := make(chan struct{})
	go func() {
		m.done.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		// A response that is told to end bounds itself by endTimeout.
		m.mu.Lock()
		for _, cancel := range m.running {
			cancel(errShutdown)
		}
		m.mu.Unlock()
		<-idle
	}

	m.leases.done.Wait()
}

// forwarded are the headers of the client's request that go along with model calls
// of a background response: those of traces and access logs. The client's
// credentials end with its own request; the engine's come from Envoy.
var forwarded = []string{
	"host", "user-agent", "x-request-id", "x-forwarded-for", "x-forwarded-proto",
	"traceparent", "tracestate", "baggage",
	"b3", "x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled",
}

// backgroundHeaders are the headers of a response's model calls.
func backgroundHeaders(h http.Header, tenantHeader string) http.Header {
	kept := http.Header{}
	for _, name := range append(forwarded, tenantHeader) {
		if values := h.Values(name); name != "" && len(values) > 0 {
			kept[http.CanonicalHeaderKey(name)] = values
		}
	}
	return kept
}

// making makes one response. It is the [run.Owner] of its runner.
type making struct {
	maker    *Maker
	response *Response
	runner   *run.Runner
	run      *run.Run
	reply    api.BackgroundReply
	journal  journal

	// lost says that somebody else has ended the response.
	lost bool
	// complete and fault are for the log entry: the reply is stored whole, and what went wrong.
	complete bool
	fault    error
}

func newMaking(ctx context.Context, m *Maker, r *Response) *making {
	// Jobs do not end with ctx: a response that has to fail is stored.
	k := &making{maker: m, response: r, runner: run.NewRunner(context.WithoutCancel(ctx), m.o.Env, r.Started)}
	k.runner.Record.Tape = r.Tape
	r.Tape.Set(func(rec *record.Record) { rec.Target.Background = true })
	return k
}

// make makes the response. It ends when the response has ended, or ctx.
func (k *making) make(ctx context.Context) {
	k.runner.Record.Response = k.response.Request.Info().ID
	k.beginSpan()
	k.runner.Protect(&k.response.RequestID, func() {
		defer k.abandon()
		k.begin(ctx)
		// Its error is one of the journal, which is in fault already.
		_ = run.Serve(ctx, k.runner, k.journal.stored, k)
		k.note()
	})
	k.runner.Stop()

	k.runner.Protect(&k.response.RequestID, k.logEntry)
}

// beginSpan begins the span of the response. It belongs to that of the request that
// has queued it, which has ended or soon will.
func (k *making) beginSpan() {
	r := k.response
	start := telemetry.Start{
		Parent: r.Parent, Kind: telemetry.Background, API: r.API, RequestID: r.RequestID,
		Model: r.Target.Model, Engine: r.Target.Engine,
	}
	if r.Target.Dialect != nil {
		start.Provider = r.Target.Dialect.Kind()
	}
	k.maker.o.Env.Telemetry.Begin(&k.runner.Record, start)
}

// abandon releases what the run has locked, however it has ended.
func (k *making) abandon() {
	if r := k.runner.Run(); r != nil {
		r.Abandon()
	}
}

func (k *making) begin(ctx context.Context) {
	m, r := k.maker, k.response
	header := backgroundHeaders(r.Header, m.o.TenantHeader)
	k.journal = newJournal(m.o.Store, r.key, m.o.Owner, m.o.Env, &k.runner.Timers, r.Reserve)
	k.run = k.runner.Begin(run.Options{
		Request: r.Request, Mode: api.Loop, Target: r.Target, RequestID: r.RequestID, Header: header,
		Downstream: &k.journal, Executor: executor{k.runner, k}, Queued: true,
		Quota: r.Quota, Reserve: r.Reserve,
	}, m.o.Client.Dial(ctx, header, r.Target), m.o.Env.Now())

	// The reply begins before the journal, which numbers its events after those that Queue has
	// stored.
	k.reply = k.run.Reply().Background()
	k.reply.Start()
	k.journal.begin(k.reply)
	k.run.Start()
}

// executor executes what the run asks for. The end of the response is stored after
// the events before it: from then on the store takes only the last event, from the
// first process that sends it.
type executor struct {
	*run.Runner
	making *making
}

// Start implements [run.Executor].
func (e executor) Start(jobs []api.Job) {
	if !e.making.reply.Ending() {
		e.Runner.Start(jobs)
		return
	}

	// Without jobs it only ends the model call: an engine must not go on while the store is slow.
	e.Runner.Start(nil)
	e.making.journal.drain(func() { e.Runner.Start(jobs) })
}

// Begin implements [run.Owner].
func (k *making) Begin(time.Time) {}

// Handle implements [run.Owner]: it takes the result of an access to the journal.
func (k *making) Handle(err error) (telemetry.MessageKind, error) {
	k.journal.appended(err)
	return telemetry.MessageJob, nil
}

// Expire implements [run.Owner].
func (k *making) Expire(name run.Timer) {
	if name == run.TimerJournal {
		k.journal.expired()
		return
	}
	k.runner.Expire(name)
}

// Flush implements [run.Owner]: at the end of the run the journal gets what is left.
func (k *making) Flush() error {
	if k.run.Ended() {
		k.runner.Stop()
		k.journal.end()
	}
	return nil
}

// Done implements [run.Owner].
func (k *making) Done() bool { return k.run.Ended() && k.journal.closed() }

// Canceled implements [run.Owner].
func (k *making) Canceled(cause error) (goesOn bool) {
	if !errors.Is(cause, errShutdown) {
		// Its own end is what has ended the lease, or the store rejects it.
		if k.reply.Ending() || k.run.Ended() {
			return true
		}
		k.lost = true
		k.run.Abandon()
		return false
	}

	// An end that is being stored is not changed into a failure: the store may have it already.
	if !k.reply.Ending() {
		k.run.Fail(apierror.New(http.StatusServiceUnavailable, apierror.CodeShutdown, "",
			"The service was shut down before the response was complete. Send the request again."))
	}
	if !k.run.Ended() {
		k.runner.Timers.Set(run.TimerTotal, k.maker.o.Env.Now(), endTimeout)
	}
	return true
}

// note notes how the run has ended.
func (k *making) note() {
	if k.lost {
		return
	}

	switch lost := k.reply.Lost(); {
	case errors.Is(lost, store.ErrConflict), errors.Is(lost, store.ErrNotFound):
		// It was canceled or deleted meanwhile: nothing of it has failed.
	case lost != nil:
		k.runner.Record.Failed(apierror.New(http.StatusServiceUnavailable, "store_unavailable", "",
			"The response could not be stored.").With(lost))
	default:
		k.complete = true
	}
	k.fault = k.journal.fault
}

// logEntry writes the log line.
func (k *making) logEntry() {
	r := k.response
	o := telemetry.Outcome{
		Kind: telemetry.Background, API: r.API, RequestID: r.RequestID, Tenant: r.Tenant,
		Model: r.Target.Model, Engine: r.Target.Engine,
		Complete: k.complete, Now: k.maker.o.Env.Now(),
	}
	k.runner.Describe(&o)
	o.Fault = errors.Join(o.Fault, k.fault)
	k.maker.o.Env.Telemetry.Close(&k.runner.Record, &o)
}
