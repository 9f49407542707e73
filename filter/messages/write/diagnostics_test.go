package write

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
)

// TestMissReasons requires that the causes without a name in the API are unavailable, and
// all others have one of its names.
func TestMissReasons(t *testing.T) {
	t.Parallel()
	unnamed := []string{"", "cache_salt", "system", "date", "effort", "format", "reasoning", "reasoning_lost", "not_cached", "other_replica", "respelled"}
	for c := diagnosis.None; c <= diagnosis.Respelled; c++ {
		reason, named := missReasons[c]
		known := reason == "model_changed" || reason == "system_changed" || reason == "tools_changed" || reason == "messages_changed"
		if want := !strings.Contains(","+strings.Join(unnamed, ",")+",", ","+c.String()+","); named != want || named != known {
			t.Errorf("%q has the reason %q", c, reason)
		}
	}
}
