package filter

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// maxParallelJobs is how many jobs of one run are done at a time.
const maxParallelJobs = 16

// jobs is what tools do for a run. The zero value does nothing.
type jobs struct {
	tools *tools.Client
	ctx   context.Context //nolint:containedctx // of the run
	end   context.CancelFunc
	done  chan jobDone
}

// jobDone is the end of the job at an index of those of a step.
type jobDone struct {
	index  int
	result tools.Result
}

// newJobs has client do the jobs, until ctx ends or they are stopped.
func newJobs(ctx context.Context, client *tools.Client) jobs {
	ctx, end := context.WithCancel(ctx)
	return jobs{tools: client, ctx: ctx, end: end, done: make(chan jobDone)}
}

// stop gives up the jobs that are not done.
func (j *jobs) stop() {
	if j.end != nil {
		j.end()
	}
}

// start does jobs side by side.
func (j *jobs) start(list []tools.Job) {
	places := make(chan struct{}, maxParallelJobs)
	for i, job := range list {
		go func() {
			select {
			case places <- struct{}{}:
			case <-j.ctx.Done():
			}
			if j.ctx.Err() != nil { // there may have been a place all the same
				return
			}
			result := j.tools.Do(j.ctx, job)
			<-places
			select {
			case j.done <- jobDone{i, result}:
			case <-j.ctx.Done():
			}
		}()
	}
}

// errands is all that a run has others do.
type errands struct {
	remote *loopbackCall
	jobs   *jobs
}

func (e errands) call(r *engine.Request, d detour) *apierror.Error { return e.remote.call(r, d) }

func (e errands) work(list []tools.Job) {
	e.remote.hangUp()
	e.jobs.start(list)
}
