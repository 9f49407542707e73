package responses

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// runSearch runs a search that the model has called, and adds its output behind it. The
// next model call has the tools that are found.
func (r *Reply) runSearch(it *outputItem) {
	r.output.addWhole(it)
	called := &r.request.tools
	if called.search.client {
		r.steps.stopFor(clientActs)
		return
	}

	// A turn can have thousands of searches. Those beyond the bound find nothing, as the
	// model sees of them: the text of a search follows from its output alone, in later
	// requests too.
	var found []*deferredTool
	if r.steps.searches < hosted.MaxTurnCalls {
		found = called.find(item.SearchArguments(it.PlainText()))
		called.load(found)
	}

	r.output.addWhole(&outputItem{Output: item.Output{
		Kind: item.ToolsFound, ID: "tso_" + strings.TrimPrefix(it.ID, it.Kind.Names().Prefix), Found: appendFound(nil, found),
	}})
	r.steps.searches++
}
