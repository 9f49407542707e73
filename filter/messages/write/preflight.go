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
	unlisted := e.request.Preflight.Unlisted
	jobs := make([]reply.Job, len(unlisted))
	for i, s := range unlisted {
		list := hosted.ListJob{Runner: e.request.Services.Servers, Server: s, Request: e.request.Context}
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
