package messages

import (
	"context"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// preflight is what a reply does before its first model call: servers list their tools,
// and then the prompt is made. It has a stage for each.
type preflight struct {
	decoder  *decoder
	unlisted []*hosted.Server
}

// unlisted returns the servers that have to list their tools.
func (d *decoder) unlisted() []*hosted.Server {
	if d.input.NoCalls {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.served.servers), func(s *hosted.Server) bool { return s.Known })
}

// list is the stage in which the servers list their tools.
func (p *preflight) list(e *encoder) reply.Step {
	jobs := make([]reply.Job, len(p.unlisted))
	for i, s := range p.unlisted {
		list := hosted.ListJob{Runner: e.request.api.runner(), Server: s, Request: p.decoder.rc}
		jobs[i] = reply.Job{Do: list, Done: func(dst []byte, result any, err error) ([]byte, *apierror.Error) {
			// A job that was cancelled or has panicked has no result; err says why.
			listed, ok := result.(tools.Result)
			if !ok {
				listed = tools.Result{Error: "The server could not be asked.", Cause: err}
			}
			if s.Failure = listed.Error; s.Failure == "" {
				s.Import(listed.Tools)
			}
			e.reply.NoteServer(s.MCP.Label, listed.Cause)
			return dst, nil
		}}
	}

	return reply.Step{Jobs: jobs, Then: func(dst []byte) ([]byte, reply.Step, *apierror.Error) {
		step, err := p.prepare(e)
		return dst, step, err
	}}
}

// prepare is the stage in which the prompt is made.
func (p *preflight) prepare(e *encoder) (reply.Step, *apierror.Error) {
	if err := p.decoder.offerTools(); err != nil {
		return reply.Step{}, err
	}
	p.decoder.settleTools(e.request)

	done := func(dst []byte, result any, err error) ([]byte, *apierror.Error) {
		t, ok := result.(*turn.Turn)
		if !ok {
			return dst, reply.Failure(err)
		}
		// From here on the request is one whose first model call is known.
		e.request.turn, e.request.preflight = t, nil
		e.begin(t)
		return dst, nil
	}
	return reply.Step{Jobs: []reply.Job{{Do: preparation{p.decoder}, Done: done}}}, nil
}

// preparation is the job that makes the prompt.
type preparation struct{ decoder *decoder }

// Do implements api.Job. Its result is a *turn.Turn.
func (p preparation) Do(ctx context.Context) (any, error) {
	t, err := p.decoder.prepareTurn(ctx)
	if err != nil {
		return nil, err
	}
	return t, nil
}
