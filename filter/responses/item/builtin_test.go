package item

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The items of each built-in tool have a kind, with the steps of their events.
func TestBuiltinItems(t *testing.T) {
	t.Parallel()
	for _, b := range hosted.Builtins {
		kind := OfBuiltin(b)
		names := kind.Names()
		if kind == Unknown || names.Prefix == "" || names.Step == "" || kind != MCPCall && names.Doing == "" {
			t.Errorf("calls of %s are items of the type %q: add its kind with its Type, Prefix, Step and Doing to names "+
				"(filter/responses/item/kind.go), its JSON to Append and appendBuiltin (output.go, output_tools.go), and how it "+
				"begins to start (filter/responses/write/output.go)", b.Name, b.Item)
		}

		o := Output{Kind: kind, ID: "x", Call: &turn.CalledTool{ID: "c", Name: "n"}}
		text := string(o.Append(nil, StatusCompleted))
		if !gjson.Valid(text) || gjson.Get(text, "type").Str != b.Item {
			t.Errorf("a call of %s is the item %s, not of the type %s: see Append (output.go) and appendBuiltin "+
				"(output_tools.go)", b.Name, text, b.Item)
		}
	}
}
