package write

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// appendCallHead appends the block of a call up to the value of its input. s is the
// server of its tool; nil: the tool is the client's, or a search of the filter's.
func appendCallHead(dst []byte, maker reply.Maker, s *hosted.Server, call *turn.CalledTool) []byte {
	kind, id, name := "mcp_tool_use", "", call.Name
	switch {
	case s == nil && maker == reply.ByFilter:
		kind, id = "server_tool_use", names.ShownSearch(call.ID)
	case s == nil:
		kind, id = "tool_use", names.Shown(call.ID)
	case s.Builtin != nil:
		kind, id, name = "server_tool_use", names.ShownServed(s, call.ID), s.Builtin.Block
	default:
		id = names.ShownServed(s, call.ID)
	}

	dst = append(append(append(dst, `{"type":"`...), kind...), `","id":`...)
	dst = jsontext.AppendString(append(jsontext.AppendString(dst, id), `,"name":`...), name)
	switch {
	case kind == "mcp_tool_use":
		dst = jsontext.AppendString(append(dst, `,"server_name":`...), s.Label)
	// The client's tools in other namespaces are members of its toolsets. An unknown tool has none.
	case kind == "tool_use" && call.Namespace != turn.FunctionsNamespace && call.Namespace != "":
		dst = jsontext.AppendString(append(dst, `,"toolset_name":`...), call.Namespace)
	}
	return append(dst, `,"input":`...)
}

// appendResult appends the block of a result.
func (e *encoder) appendResult(dst []byte, made *hostedCall, result *tools.Result) []byte {
	s := made.server
	kind := "mcp_tool_result"
	if s.Builtin != nil {
		kind = s.Builtin.Block + "_tool_result"
	}
	dst = jsontext.AppendString(append(dst, `{"type":`...), kind)
	dst = jsontext.AppendString(append(dst, `,"tool_use_id":`...), names.ShownServed(s, made.call.ID))

	switch {
	case s.Builtin == nil:
		return appendMCPResult(dst, result)
	case s.Builtin.Name == tools.CodeInterpreter && (result.Error == "" || result.Answered):
		return appendCodeResult(append(dst, `,"content":`...), result)
	case result.Error != "":
		return appendFailure(append(dst, `,"content":`...), kind, made.code, result)
	}
	return e.appendSearchResult(append(dst, `,"content":`...), made, result)
}

// appendMCPResult appends the result of a tool of an MCP server, and the end of its block:
// what the model sees.
func appendMCPResult(dst []byte, result *tools.Result) []byte {
	dst = strconv.AppendBool(append(dst, `,"is_error":`...), result.Error != "")
	dst = append(dst, `,"content":[`...)
	if text := cmp.Or(result.Error, result.Text); text != "" {
		dst = append(jsontext.AppendString(append(dst, `{"type":"text","text":`...), text), '}')
	}
	return append(dst, "]}"...)
}

// appendCodeResult appends the result of code that has run, and the end of its block.
func appendCodeResult(dst []byte, result *tools.Result) []byte {
	code := 0
	if result.Error != "" {
		code = 1
	}
	dst = jsontext.AppendString(append(dst, `{"type":"code_execution_result","stdout":`...), result.Text)
	dst = jsontext.AppendString(append(dst, `,"stderr":`...), result.Error)
	return append(appendMember(dst, `,"return_code":`, code), `,"content":[]}}`...)
}

// appendFailure appends the error of a built-in tool that has not run, and the end of
// its block. The member error_message is not Anthropic's: it has what the model sees.
func appendFailure(dst []byte, kind, code string, result *tools.Result) []byte {
	dst = jsontext.AppendString(append(dst, `{"type":`...), kind+"_error")
	// The SDKs' types require one of Anthropic's codes.
	dst = jsontext.AppendString(append(dst, `,"error_code":`...), cmp.Or(code, "unavailable"))
	return append(jsontext.AppendString(append(dst, `,"error_message":`...), result.Error), "}}"...)
}

// appendMember appends the beginning of a member, and its number.
func appendMember(dst []byte, begin string, n int) []byte {
	return strconv.AppendInt(append(dst, begin...), int64(n), 10)
}

// appendSearchResult appends the page that the browser shows, and the end of its block.
func (e *encoder) appendSearchResult(dst []byte, made *hostedCall, result *tools.Result) []byte {
	_, page, _ := hosted.ReadPage(result.Text, result.Structured)
	text, err := json.Marshal(names.Page{Tool: made.call.Name, Session: e.request.Tools.Container, Text: result.Text})
	e.reply.Note(err)

	dst = jsontext.AppendString(append(dst, `[{"type":"web_search_result","url":`...), page.URL)
	dst = jsontext.AppendString(append(dst, `,"title":`...), page.Title)
	dst = jsontext.AppendString(append(dst, `,"encrypted_content":`...), e.seal(seal.Page, text))
	return append(dst, `,"page_age":null}]}`...)
}

// appendContainer appends the container in which the request's code runs, where there
// is one.
func (e *encoder) appendContainer(dst []byte) []byte {
	r := e.request
	if r.Tools.Hosted[hosted.Space{Name: hosted.NamespaceOf(tools.CodeInterpreter), System: true}] == nil {
		return dst
	}

	expires := r.Context.Now().Add(r.Services.SessionTimeout).UTC()
	dst = jsontext.AppendString(append(dst, `,"container":{"id":`...), r.Tools.Container)
	return append(jsontext.AppendString(append(dst, `,"expires_at":`...), expires.Format(time.RFC3339)), '}')
}
