package item

import (
	"encoding/base64"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// appendMCP appends the JSON of an item about an MCP server. Members that are not
// known are left out: some clients refuse nulls there.
func (o *Output) appendMCP(dst []byte, status string, text []byte) []byte {
	switch o.Kind {
	case MCPList:
		dst = jsontext.AppendString(append(dst, `{"type":"mcp_list_tools","id":`...), o.ID)
		dst = jsontext.AppendString(append(dst, `,"server_label":`...), o.Server)
		dst = o.appendTools(append(dst, `,"tools":[`...))
		dst = append(dst, ']')
	case MCPApproval:
		dst = jsontext.AppendString(append(dst, `{"type":"mcp_approval_request","id":`...), o.ID)
		dst = o.appendCalledTool(dst, text)
	default:
		dst = o.appendCalledTool(o.appendHead(dst, "mcp_call", status), text)
		if o.Approval != "" {
			dst = jsontext.AppendString(append(dst, `,"approval_request_id":`...), o.Approval)
		}
	}

	switch {
	case o.Result == nil:
	case o.Result.Error != "" && o.Kind == MCPCall:
		dst = append(dst, `,"error":{"type":"mcp_tool_execution_error","content":[{"type":"text","text":`...)
		dst = append(jsontext.AppendString(dst, o.Result.Error), `}]}`...)
	case o.Result.Error != "" && o.Kind == MCPList:
		dst = jsontext.AppendString(append(dst, `,"error":`...), o.Result.Error)
	case o.Kind == MCPCall:
		dst = jsontext.AppendString(append(dst, `,"output":`...), o.Result.Text)
	}

	return append(dst, '}')
}

func (o *Output) appendCalledTool(dst, text []byte) []byte {
	dst = jsontext.AppendString(append(dst, `,"server_label":`...), o.Call.Namespace)
	dst = jsontext.AppendString(append(dst, `,"name":`...), o.Call.Name)
	return append(append(append(dst, `,"arguments":"`...), text...), '"')
}

func (o *Output) appendTools(dst []byte) []byte {
	for i := range o.Tools {
		if i > 0 {
			dst = append(dst, ',')
		}

		t := &o.Tools[i]
		dst = jsontext.AppendString(append(dst, `{"name":`...), t.Name)
		dst = jsontext.AppendString(append(dst, `,"description":`...), t.Description)
		dst = append(dst, `,"input_schema":`...)
		// SDKs' types require a schema, and a server may list a tool without one.
		if len(t.InputSchema) == 0 {
			dst = append(dst, `{"type":"object","properties":{}}`...)
		} else {
			dst = jsontext.AppendCompact(dst, string(t.InputSchema))
		}

		if t.Annotations != nil {
			dst = jsontext.AppendCompact(append(dst, `,"annotations":`...), string(t.Annotations))
		}

		dst = append(dst, '}')
	}

	return dst
}

// appendBuiltin appends the JSON of an item about a built-in tool.
func (o *Output) appendBuiltin(dst []byte, status string, text []byte) []byte {
	dst = o.appendHead(dst, o.Kind.Names().Type, status)
	switch o.Kind {
	case WebSearch:
		return append(o.appendBrowsing(append(dst, `,"action":`...)), '}')
	case Code:
		dst = jsontext.AppendString(append(dst, `,"container_id":`...), o.Container)
		dst = append(append(append(dst, `,"code":"`...), text...), '"')
		return append(o.appendOutputs(append(dst, `,"outputs":`...)), '}')
	case FileSearch:
		// The results are for the model: servers return texts, not the files that this member lists.
		return append(o.appendQueries(append(dst, `,"queries":[`...)), `],"results":null}`...)
	}

	// What the model has made of the request.
	if prompt := o.Arguments.Get("prompt"); prompt.Type == gjson.String {
		dst = jsontext.AppendString(append(dst, `,"revised_prompt":`...), prompt.Str)
	}

	return append(o.appendImage(append(dst, `,"result":`...)), '}')
}

// appendBrowsing appends what the browser was asked to do.
func (o *Output) appendBrowsing(dst []byte) []byte {
	member := func(dst []byte, name, value string) []byte {
		return jsontext.AppendString(append(append(append(dst, `,"`...), name...), `":`...), value)
	}

	switch o.Call.Name {
	case "open":
		dst = append(dst, `{"type":"open_page"`...)
		if o.Address != "" {
			dst = member(dst, "url", o.Address)
		}
		return append(dst, '}')
	case "find":
		dst = member(append(dst, `{"type":"find_in_page"`...), "pattern", o.Arguments.Get("pattern").String())
		return append(member(dst, "url", o.Address), '}')
	}

	query := o.Arguments.Get("query").String()
	dst = member(append(dst, `{"type":"search"`...), "query", query)
	return append(jsontext.AppendString(append(dst, `,"queries":[`...), query), `]}`...)
}

// appendOutputs appends what code has printed, if the client wants it.
func (o *Output) appendOutputs(dst []byte) []byte {
	if o.Result == nil || !o.ShowOutputs {
		return append(dst, `null`...)
	}

	text := o.Result.Text
	if o.Result.Error != "" {
		text = o.Result.Error
	}

	dst = jsontext.AppendString(append(dst, `[{"type":"logs","logs":`...), text)
	dst = append(dst, '}')
	// The text has been written as logs; of the other content the API has a form for pictures only.
	for _, p := range o.Result.Content {
		if p.Type == "image" {
			dst = append(append(dst, `,{"type":"image","url":`...), imageURL(&p)...)
			dst = append(dst, '}')
		}
	}

	return append(dst, ']')
}

// imageURL is an image as a data URL, in quotes.
func imageURL(p *tools.Part) []byte {
	return jsontext.AppendString(nil, "data:"+p.MIME+";base64,"+base64.StdEncoding.EncodeToString(p.Data))
}

// appendQueries appends what files were searched for.
func (o *Output) appendQueries(dst []byte) []byte {
	queries := o.Arguments.Get("queries")
	if !queries.IsArray() {
		return jsontext.AppendString(dst, o.Arguments.Get("query").String())
	}

	first := true
	for q := range jsontext.List(queries) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = jsontext.AppendString(dst, q.String())
	}

	return dst
}

// appendImage appends the first image of the result, in base64.
func (o *Output) appendImage(dst []byte) []byte {
	if o.Result != nil {
		for _, p := range o.Result.Content {
			if p.Type == "image" {
				return jsontext.AppendString(dst, base64.StdEncoding.EncodeToString(p.Data))
			}
		}
	}
	return append(dst, `null`...)
}
