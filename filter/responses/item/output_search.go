package item

import (
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// appendToolSearch appends the JSON of a search for tools, or of its output. Of a search
// that is run here neither has a call_id.
func (o *Output) appendToolSearch(dst []byte, status string) []byte {
	if o.Kind == ToolsFound {
		dst = o.appendHead(dst, "tool_search_output", status)
		dst = append(dst, `,"execution":"server","call_id":null,"tools":[`...)
		return append(append(dst, o.Found...), `]}`...)
	}

	dst = o.appendHead(dst, "tool_search_call", status)
	if o.Client {
		dst = jsontext.AppendString(append(dst, `,"execution":"client","call_id":`...), o.Call.ID)
	} else {
		dst = append(dst, `,"execution":"server","call_id":null`...)
	}

	return append(append(append(dst, `,"arguments":`...), SearchArguments(o.PlainText())...), '}')
}

// SearchArguments returns the arguments of a search for tools as a JSON object. What
// is none is the query.
func SearchArguments(text string) string {
	if jsontext.IsObject(text) {
		return string(jsontext.AppendCompact(nil, text))
	}
	return string(append(jsontext.AppendString([]byte(`{"query":`), text), '}'))
}
