package render

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestCompatibilityTables compares docs/compatibility.md with the decoders.
func TestCompatibilityTables(t *testing.T) {
	t.Parallel()
	objects := Fields()
	apitest.Documented(t, "Render", "Derender", objects["derender"])
	apitest.Documented(t, "Render", "Tokenize", objects["tokenize"])
	apitest.Documented(t, "Render", "Detokenize", objects["detokenize"])
}
