package responses

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// toolEcho is what a response object repeats of the tools of its request.
type toolEcho struct {
	list     []byte // the elements of an array
	choice   []byte // JSON
	parallel bool
}

// newToolEcho has the defaults, for a request that has no tools.
func newToolEcho() toolEcho { return toolEcho{choice: []byte(`"auto"`), parallel: true} }

// repeat adds a tool to those that the response repeats: every tool of its request as
// it was sent but for secrets, also those that are not offered to the model.
func (e *toolEcho) repeat(v gjson.Result) {
	if len(e.list) > 0 {
		e.list = append(e.list, ',')
	}
	e.list = item.AppendTool(e.list, v, appendFunction)
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
