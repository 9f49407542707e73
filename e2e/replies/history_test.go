package replies

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
)

// TestHistoryIsExact shows that an engine has all in its cache that it has read and written in a turn of
// tools, whatever form its model gives to calls.
func TestHistoryIsExact(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for _, model := range stack.HarmonyModels {
		t.Run(model, func(t *testing.T) { d.HistoryIsExact(t, model, diagnosis.BlockTokens) })
	}
}
