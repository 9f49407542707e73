package toolset

import (
	"strconv"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// However often tool_choice names a server, its tools are allowed once.
func TestAllowedServersAreASet(t *testing.T) {
	t.Parallel()
	r := &Reader{input: &turn.Input{}, offer: hosted.Offer{Servers: []*hosted.Server{{Label: "docs", MCP: &tools.Server{}}}}}
	r.offer.Servers[0].Import([]tools.Tool{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	for i := range 100 {
		r.choices = append(r.choices, hostedChoice{at: strconv.Itoa(i), label: "docs"})
	}
	if err := r.Offer(); err != nil || len(r.input.Choice.Allowed) != 3 {
		t.Errorf("%d tools are allowed, %v", len(r.input.Choice.Allowed), err)
	}
}
