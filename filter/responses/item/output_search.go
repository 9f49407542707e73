package item

import (
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
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

	return append(append(append(dst, `,"arguments":`...), hosted.SearchArguments(o.PlainText())...), '}')
}
