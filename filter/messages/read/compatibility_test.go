package read

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// objects are the tables of the objects of a request, by their paths.
var objects = apitest.Objects(Fields())

// TestCompatibilityTable compares docs/compatibility.md with the decoder.
func TestCompatibilityTable(t *testing.T) {
	t.Chdir("..") // the paths of apitest begin in the directory of an API
	const endpoint = "POST /v1/messages"
	apitest.Documented(t, endpoint, "", objects[""])
	apitest.Documented(t, endpoint, "Tools of messages", objects["tools"])
	apitest.Documented(t, endpoint, "Members", objects.Below("tools"))
}
