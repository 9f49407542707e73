package write

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/request"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// list is the first stage of a preflight: the servers list their tools.
func (e *encoder) list(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	for _, s := range e.request.Preflight.Unlisted {
		e.reply.Start(&reply.Run{
			Job:    hosted.ListJob{Runner: e.request.Services.Servers, Server: s, Request: e.request.Context},
			Server: s.MCP.Label,
			// Clients of this API see nothing of the list.
			Show: func(dst []byte, result *tools.Result) []byte {
				s.Take(result)
				return dst
			},
		})
	}

	dst, jobs := e.reply.Runs(dst)
	return dst, reply.Step{Jobs: jobs, Then: e.prepare}, nil
}

// prepare is the stage that follows: the tools are offered, and the prompt is made.
func (e *encoder) prepare(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	done := func(dst []byte, result any, err error) ([]byte, *apierror.Error) {
		prepared, ok := result.(*request.Prepared)
		if !ok {
			return dst, reply.Failure(err)
		}
		e.request.Begin(prepared)
		e.begin(prepared.Turn)
		return dst, nil
	}
	return dst, reply.Step{Jobs: []reply.Job{{Do: e.request.Preflight.Prepare, Done: done}}}, nil
}
