package write

import (
	"context"
	"errors"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// toolRuns are the accesses of a reply to tool servers, and what clients see of them.
type toolRuns struct {
	output  *output
	servers hosted.Runner
	pending []*toolRun // whose outcome clients do not see yet
	usage   hosted.Usage
	made    int // calls that were made
	failed  int // accesses that failed
	fault   error
}

// toolRun is one access to a tool server, a call or a list of the tools, and the item
// that clients see of it.
type toolRun struct {
	item       *outputItem
	job        tools.Job
	known      *tools.Result     // the result of a call that is not made; nil: it is made
	completion *recordCompletion // of the approval record; nil: there is none
	result     *tools.Result     // nil until the run is done
}

// toolJob is the job of a tool run. Its result is a tools.Result.
type toolJob struct {
	servers    hosted.Runner
	job        tools.Job
	lists      *hosted.Server // that lists its tools; nil: it is a call
	request    *turn.RequestContext
	known      *tools.Result
	completion *recordCompletion
}

// Do implements api.Job. A call that is cancelled before it has begun is not made. The
// record of a call that was cancelled stays incomplete, because its outcome is not known.
func (j toolJob) Do(ctx context.Context) (any, error) {
	var result tools.Result
	switch {
	case j.known != nil:
		result = *j.known
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case j.lists != nil:
		result = j.lists.List(ctx, j.servers, j.request)
	default:
		if result = j.servers.Do(ctx, j.job); ctx.Err() != nil && !result.Answered {
			return result, nil
		}
	}
	if j.completion != nil {
		if err := j.completion.store(ctx, &result); err != nil {
			result.Cause = errors.Join(result.Cause, err)
		}
	}
	return result, nil
}

// jobs begins the pending runs.
func (t *toolRuns) jobs() []stepJob {
	var jobs []stepJob
	for _, run := range t.pending {
		if run.known != nil && run.completion == nil {
			run.result = run.known
			continue
		}
		if run.known == nil && run.job.Tool != "" {
			t.made++
		}
		job := toolJob{servers: t.servers, job: run.job, known: run.known, completion: run.completion}
		if run.item.Kind == item.MCPList {
			job.lists, job.request = &run.item.hosted.Server, t.output.request.Context
		}
		jobs = append(jobs, stepJob{job, func(result any, err error) { t.done(run, result, err) }})
	}
	t.complete()
	return jobs
}

// done takes what came of a run.
func (t *toolRuns) done(run *toolRun, result any, err error) {
	r, ok := result.(tools.Result)
	if !ok {
		r = tools.Result{Error: "The tool could not be called.", Cause: err}
	}
	run.result = &r
	if r.Error != "" && run.known == nil {
		t.failed++
	}
	t.usage.Take(&r)
	if r.Cause != nil {
		t.note(run.job.Server, r.Cause)
	}
	t.complete()
}

func (t *toolRuns) note(s *tools.Server, fault error) {
	t.fault = errors.Join(t.fault, fmt.Errorf("%s: %w", s.Label, fault))
}

// complete completes the items of the runs that are done, up to the first that is not.
func (t *toolRuns) complete() {
	for len(t.pending) > 0 && t.pending[0].result != nil {
		run := t.pending[0]
		t.pending[0], t.pending = nil, t.pending[1:]
		t.completeItem(run.item, run.result)
	}
}

func (t *toolRuns) completeItem(it *outputItem, result *tools.Result) {
	it.Result = result
	status := it.EndStatus()
	if it.Kind == item.MCPList {
		t.completeList(it, status)
		if it.hosted.Builtin != nil { // the client has not asked for the server
			return
		}
	}
	if it.hosted.Builtin != nil {
		t.output.noteBuiltin(it)
	}
	t.output.add(it, status)
	if status == item.StatusCompleted || it.Kind == item.MCPCall || it.Kind == item.MCPList { // clients know no failure of the others
		t.output.events.itemStep(it, "."+status)
	}
	t.output.events.itemDone(it, t.output.made[it.slot].JSON)
}

// completeList takes the tools that a server has listed.
func (t *toolRuns) completeList(it *outputItem, status string) {
	if status != item.StatusCompleted {
		it.hosted.Failure = it.Result.Error
		return
	}
	it.hosted.Import(it.Result.Tools)
	it.Tools = it.hosted.Listed
}

// call takes a call that the model has completed.
func (t *toolRuns) call(it *outputItem) {
	if it.hosted.Builtin != nil {
		t.start(&toolRun{item: it, job: t.output.beginBuiltin(it)})
		return
	}
	t.output.events.text(it)
	t.start(&toolRun{item: it, job: it.hosted.Job(it.Call, it.PlainText(), "")})
}

// start adds a run to those of the next step, in which no call is made that breaks a
// limit.
func (t *toolRuns) start(run *toolRun) {
	if refused := t.usage.Refuse(run.item.Call, t.output.request.Tools.MaxCalls, len(t.pending)); run.known == nil {
		run.known = refused
	}
	t.pending = append(t.pending, run)
}

// cut adds the items of the pending runs as they are: the reply has ended before them.
func (t *toolRuns) cut() {
	for _, run := range t.pending {
		it := run.item
		if it.Kind == item.MCPList {
			it.Result = &tools.Result{Error: "The response has ended before the tools were listed."}
		}
		if it.Kind != item.MCPList || it.hosted.Builtin == nil {
			t.output.add(it, it.Kind.CutStatus())
		}
	}
	t.pending = nil
}
