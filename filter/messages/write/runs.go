package write

import (
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// hostedCall is one call of a hosted tool.
type hostedCall struct {
	server *hosted.Server
	call   *turn.CalledTool // by the server's name of the tool
	code   string           // why the call is not made, for web_search; "": it is
}

// searchTool is the tool of the browser that searches.
const searchTool = "search"

// Maker says who makes a call. A call of a tool that the request does not have is for
// the client if the model has no turn to correct it.
func (e *encoder) Maker(call *turn.CalledTool, last bool) reply.Maker {
	switch {
	// The client must not run it, also if the model has no turn in which it is told.
	case e.request.Tools.Withdrawn[turn.ToolName{Namespace: call.Namespace, Name: call.Name, Builtin: call.Builtin}]:
		return reply.ByNobody
	case e.request.Corrects && !last && call.Namespace == "":
		return reply.ByNobody
	case e.request.Tools.Server(call) != nil, e.request.Tools.Search.Tool(call) != nil:
		return reply.ByFilter
	}
	return reply.ByClient
}

// Corrected implements [reply.Tools].
func (e *encoder) Corrected(last bool) bool {
	return (len(e.request.Tools.Hosted) > 0 || e.request.Tools.Search != nil) && !last
}

// run returns the run of a complete call.
func (e *encoder) run(p *reply.Part, refused *tools.Result) *reply.Run {
	if search := e.request.Tools.Search.Tool(p.Call); search != nil {
		return e.runSearch(search, p, refused)
	}
	server := e.request.Tools.Server(p.Call)
	made := hostedCall{server: server, call: server.Named(p.Call)}
	if refused != nil {
		made.code = "too_many_requests"
	}

	// max_uses counts searches only: opening a page of a result is not one to the API.
	if server.Builtin != nil && made.call.Name == searchTool && refused == nil {
		if most := e.request.Tools.MaxSearches; most > 0 && e.searches >= most {
			made.code = "max_uses_exceeded"
			refused = &tools.Result{Error: "The limit of searches is reached. Answer with what you have."}
		} else {
			e.searches++
		}
	}

	r := &reply.Run{
		Call: made.call, Known: refused, Server: server.MCP.Label,
		Show: func(dst []byte, result *tools.Result) []byte {
			return e.appendBlock(dst, e.appendResult(nil, &made, result))
		},
	}
	// Without a job the machine takes the known result at once.
	if refused == nil {
		job := server.Job(made.call, string(p.Whole), e.request.Tools.Container)
		r.Job = hosted.Job{Runner: e.request.Services.Servers, Job: job}
	}
	return r
}
