package turn

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// multiplied returns a schema that references expand to 8^12 schemas.
func multiplied() json.RawMessage {
	var b strings.Builder
	b.WriteString(`{"$defs":{"d12":{"type":"string"}`)
	for i := range 12 {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		fmt.Fprintf(&b, `,"d%d":{"anyOf":[%s]}`, i, strings.Repeat(ref+",", 7)+ref)
	}
	return json.RawMessage(b.String() + `},"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}},"required":["x"],"additionalProperties":false}`)
}

// TestSchemaOfTooMuchWork shows that a tool whose schema grows too large by
// references is rejected with an error that names the tool.
func TestSchemaOfTooMuchWork(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		rc, _ := newContext()
		in := &Input{
			Items: []Item{userHi},
			Tools: []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "good"}, {Name: "bad", Parameters: multiplied()}}}},
		}
		if strict {
			in.Strict = map[ToolName]bool{{Namespace: FunctionsNamespace, Name: "bad"}: true}
		}
		_, err := Prepare(t.Context(), rc, in)
		if err == nil || err.Status != http.StatusBadRequest || !strings.Contains(err.Message, `tool "bad": its parameters take too many steps`) {
			t.Errorf("strict %t: %v", strict, err)
		}
	}
}
