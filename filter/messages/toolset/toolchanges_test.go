package toolset

import (
	"context"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// A change pays for the lists that its name is looked for in: thousands of changes of a few bytes go
// through what a server has listed each time.
func TestToolChangesPay(t *testing.T) {
	t.Parallel()
	const steps = 1000
	served := []*hosted.Server{{Label: "docs", Known: true, Tools: make([]tools.Tool, comparedInStep*steps/10)}}
	r := &Reader{rc: &turn.RequestContext{Work: work.New(context.Background(), steps)}}
	r.offer.Servers = served
	a := r.newAvailability()

	for made := 0; ; made++ {
		change := &Change{server: "docs", name: "nope", made: true}
		if _, err := a.apply(&Joining{changes: []*Change{change}}); err != nil {
			if made < 5 || made > 10 {
				t.Errorf("%d changes are made before the work is too much: %v", made, err)
			}
			return
		}
		if made > 100 {
			t.Fatal("changes cost nothing")
		}
	}
}
