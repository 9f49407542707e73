package responses

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// repeat adds a tool to those that the response repeats: every tool of its request as
// it was sent but for secrets, also those that are not offered to the model.
func (e *echo) repeat(v gjson.Result) {
	if len(e.tools) > 0 {
		e.tools = append(e.tools, ',')
	}
	e.tools = item.AppendTool(e.tools, v, appendFunction)
}

// appendFunction appends a function, and null for each of the members that it does not
// have and that clients require to be there.
func appendFunction(dst []byte, v gjson.Result) []byte {
	dst = jsontext.AppendCompact(dst, v.Raw)
	for _, name := range []string{"description", "parameters", "strict"} {
		if !v.Get(name).Exists() {
			dst = append(append(append(dst[:len(dst)-1], `,"`...), name...), `":null}`...)
		}
	}
	return dst
}
