package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// maxParallelJobs is how many jobs of one run are executed at a time.
const maxParallelJobs = 16

// Workers counts the goroutines that outlive their runs: jobs that must be
// completed though nobody waits for them. A Workers must not be copied.
type Workers struct {
	Log     *logrus.Logger
	running sync.WaitGroup
}

// Go runs work on a goroutine of its own.
func (w *Workers) Go(work func()) { w.running.Go(work) }

// Wait returns when all work is done, or ctx ends.
func (w *Workers) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		w.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// JobDone is the result of the job at an index of those of a step, or an error
// that says why there is none.
type JobDone struct {
	Index  int
	Result any
	Err    error
}

var errPanic = errors.New("a job has panicked")

// do executes a job. A panic in it fails the job, not the process.
func (w *Workers) do(ctx context.Context, job api.Job) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.Log.Errorf("panic: %v\n%s", p, debug.Stack())
			result, err = nil, fmt.Errorf("%w: %T", errPanic, job)
		}
	}()
	return job.Do(ctx)
}

// jobs executes the jobs of one run, which waits for none of them: each is a goroutine, its
// result an event. So a store that hangs holds up no stream; store.WithBreaker says why a job
// of it ends at all.
type jobs struct {
	workers *Workers
	ctx     context.Context //nolint:containedctx // of the run, of the same life
	stopped bool

	// Of the jobs started last:
	group context.Context //nolint:containedctx // of the same life; nil: there were none
	drop  context.CancelFunc
	done  chan JobDone // takes their results
}

func newJobs(ctx context.Context, workers *Workers) jobs { return jobs{workers: workers, ctx: ctx} }

// stop ends the jobs, and those that are still to be started.
func (j *jobs) stop() {
	j.stopped = true
	if j.drop != nil {
		j.drop()
	}
}

// start executes jobs side by side. Jobs started before end, and their results are
// dropped. Their spans belong to that of rec.
func (j *jobs) start(rec *telemetry.Record, list []api.Job) {
	if j.drop != nil {
		j.drop()
	}
	j.group, j.drop = context.WithCancel(rec.Context(j.ctx))
	j.done = make(chan JobDone)
	if j.stopped {
		j.drop()
	}

	// The first jobs have their places at once. They are done even if the run's context has
	// ended, which the run may not know yet: they may be such that must be completed.
	ctx, done := j.group, j.done
	places := make(chan struct{}, maxParallelJobs)
	for i, job := range list {
		waits := i >= maxParallelJobs
		if !waits {
			places <- struct{}{}
		}

		j.workers.Go(func() {
			if waits && !place(ctx, places) {
				return
			}
			result, err := j.workers.do(ctx, job)
			<-places
			select {
			case done <- JobDone{i, result, err}:
			case <-ctx.Done():
			}
		})
	}
}

// beside executes a job beside those of the same kind that may still be executed: none of
// them ends the others. Its result arrives where theirs do.
func (j *jobs) beside(rec *telemetry.Record, job api.Job) {
	if j.group == nil || j.stopped {
		j.start(rec, []api.Job{job})
		return
	}
	ctx, done := j.group, j.done
	j.workers.Go(func() {
		result, err := j.workers.do(ctx, job)
		select {
		case done <- JobDone{0, result, err}:
		case <-ctx.Done():
		}
	})
}

// place waits for a place, and reports whether the run still wants the job.
func place(ctx context.Context, places chan<- struct{}) bool {
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
	}
	// There may have been a place all the same.
	return ctx.Err() == nil
}

// detach executes jobs whose results nobody takes; errors are logged.
func (j *jobs) detach(rec *telemetry.Record, list []api.Job) {
	// The exchange's record ends before them.
	ctx := record.With(context.WithoutCancel(rec.Context(j.ctx)), nil)
	for _, job := range list {
		j.workers.Go(func() {
			if _, err := j.workers.do(ctx, job); err != nil {
				j.workers.Log.WithError(err).Warn("What is left to do after a reply has failed")
			}
		})
	}
}
