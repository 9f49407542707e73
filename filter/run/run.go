package run

import (
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// failTimeout is how long the client of a failed reply waits for the jobs that
// store it: longer than one access to the store.
const failTimeout = 10 * time.Second

// firstBytes is the capacity for the first events of a reply.
const firstBytes = 1 << 10

// Env is what all runs of a process share.
type Env struct {
	Telemetry *telemetry.Telemetry
	Now       func() time.Time

	// What runs are bounded by, and what Envoy chooses replicas by.
	Limits  Limits
	Keys    Keys
	Explain []string // response headers that explain a reply, of header.Explanations

	// What goes on beside runs, and after them.
	Locks   *Locks
	Workers *Workers
}

// Limits are the deadlines of runs; 0 is none.
type Limits struct {
	FirstToken time.Duration // from a model call to its first event
	Idle       time.Duration // between two events of a model call
	Total      time.Duration // from the request's headers to the end of the reply
	HeaderHold time.Duration // how long a stream's headers wait for the first event
	KeepAlive  time.Duration // silence before a stream gets a keep-alive

	Continuations int // most lost model calls of a reply that other calls continue
}

// Executor does what a run needs done outside the state machine.
type Executor interface {
	// Call makes a model call, in place of the one being made.
	Call(r *engine.Request, retry Retry) *apierror.Error
	// Start ends the model call being made and executes jobs side by side. Each
	// result is an event of the run.
	Start(jobs []api.Job)
	// Beside executes a job beside the model call being made, and beside others that it was
	// given during that call. Its result is an event of the run.
	Beside(job api.Job)
	// Detach executes jobs whose results nobody takes.
	Detach(jobs []api.Job)
}

// Options are what a run is made of.
type Options struct {
	Request api.Request
	Mode    api.Mode
	// Queued says that the beginning of the reply is stored already.
	Queued bool

	// The model calls.
	Target    Target
	RequestID string // for x-request-id
	Header    http.Header
	// Prepared is called when the first model call's request is there: the
	// body of the client's request is not needed any more. May be nil.
	Prepared func()

	// Who gets the reply, and who does what it needs.
	Downstream Downstream
	Executor   Executor // nil: the runner

	// Reserve takes room for memory, of which a reply that keeps its output has more the
	// longer it gets. nil: there is room for all.
	Reserve func(bytes int) *apierror.Error
	// Quota is what the reply takes of token quotas. nil: none bounds it.
	Quota *budget.Account
	// Limit limits the output of a model call as a token quota has done that is not there any
	// more, of an exchange that is replayed. nil: nothing does.
	Limit func(req *engine.Request)
	// Limits returns the headers that say what is left of one. nil: there are none.
	Limits func(l *apierror.TokenLimit, now time.Time) []engine.Header
}

// phase is what a run waits for. Who leaves a phase:
//
//	phase    how it is left                                                     for
//	new      Start: the first step                                              as after any step
//	         Await: Envoy makes the one model call                              call
//	reserve  granted: the token quota has room                                  call
//	         granted: it has none                                               jobs of the failure, ended
//	call     follow: the output is complete                                     as after any step
//	         lost: the call is repeated or continued, or the reply fails        call, reserve, or as after any step
//	jobs     JobDone: the last job is done                                      as after any step
//	any      fail, while no headers were sent; Cancel; Abandon                  ended
//
// After a step, advance asks the reply for the next one: a model call (reserve, or call at
// once), jobs (jobs), or none: the reply is complete (ended). A reply that fails (failing) goes
// on in the same phases: it may have to store how it has ended.
type phase uint8

const (
	phaseNew     phase = iota
	phaseReserve       // the reservation of a model call
	phaseCall          // the model call being made
	phaseJobs          // jobs of a step
	phaseEnded         // nothing: the reply has its end, or nobody wants it
)

// Run makes a reply: a state machine that is used by one goroutine.
//
// It is large because each event that a reply can meet has a method, and it alone decides what
// follows. What it is made of returns: the model call an outcome, spending a grant, the continuation
// how a step goes on.
type Run struct {
	o      Options
	info   api.Info // of the request
	env    *Env
	rec    *telemetry.Record
	timers *Timers
	unlock func() // releases the lock of the request's conversation
	now    time.Time

	phase   phase
	reply   api.Reply
	jobs    int  // that are not done, in phaseJobs
	failing bool // the reply ends with an error

	// The model call being made, and what is kept of the output of the step.
	planned      plannedCall // the last one
	call         modelCall
	calls        int // that were made
	continuation continuation
	spend        spending
	output       outputRoom

	// What the client gets.
	headersSent bool
	pending     outbox
}

// newRun begins a run at a time.
func newRun(env *Env, o Options, rec *telemetry.Record, timers *Timers, now time.Time) *Run {
	if o.Prepared == nil {
		o.Prepared = func() {}
	}

	r := &Run{o: o, info: o.Request.Info(), env: env, rec: rec, timers: timers, now: now, headersSent: o.Queued}
	r.pending.buf = make([]byte, 0, firstBytes)
	r.reply = o.Request.NewReply(o.Mode)
	r.output = newOutputRoom(&r.info, o.Reserve)
	r.call.target, r.call.rec = &r.o.Target, rec
	r.spend = spending{quota: o.Quota, rec: rec, grows: o.Mode == api.Loop, low: math.MaxInt}

	// The total time counts from the request's headers on: a client does not know when its body
	// was complete.
	r.unlock = env.Locks.Keep(r.info.Lock)
	r.timers.Set(TimerTotal, rec.Started, env.Limits.Total)
	return r
}

// Start begins the reply's first step.
func (r *Run) Start() {
	r.rec.Tape.Happened(record.KindStart)
	r.advance()
}

// Await waits for the answer to the one model call of a reply in the mode
// SingleCall, which Envoy makes.
func (r *Run) Await(req *engine.Request) {
	r.env.Telemetry.ModelCall(r.rec, req, r.now)
	r.rec.Tape.Call(req, 0)
	r.await(req, Retry{})
}

// Ended reports whether the reply has its end, or nobody wants it.
func (r *Run) Ended() bool { return r.phase == phaseEnded }

// Reply is the reply being made.
func (r *Run) Reply() api.Reply { return r.reply }

// At begins the handling of the next event, at a time: what the one before sent
// downstream is not needed any more.
func (r *Run) At(now time.Time) {
	r.now = now
	r.pending.reuse()
}

// advance begins the reply's next step, or completes the reply.
func (r *Run) advance() {
	r.rec.CallEnded(nil, r.now)
	var step api.Step
	var err *apierror.Error
	r.pending.buf, step, err = r.reply.Step(r.pending.buf)

	// A reply that fails while it fails, as when its store does, ends with its first error.
	switch {
	case err != nil && !r.failing:
		r.fail(err)
	case err != nil:
		r.complete()
	case step.Call != nil:
		r.plan(plannedCall{request: step.Call}, BudgetCall(step.Call))
	case len(step.Jobs) > 0:
		r.startJobs(phaseJobs, step.Jobs)
	default:
		r.complete()
	}
}

// startJobs executes the jobs of a step, or the one that a model call waits for. What the reply
// says meanwhile waits for the reply's headers as output of the engine does.
func (r *Run) startJobs(waiting phase, jobs []api.Job) {
	r.phase, r.jobs = waiting, len(jobs)
	r.timers.clearCall()
	if r.headersSent {
		r.flush(false)
	}
	r.o.Executor.Start(jobs)
	r.holdHeaders()
}

// JobDone takes the result of one of the step's jobs, or of a job of a token quota.
func (r *Run) JobDone(d JobDone) {
	switch r.phase {
	case phaseReserve:
		r.granted(r.spend.reserved(d))
		return
	case phaseCall:
		r.besideDone(d)
		return
	case phaseNew, phaseEnded:
		return
	}

	r.rec.Tape.Job(d.Index)
	r.pending.buf = r.reply.JobDone(r.pending.buf, d.Index, d.Result, d.Err)
	r.jobs--
	if r.jobs == 0 {
		r.advance()
		return
	}
	if r.headersSent {
		r.flush(false)
	}
}

// besideDone takes the result of a job that was done beside a model call: a verdict about the
// whole answer, or more of a token quota.
func (r *Run) besideDone(d JobDone) {
	verdict, ok := d.Result.(turn.Verdict)
	if r.call.deciding() && (ok || d.Err != nil) {
		if !ok { // a panic, of one of the jobs
			verdict = turn.Unchecked
		}
		o := r.call.verifier.decide(verdict)
		if now := r.verified(nil); now.over != overNot {
			o = now
		}
		if o.over == overNot {
			r.flush(false)
			return
		}
		r.follow(o)
		return
	}

	more, exhausted := r.spend.grown(d)
	r.beside(more)
	if exhausted {
		r.Exhausted()
	}
}

// complete sends the end of the reply. Before the engine's own end this makes
// Envoy cancel the engine's request.
func (r *Run) complete() {
	var err *apierror.Error
	r.pending.buf, err = r.reply.End(r.pending.buf)
	if err != nil && !r.headersSent {
		r.end()
		r.rec.Tape.Refused(err)
		r.o.Downstream.SendError(err)
		return
	}
	r.flush(true)
}

// Fail ends the reply with an error for a reason outside of it.
func (r *Run) Fail(err *apierror.Error) {
	r.rec.Tape.Failed(err)
	r.fail(err)
}

// fail ends the reply with an error: in place of the reply while its headers are
// withheld, else as its last event. A second error while the reply is failing, such
// as a deadline, ends it at once, with the first one.
//
// What the client gets: before the headers the error's status and JSON, and nothing is stored.
// In a stream of chat an error event and [DONE], without a finish reason or usage. In one of
// responses the open item becomes incomplete without its done event, the response is stored as
// failed, and then comes response.failed. The log line is written when the exchange ends.
func (r *Run) fail(err *apierror.Error) {
	if r.phase == phaseEnded {
		return
	}

	// Only the request knows of which field the grammar is that an engine has refused.
	var cause *engine.Cause
	if errors.As(err, &cause) && cause.Grammar {
		err.Param = r.reply.Turn().ConstraintParam()
	}

	r.rec.CallEnded(err, r.now)
	switch {
	case !r.headersSent:
		r.end()
		r.rec.Tape.Refused(err)
		r.o.Downstream.SendError(err)
		return
	case r.failing:
		r.pending.buf = r.reply.Fail(r.pending.buf, r.rec.Err())
		r.complete()
		return
	}

	// The reply goes on in its steps, by which it stores what there is of it.
	err = err.InStream()
	r.rec.Failed(err)
	r.failing = true
	if !r.o.Queued { // else nobody waits
		r.timers.Set(TimerTotal, r.now, failTimeout)
	}
	r.pending.buf = r.reply.Fail(r.pending.buf, err)
	r.advance()
}

func (r *Run) end() {
	r.settle(r.usedSoFar())
	r.phase = phaseEnded
	r.unlock()
	r.timers.ClearAll()
}

// Abandon ends the run without a word: something else has ended its reply, or it
// cannot be trusted any more, so that it is not asked what it has used.
func (r *Run) Abandon() {
	r.leaveCall()
	r.settle(r.spend.used())
	r.phase = phaseEnded
	r.unlock()
}

// Cancel ends the run because its client has left.
func (r *Run) Cancel() {
	r.rec.Tape.Happened(record.KindCancel)
	if r.phase != phaseEnded {
		if jobs := r.reply.Cancel(); len(jobs) > 0 {
			r.o.Executor.Detach(jobs)
		}
		r.leaveCall()
		r.settle(r.usedSoFar())
	}
	r.Abandon()
}

// leaveCall takes that the reply is given up, as when its client leaves. A call that was sent then
// is charged with its prompt: an engine may have read all of it, and a client that always leaves
// in time would have that for nothing. A call that was refused, or has failed, stays free.
func (r *Run) leaveCall() {
	if r.phase == phaseCall && r.call.phase == callSent {
		r.spend.leftCall = true
	}
}

// usedSoFar returns what the reply has used. Output is what engines have made of it, and not
// what the reply says of itself: output that is held back, that nobody wants any more or that
// was asked for again has taken an engine as long. Output that no reply has read counts as
// what is no reasoning.
func (r *Run) usedSoFar() budget.Usage {
	used := r.spend.used()
	if r.spend.answered {
		s := r.reply.Summary()
		used.Cached, used.Reasoning = s.Cached, s.Counts.Reasoning
	}
	return used
}

// settle returns to token quotas what the reply has reserved and not used.
func (r *Run) settle(used budget.Usage) {
	if job := r.spend.settle(used); job != nil {
		r.o.Executor.Detach([]api.Job{job})
	}
}

// flush sends the client what it may have now. A whole object is sent at its end
// only.
func (r *Run) flush(end bool) {
	if !end && !r.info.Stream {
		return
	}

	r.sendHeaders(end)
	if end {
		// The run has ended before its last byte is sent: Envoy may end the stream with it.
		r.end()
		p := r.pending.take()
		r.rec.Tape.Sent(p)
		r.o.Downstream.SendBody(p, true)
	} else if p := r.pending.take(); len(p) > 0 {
		r.rec.Tape.Sent(p)
		r.o.Downstream.SendBody(p, false)
		r.timers.Set(TimerKeepAlive, r.now, r.env.Limits.KeepAlive)
	}
}

// holdHeaders lets a stream's headers wait for the first event, for a while.
func (r *Run) holdHeaders() {
	if r.info.Stream && !r.headersSent && !r.timers.Armed(TimerHold) {
		r.timers.Set(TimerHold, r.now, r.env.Limits.HeaderHold)
	}
}

// sendHeaders sends the reply's headers, once; end says that the reply is complete.
func (r *Run) sendHeaders(end bool) {
	if r.headersSent {
		return
	}
	r.headersSent = true
	r.timers.Clear(TimerHold)
	r.timers.Set(TimerKeepAlive, r.now, r.env.Limits.KeepAlive)
	headers := r.Explain(ReplyHeaders(r.info.Stream, r.o.RequestID), end)
	r.rec.Tape.Headers(headers)
	if r.spend.quota != nil && r.o.Limits != nil {
		if left, ok := r.spend.quota.Left(); ok {
			headers = append(headers, r.o.Limits(&left, r.now)...)
		}
	}
	r.o.Downstream.SendHeaders(headers)
}

// expired does what one of the run's timers asks for.
func (r *Run) expired(name Timer) {
	r.rec.Tape.Timer(name.String())
	limits := &r.env.Limits
	switch name {
	case TimerFirst:
		r.lost(timeoutError(
			"The engine did not begin to answer within %s. Send the request again.", limits.FirstToken), remedyContinue)
	case TimerIdle:
		r.lost(timeoutError("The engine was silent for %s. Send the request again.", limits.Idle), remedyContinue)
	case TimerTotal:
		r.fail(timeoutError(
			"The reply was not complete within %s. Send the request again, or ask for less.", limits.Total))
	case TimerGrace:
		r.follow(outcome{over: overComplete})
	case TimerHold:
		r.flush(false)
	case TimerKeepAlive:
		r.pending.buf = append(r.pending.buf, r.info.KeepAlive...)
		r.flush(false)
	}
}

func timeoutError(format string, limit time.Duration) *apierror.Error {
	return apierror.New(http.StatusGatewayTimeout, "engine_timeout", "", format, limit)
}
