package write

import (
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// runSearch returns the run of a search, whose result is known at once: the search takes no
// server.
func (e *encoder) runSearch(search *hosted.SearchTool, p *reply.Part, refused *tools.Result) *reply.Run {
	// Of a search that breaks a bound nothing is found. The client gets the reason.
	var found []hosted.Deferred
	code, result := "", refused
	if refused != nil {
		code = "too_many_requests"
	} else {
		var err error
		found, err = e.request.Tools.Search.Find(search, string(p.Whole))
		result = &tools.Result{Text: hosted.FoundText(hosted.Spaces(found))}
		if err != nil {
			code, result = "invalid_tool_input", &tools.Result{Error: "Nothing was searched: " + err.Error() + "."}
		}
	}

	call := p.Call
	run := &reply.Run{Call: call, Known: result, Show: func(dst []byte, result *tools.Result) []byte {
		return e.appendBlock(dst, appendFound(nil, call, found, code, result))
	}}
	if len(found) > 0 {
		run.Joins = &turn.JoinedTools{Namespaces: hosted.Spaces(found)}
	}
	return run
}

// appendFound appends the block of a search's outcome.
func appendFound(
	dst []byte, call *turn.CalledTool, found []hosted.Deferred, code string, result *tools.Result,
) []byte {
	dst = append(dst, `{"type":"tool_search_tool_result","tool_use_id":`...)
	dst = append(jsontext.AppendString(dst, names.ShownSearch(call.ID)), `,"content":`...)
	if code != "" {
		return appendFailure(dst, "tool_search_tool_result", code, result)
	}

	dst = append(dst, `{"type":"tool_search_tool_search_result","tool_references":[`...)
	for i, t := range found {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendString(append(dst, `{"type":"tool_reference","tool_name":`...), t.Shown)
		dst = append(dst, '}')
	}
	return append(dst, "]}}"...)
}
