package write

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
)

// runSearch runs a search that the model has called, and adds its output behind it. The
// next model call has the tools that are found.
func (r *Reply) runSearch(it *outputItem) {
	r.output.addWhole(it)
	called := &r.request.Tools
	if called.Search.Client {
		r.steps.stopFor(clientActs)
		return
	}

	// A turn can have thousands of searches. Those beyond the bound find nothing, as the
	// model sees of them: the text of a search follows from its output alone, in later
	// requests too.
	var found []*toolset.Deferred
	if r.steps.searches < hosted.MaxTurnCalls {
		found = called.Find(item.SearchArguments(it.PlainText()))
		called.Load(found)
	}

	r.output.addWhole(&outputItem{Output: item.Output{
		Kind: item.ToolsFound, ID: "tso_" + strings.TrimPrefix(it.ID, it.Kind.Names().Prefix), Found: toolset.AppendFound(nil, found),
	}})
	r.steps.searches++
}
