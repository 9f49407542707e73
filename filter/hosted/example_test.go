package hosted_test

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A server lists two tools, of which the request allows one. The model calls it by the
// name that it was offered.
func Example() {
	s := hosted.Server{
		Label: "docs", MCP: &tools.Server{Label: "docs", URL: "https://docs.example/mcp"},
		Allowed: &hosted.Filter{Except: map[string]bool{"delete": true}},
	}
	s.Import([]tools.Tool{{Name: "full.search"}, {Name: "delete"}})
	fmt.Println(len(s.Offered().Tools), s.Names())
	call := s.Named(&turn.CalledTool{Namespace: "docs", Name: s.Names()[0]})
	job := s.Job(call, `{"q":"cats"}`, "")
	fmt.Println(job.Tool, job.Arguments)
	// Output:
	// 1 [full.search]
	// full.search {"q":"cats"}
}
