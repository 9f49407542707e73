package names_test

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/names"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// The id of a call says to clients who makes it, and is the same call when they send it back.
func Example() {
	docs := &hosted.Server{Label: "docs"}
	search := &hosted.Server{Builtin: &hosted.Builtin{Name: tools.WebSearch}}

	fmt.Println(names.Shown("call_x"), names.CallID("toolu_x"), names.CallID("call_x"))
	fmt.Println(names.ShownServed(docs, "call_x"), names.ServedID("mcptoolu_x"))
	fmt.Println(names.ShownServed(search, "call_x"), names.ServedID("srvtoolu_x"))
	fmt.Println(names.SearchOf("tool_search_tool_bm25_20251119"))
	// Output:
	// toolu_x call_x call_x
	// mcptoolu_x call_x
	// srvtoolu_x call_x
	// tool_search_tool_bm25
}
