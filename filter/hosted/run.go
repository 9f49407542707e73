package hosted

import (
	"context"
	"sync"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The bounds of what the tools of one reply return, in bytes, and of the calls of one
// of its turns, whose results come together, and of its searches for tools. Beyond them no
// more calls are made.
const (
	MaxResultBytes = 16 << 20
	MaxTurnCalls   = 64
)

// Usage is what the hosted tools of a reply have come to.
type Usage struct {
	Calls int // made or not
	Bytes int // of what tools have returned
}

// Take counts a result.
func (u *Usage) Take(r *tools.Result) {
	u.Bytes += len(r.Text)
	for _, part := range r.Content { // some replies have what is no text
		u.Bytes += len(part.Data)
	}
}

// Refuse counts a call, and returns the result of one that is not made; nil: it is.
// most is how many calls the request allows, 0: any number; waiting is how many calls of
// the turn wait already.
func (u *Usage) Refuse(most, waiting int) *tools.Result {
	u.Calls++
	if most > 0 && u.Calls > most || u.Bytes > MaxResultBytes || waiting >= MaxTurnCalls {
		return &tools.Result{Error: "The limit of tool calls is reached. Answer with what you have."}
	}
	return nil
}

// Runner runs jobs at tool servers: a *tools.Client.
type Runner interface {
	Do(ctx context.Context, j tools.Job) tools.Result
}

// Job is a job of a reply at a tool server. Its result is a tools.Result.
type Job struct {
	Runner Runner
	Job    tools.Job
}

// Do runs the job. A call that is cancelled before it has begun is not made.
func (j Job) Do(ctx context.Context) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return j.Runner.Do(ctx, j.Job), nil
}

// ListJob is a job of a reply in which a server lists its tools. Its result is a
// tools.Result, as [Server.List] returns it.
type ListJob struct {
	Runner  Runner
	Server  *Server
	Request *turn.RequestContext
}

// Do runs the job.
func (j ListJob) Do(ctx context.Context) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return j.Server.List(ctx, j.Runner, j.Request), nil
}

// List lets servers list their tools for a prompt that no model gets. A server that
// cannot list its tools in time offers none.
func List(ctx context.Context, runner Runner, servers []*Server, rc *turn.RequestContext) {
	var wait sync.WaitGroup
	results := make([]tools.Result, len(servers))
	for i, s := range servers {
		wait.Go(func() { results[i] = s.List(ctx, runner, rc) })
	}
	// Only here, and in order, are the servers changed: lists may come in any order.
	wait.Wait()
	for i, s := range servers {
		s.Take(&results[i])
	}
}
