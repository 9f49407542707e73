package run

import (
	"context"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// Runner is the edge of one run: its timers, its record, the model call being
// made and the jobs. It is used by one goroutine.
type Runner struct {
	Timers Timers
	Record telemetry.Record

	env  *Env
	run  *Run // nil until Begin
	jobs jobs

	// The model calls.
	upstream Upstream // nil: none are made here
	header   http.Header
	held     bool // events of the model call wait
}

// NewRunner makes a runner whose jobs end with ctx.
func NewRunner(ctx context.Context, env *Env, started time.Time) *Runner {
	return &Runner{env: env, jobs: newJobs(ctx, env.Workers), Record: telemetry.Record{Started: started}}
}

// Begin makes the run. upstream makes its model calls; nil: Envoy makes the only
// one.
func (r *Runner) Begin(o Options, upstream Upstream, now time.Time) *Run {
	if o.Executor == nil {
		o.Executor = r
	}
	r.header, r.upstream = o.Header, upstream
	r.run = newRun(r.env, o, &r.Record, &r.Timers, now)
	return r.run
}

// Run is the run; nil before Begin.
func (r *Runner) Run() *Run { return r.run }

// Call implements [Executor].
func (r *Runner) Call(req *engine.Request, retry Retry) *apierror.Error {
	r.Record.Propagate(r.header)
	return r.upstream.Call(req, retry)
}

// Start implements [Executor].
func (r *Runner) Start(list []api.Job) {
	r.cancelCall()
	r.jobs.start(&r.Record, list)
}

// Beside implements [Executor].
func (r *Runner) Beside(job api.Job) { r.jobs.beside(&r.Record, job) }

// Detach implements [Executor].
func (r *Runner) Detach(list []api.Job) { r.jobs.detach(&r.Record, list) }

// Stop ends the model call being made, and jobs that can be given up.
func (r *Runner) Stop() {
	r.cancelCall()
	r.jobs.stop()
}

func (r *Runner) cancelCall() {
	if r.upstream != nil {
		r.upstream.Cancel()
	}
}

// Hold lets events of the model call wait while held is true: the client has not
// taken yet what was sent. The engine is held back in turn, and its deadlines are
// suspended. All other events are taken.
func (r *Runner) Hold(held bool) { r.held = held }

// Expire does what the run's timer asks for.
func (r *Runner) Expire(name Timer) {
	if r.run == nil || r.held && r.Timers.postpone(name, r.run.now, &r.env.Limits) {
		return
	}
	r.run.expired(name)
}

// Protect does a part of the work for a request. A panic in it fails the request,
// not the process; ok reports that there was none. The request's id is read when it
// is needed.
func (r *Runner) Protect(requestID *string, part func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			r.env.Telemetry.Log.WithField("request_id", *requestID).Errorf("panic: %v\n%s", p, debug.Stack())
			r.Record.Failed(apierror.New(http.StatusInternalServerError, "panic", "", "Internal error."))
		}
	}()
	part()
	return true
}

// Describe adds to an outcome what the run knows.
func (r *Runner) Describe(o *telemetry.Outcome) {
	if r.run == nil {
		return
	}

	reply := r.run.reply
	o.Answered, o.Summary, o.Fault = r.run.spend.answered, reply.Summary(), reply.Fault()
	o.ToolCalls, o.ToolFails = reply.ToolCalls()

	if prices := &r.run.o.Target.Prices; o.Answered && prices.Known() {
		o.Priced, o.Cost = true, prices.Cost(r.run.usedSoFar())
	}
	if decoder := r.run.call.decoder; decoder != nil && o.Answered {
		o.Advice = decoder.Advice()
	}
}
