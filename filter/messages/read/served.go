package messages

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The prefixes of the ids of calls that the filter makes: of built-in tools, and of
// MCP servers' tools.
const (
	builtinPrefix = "srvtoolu_"
	mcpPrefix     = "mcptoolu_"
)

// servedID returns the id of a call that the filter makes, as clients know it.
func servedID(s *hosted.Server, callID string) string {
	prefix := mcpPrefix
	if s.Builtin != nil {
		prefix = builtinPrefix
	}
	return prefix + strings.TrimPrefix(callID, callPrefix)
}

// servedCallID returns the id of a call by the one that clients know.
func servedCallID(id string) string {
	for _, prefix := range []string{builtinPrefix, mcpPrefix} {
		if rest, ok := strings.CutPrefix(id, prefix); ok {
			return callPrefix + rest
		}
	}
	return callPrefix + id
}

// appendCallHead appends the block of a call up to the value of its input. s is the
// server of its tool; nil: the tool is the client's, or a search of the filter's.
func appendCallHead(dst []byte, maker reply.Maker, s *hosted.Server, call *turn.CalledTool) []byte {
	kind, id, name := "mcp_tool_use", "", call.Name
	switch {
	case s == nil && maker == reply.ByFilter:
		kind, id = "server_tool_use", searchID(call.ID)
	case s == nil:
		kind, id = "tool_use", shownID(call.ID)
	case s.Builtin != nil:
		kind, id, name = "server_tool_use", servedID(s, call.ID), shownName(s)
	default:
		id = servedID(s, call.ID)
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
		kind = shownName(s) + "_tool_result"
	}
	dst = jsontext.AppendString(append(dst, `{"type":`...), kind)
	dst = jsontext.AppendString(append(dst, `,"tool_use_id":`...), servedID(s, made.call.ID))

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

// sealedPage is what the encrypted_content of a web_search_result has: with it the model
// sees the call and its result again as they were, without a store.
type sealedPage struct {
	Tool    string `json:"tool"`
	Session string `json:"session"` // of the browser
	Text    string `json:"text"`
}

// appendSearchResult appends the page that the browser shows, and the end of its block.
func (e *encoder) appendSearchResult(dst []byte, made *hostedCall, result *tools.Result) []byte {
	_, page, _ := hosted.ReadPage(result.Text, result.Structured)
	text, err := json.Marshal(sealedPage{made.call.Name, e.request.container, result.Text})
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
	if r.hosted[hosted.Space{Name: hosted.NamespaceOf(tools.CodeInterpreter), System: true}] == nil {
		return dst
	}

	expires := r.rc.Now().Add(r.api.SessionTimeout).UTC()
	dst = jsontext.AppendString(append(dst, `,"container":{"id":`...), r.container)
	return append(jsontext.AppendString(append(dst, `,"expires_at":`...), expires.Format(time.RFC3339)), '}')
}

// isServed reports whether a block is about a tool that a server ran: its call or its
// result.
func isServed(kind string) bool {
	return isServedCall(kind) || kind != "tool_result" && strings.HasSuffix(kind, "_tool_result")
}

func isServedCall(kind string) bool { return kind == "server_tool_use" || kind == "mcp_tool_use" }

// readServed reads a block about a tool that a server ran. The model sees a call
// together with its result, or not at all: the result's item follows the call's, and
// has no call's id until it is read.
func (m *message) readServed(kind string, v jsontext.Field) *apierror.Error {
	if isServedCall(kind) {
		return m.readServedCall(v)
	}

	if err := v.RequireText("tool_use_id"); err != nil {
		return err
	}
	id := v.Get("tool_use_id").Str
	// A result whose call the client has dropped means nothing to the model.
	at, ok := m.served[id]
	if !ok {
		m.d.ignoreKind("messages.content.", kind)
		return nil
	}

	delete(m.served, id)
	call, result := &m.items[at-1], &m.items[at]
	result.CallID, result.Path = call.CallID, v.Path
	if joins := m.searches[id]; joins != nil {
		return m.readFound(v, joins, result)
	}
	text, page, err := m.d.readSearched(v)
	if err != nil {
		return err
	}
	// Only a page that was sealed here says which tool of the browser has shown it.
	if result.Text = text; page != nil {
		call.Namespace, call.Name, call.Builtin = hosted.NamespaceOf(tools.WebSearch), page.Tool, true
	}
	return nil
}

// readServedCall reads the call of a tool that a server ran, with room for its result.
func (m *message) readServedCall(v jsontext.Field) *apierror.Error {
	if err := cmp.Or(v.RequireText("id"), v.RequireText("name")); err != nil {
		return err
	}

	id, name := v.Get("id").Str, v.Get("name").Str
	m.d.noteID(servedCallID(id), id)
	m.add(servedCall(servedCallID(id), name, v), turn.Item{Kind: turn.Result, Hosted: true, Path: v.Path})
	if m.served == nil {
		m.served = map[string]int{}
	}
	m.served[id] = len(m.items) - 1

	// What the search has found follows its result, as in the reply that had it.
	if isSearch(v.Result) {
		m.items = append(m.items, m.join(nil))
		if m.searches == nil {
			m.searches = map[string]*joining{}
		}
		m.searches[id] = m.d.joining[len(m.d.joining)-1]
	}
	return nil
}

// servedCall returns the call of a block. Code is called as the model does it.
func servedCall(id, name string, v jsontext.Field) turn.Item {
	call := turn.Item{
		Kind: turn.Call, Text: "{}", CallID: id, Namespace: v.Get("server_name").Str, Name: name, Path: v.Path,
	}

	// The input of code_execution is an object, but gpt-oss was trained to write the code alone.
	input := v.Get("input")
	if code := input.Get("code"); name == codeName && code.Type == gjson.String {
		call.Namespace, call.Name, call.Builtin = hosted.NamespaceOf(tools.CodeInterpreter), "", true
		call.Text = code.Str
	} else if input.IsObject() {
		call.Text = string(jsontext.AppendCompact(nil, input.Raw))
	}
	return call
}

// dropOpen drops the calls of tools that a server ran that have no result.
func (m *message) dropOpen() {
	if len(m.served) == 0 {
		return
	}

	// A result without the id of its call has not been read; its call is before it.
	open := func(i int) bool {
		return i < len(m.items) && m.items[i].Kind == turn.Result && m.items[i].CallID == ""
	}
	kept := make([]turn.Item, 0, len(m.items))
	for i, item := range m.items {
		if !open(i) && (item.Kind != turn.Call || !open(i+1)) {
			kept = append(kept, item)
		}
	}
	m.items = kept
}

// readSearched returns what the model sees of a result. page is the result of the
// browser that was sealed here; nil: it is another result.
func (d *decoder) readSearched(v jsontext.Field) (text string, page *sealedPage, err *apierror.Error) {
	content := v.Get("content")
	sealed := content.Get("0.encrypted_content")
	if sealed.Type != gjson.String || sealed.Str == "" {
		return servedText(content), nil, nil
	}

	opened, openErr := d.open(seal.Page, sealed.Str)
	switch {
	case openErr == nil && json.Unmarshal([]byte(opened), &page) == nil && page != nil:
		// The session of the browser goes on where the last result was made.
		if !d.served.named {
			d.served.container = page.Session
		}
		return page.Text, page, nil
	case errors.Is(openErr, seal.ErrTenant):
		return "", nil, apierror.Invalid(v.Path+".content",
			"The search result was made for another tenant. Leave the block out.").With(openErr)
	}
	// A key that is gone must not end the session: titles and addresses remain.
	d.ignored.Add(v.Path + ".content.0.encrypted_content")
	return servedText(content), nil, nil
}

// servedMembers are the members of a result that the model sees, in order.
var servedMembers = []string{"title", "url", "text", "stdout", "stderr", "error_code"}

// servedText returns what the model sees of the result of a tool that a server ran:
// the texts of its objects, line by line.
func servedText(v gjson.Result) string {
	if v.Type == gjson.String {
		return v.Str
	}

	var lines jsontext.Joined
	add := func(object gjson.Result) {
		// It is the filter's own member, and has exactly what the model saw.
		if message := object.Get("error_message"); message.Type == gjson.String && message.Str != "" {
			addLines(&lines, message.Str)
			return
		}

		for _, member := range servedMembers {
			if text := object.Get(member); text.Type == gjson.String {
				addLines(&lines, text.Str)
			}
		}

		if inner := object.Get("content"); inner.Type == gjson.String {
			addLines(&lines, inner.Str)
		} else if inner.IsObject() {
			// What another server has made is not checked.
			text, _ := readDocument(jsontext.Field{Result: inner})
			addLines(&lines, text)
		}
	}

	if v.IsArray() {
		v.ForEach(func(_, object gjson.Result) bool {
			add(object)
			return true
		})
	} else {
		add(v)
	}
	return lines.String()
}
