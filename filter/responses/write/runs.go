package write

import (
	"context"
	"errors"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// Maker says who makes a call.
func (e *encoder) Maker(call *turn.CalledTool, _ bool) reply.Maker {
	return e.output.resolve(call).maker
}

// Corrected implements [reply.Tools]. A model that is offered no tool is told so, as one
// that calls a tool which does not exist.
func (e *encoder) Corrected(bool) bool { return e.mode == api.Loop }

// search runs a search for tools that the model has called, and adds its output after it.
// The next model call has the tools that are found.
func (e *encoder) search(it *outputItem) {
	e.output.addWhole(it)
	if it.Client {
		return
	}

	// A turn can have thousands of searches. Those beyond the bound find nothing, as the
	// model sees of them: the text of a search follows from its output alone, in later
	// requests too.
	var found []hosted.Deferred
	if e.searches < hosted.MaxTurnCalls {
		search := e.request.Tools.Search
		// The output has no place for the reason why nothing was found.
		found, _ = search.Find(search.Tool(it.Call), it.PlainText())
	}

	e.output.addWhole(&outputItem{Output: item.Output{
		Kind: item.ToolsFound, ID: "tso_" + strings.TrimPrefix(it.ID, it.Kind.Names().Prefix),
		Found: toolset.AppendFound(nil, found),
	}})

	e.searches++
}

// hostedCall is a call that the filter makes, and the item that clients see of it.
type hostedCall struct {
	item *outputItem
	job  tools.Job
}

// newCall takes a call that the model has completed.
func (o *output) newCall(it *outputItem) *hostedCall {
	if it.hosted.Builtin != nil {
		return &hostedCall{it, o.beginBuiltin(it)}
	}
	o.events.text(it)
	return &hostedCall{it, it.hosted.Job(it.Call, it.PlainText(), "")}
}

// run returns the run of the call that has been completed.
func (e *encoder) run(_ *reply.Part, refused *tools.Result) *reply.Run {
	call := e.call
	e.call = nil
	r := e.newRun(call.item, call.job.Server)
	// A call that breaks a bound is shown as one that failed: the model is told why.
	r.Call, r.Known = call.item.Call, refused
	if refused == nil {
		r.Job = toolJob{servers: e.request.Services.Servers, job: call.job}
	}
	return r
}

// newRun is an access to a tool server, a call or a list of its tools, with what clients
// see of its result.
func (e *encoder) newRun(it *outputItem, server *tools.Server) *reply.Run {
	return &reply.Run{
		Server: server.Label,
		Show: func(dst []byte, result *tools.Result) []byte {
			e.events.Dst = dst
			e.output.completeRun(it, result)
			return e.take()
		},
		Cut: func() { e.output.cutRun(it) },
	}
}

// completeRun completes the item of a run.
func (o *output) completeRun(it *outputItem, result *tools.Result) {
	it.Result = result
	status := it.EndStatus()
	if it.Kind == item.MCPList {
		it.hosted.Take(result)
		if status == item.StatusCompleted {
			it.Tools = it.hosted.Listed
		}
		// The client has not asked for the server.
		if it.hosted.Builtin != nil {
			return
		}
	}

	if it.hosted.Builtin != nil {
		o.noteBuiltin(it)
	}

	o.add(it, status)
	// Clients know no failure of the others.
	if status == item.StatusCompleted || it.Kind == item.MCPCall || it.Kind == item.MCPList {
		o.events.itemStep(it, "."+status)
	}

	o.events.itemDone(it, o.made[it.slot].JSON)
}

// cutRun adds the item of a run as it is: the reply has ended before the result.
func (o *output) cutRun(it *outputItem) {
	if it.Kind == item.MCPList {
		it.Result = &tools.Result{Error: "The response has ended before the tools were listed."}
	}
	if it.Kind != item.MCPList || it.hosted.Builtin == nil {
		o.add(it, it.Kind.CutStatus())
	}
}

// toolJob is the job of a call. Its result is a tools.Result.
type toolJob struct {
	servers    hosted.Runner
	job        tools.Job
	known      *tools.Result // the result of a call that is not made; nil: it is made
	completion *completion   // of the approval; nil: there is none
}

// Do implements api.Job. A call that is cancelled before it has begun is not made. The
// approval of a call that was cancelled stays incomplete, because its outcome is not known.
func (j toolJob) Do(ctx context.Context) (any, error) {
	var result tools.Result
	switch {
	case j.known != nil:
		result = *j.known
	case ctx.Err() != nil:
		return nil, ctx.Err()
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
