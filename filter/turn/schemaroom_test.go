package turn

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestSchemasTakeRoom shows that what is made of a large schema of many values takes room before
// it is made, and that of an ordinary one takes none.
func TestSchemasTakeRoom(t *testing.T) {
	t.Parallel()
	full := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "full")
	schema := func(values int) string {
		return `{"type":"object","examples":[` + strings.Repeat("0,", values) + `0]}`
	}
	for values, large := range map[int]bool{100: false, 100_000: true} {
		taken := 0
		rc := &RequestContext{
			Env: &Env{Limits: DefaultLimits(), Renderer: harmony.NewRenderer(), NewID: func(string) string { return "" }}, Model: &Model{},
			Reserve: func(n int) *apierror.Error {
				if taken += n; taken > 1<<20 {
					return full
				}
				return nil
			},
		}
		in := &Input{
			Tools: []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: []byte(schema(values))}}}},
			Items: []Item{{Kind: User, Text: "x"}},
		}
		_, err := toolset.New(rc, in, nil)
		if (err == full) != large || (taken > 0) != large {
			t.Errorf("a tool of %d values: %v, %d bytes", values, err, taken)
		}

		taken = 0
		_, err = fields.SchemaFormat(rc, jsontext.Field{Result: gjson.Parse(schema(values))})
		if (err == full) != large || (taken > 0) != large {
			t.Errorf("a format of %d values: %v, %d bytes", values, err, taken)
		}
	}
}
