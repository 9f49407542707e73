package read

import (
	"cmp"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// readFound reads the references of a search's outcome. joins are the tools that it finds; not
// those that the model has already. The text of a result with references follows once all
// tools are known.
func (m *message) readFound(v jsontext.Field, joins *toolset.Joining, result *turn.Item) *apierror.Error {
	references := jsontext.Field{Result: v.Get("content.tool_references"), Path: v.Path + ".content.tool_references"}
	// An error has no references, and a text of its own.
	if !references.Exists() {
		result.Text = servedText(v.Get("content"))
		return nil
	}

	joins.FoundAt(v.Path)
	return references.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		if err := cmp.Or(m.d.countBlock(), v.RequireText("tool_name")); err != nil {
			return err
		}
		name := v.Get("tool_name").Str
		joins.Found(name, m.d.tools.Refers(name))
		return nil
	})
}

// isSearch reports whether a block's call is one of a search.
func isSearch(v gjson.Result) bool { return names.SearchOf(v.Get("name").Str) != "" }
