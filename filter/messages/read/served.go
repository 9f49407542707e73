package read

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

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
	place, ok := m.served[id]
	if !ok {
		names.IgnoreKind(&m.d.ignored, "messages.content.", kind)
		return nil
	}

	delete(m.served, id)
	call, result := &m.items[place.at-1], &m.items[place.at]
	result.CallID, result.Path = call.CallID, v.Path
	if place.joins != nil {
		return m.readFound(v, place.joins, result)
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
	m.d.noteID(names.ServedID(id), id)
	m.add(servedCall(names.ServedID(id), name, v), turn.Item{Kind: turn.Result, Hosted: true, Path: v.Path})
	result := place{at: len(m.items) - 1}
	// What the search has found follows its result, as in the reply that had it.
	if isSearch(v.Result) {
		result.joins = m.join(nil)
	}
	if m.served == nil {
		m.served = map[string]place{}
	}
	m.served[id] = result
	return nil
}

// codeName is the name under which clients know the code interpreter.
const codeName = "code_execution"

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
func (d *decoder) readSearched(v jsontext.Field) (text string, page *names.Page, err *apierror.Error) {
	content := v.Get("content")
	sealed := content.Get("0.encrypted_content")
	if sealed.Type != gjson.String || sealed.Str == "" {
		return servedText(content), nil, nil
	}

	opened, openErr := d.open(seal.Page, sealed.Str)
	switch {
	case openErr == nil && json.Unmarshal([]byte(opened), &page) == nil && page != nil:
		// The session of the browser goes on where the last result was made.
		d.tools.ContinueIn(page.Session)
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
