package read

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// objects are the tables of the objects of a request, by their paths.
var objects = apitest.Objects(Fields())

// TestCompatibilityTables compares docs/compatibility.md with the decoder.
func TestCompatibilityTables(t *testing.T) {
	t.Chdir("..") // the paths of apitest begin in the directory of an API
	const endpoint = "POST /v1/responses"
	apitest.Documented(t, endpoint, "", objects[""])
	apitest.Documented(t, endpoint, "Members", objects.Below("tools.tools[function]", "tools.tools[custom]"))
	coded := map[string]jsontext.Described{}
	for name := range itemTypes {
		coded[name] = jsontext.Described{State: "mapped"}
	}
	apitest.Documented(t, endpoint, "Input items", coded)
}
