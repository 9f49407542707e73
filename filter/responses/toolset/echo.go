package toolset

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// Echo is what a response object repeats of the tools of its request.
type Echo struct {
	List     []byte // the elements of an array
	Choice   []byte // JSON
	Parallel bool
}

// NewEcho has the defaults, for a request that has no tools.
func NewEcho() Echo { return Echo{Choice: []byte(`"auto"`), Parallel: true} }

// repeat adds a tool to those that the response repeats: every tool of its request as
// it was sent except secrets, also those that are not offered to the model.
func (e *Echo) repeat(v gjson.Result) {
	if len(e.List) > 0 {
		e.List = append(e.List, ',')
	}
	e.List = item.AppendTool(e.List, v, appendFunction)
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
