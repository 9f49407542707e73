package render

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestCompatibilityTables compares docs/compatibility.md with the decoders.
func TestCompatibilityTables(t *testing.T) {
	t.Parallel()
	derender := apitest.Fields(derenderFields)
	for _, k := range kinds {
		derender[k.request] = apitest.Handled{State: "mapped"}
	}
	apitest.Documented(t, "Render", "Derender", derender)
	apitest.Documented(t, "Render", "Tokenize", apitest.Fields(tokenizeFields))
	apitest.Documented(t, "Render", "Detokenize", apitest.Fields(detokenizeFields))
}
