package messages

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// preflight is what a reply does before its first model call: servers list their tools,
// and then the prompt is made.
type preflight struct {
	decoder  *decoder
	unlisted []*hosted.Server
	listed   bool
	failure  *apierror.Error
}

// unlisted returns the servers that have to list their tools.
func (d *decoder) unlisted() []*hosted.Server {
	if d.input.NoCalls {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.served.servers), func(s *hosted.Server) bool { return s.Known })
}

// step begins the next step of the preflight.
func (p *preflight) step(r *Reply) (api.Step, *apierror.Error) {
	switch {
	case p.failure != nil:
		return api.Step{}, p.failure
	case !p.listed:
		p.listed = true
		return r.runJobs(p.listJobs(r)), nil
	case r.request.turn == nil:
		if err := p.decoder.offerTools(); err != nil {
			return api.Step{}, err
		}
		return r.runJobs([]stepJob{{preparation{p.decoder}, func(result any, err error) { p.prepared(r, result, err) }}}), nil
	}
	r.request.preflight = nil
	r.beginTurn(r.request.turn)
	r.phase = calling
	return api.Step{Call: r.request.turn.Engine}, nil
}

// listJobs are the jobs that list the tools of the servers.
func (p *preflight) listJobs(r *Reply) []stepJob {
	jobs := make([]stepJob, len(p.unlisted))
	for i, s := range p.unlisted {
		jobs[i] = stepJob{hosted.ListJob{Runner: r.request.api.runner(), Server: s, Request: p.decoder.rc}, func(result any, err error) {
			listed, ok := result.(tools.Result)
			if !ok {
				listed = tools.Result{Error: "The server could not be asked.", Cause: err}
			}
			if s.Failure = listed.Error; s.Failure == "" {
				s.Import(listed.Tools)
			}
			r.note(s.MCP, listed.Cause)
		}}
	}
	return jobs
}

// note notes a fault of a server.
func (r *Reply) note(s *tools.Server, fault error) {
	if fault != nil {
		r.fault = errors.Join(r.fault, fmt.Errorf("%s: %w", s.Label, fault))
	}
}

// preparation is the job that makes the prompt.
type preparation struct{ decoder *decoder }

// Do implements api.Job. Its result is a *turn.Turn.
func (p preparation) Do(ctx context.Context) (any, error) {
	t, err := p.decoder.rc.Prepare(ctx, &p.decoder.input)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// prepared takes the prompt.
func (p *preflight) prepared(r *Reply, result any, err error) {
	if t, ok := result.(*turn.Turn); ok {
		r.request.turn = t
		return
	}
	if !errors.As(err, &p.failure) {
		p.failure = apierror.New(500, "", "", "Internal error.").With(err)
	}
}
