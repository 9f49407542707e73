package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// TestComparisonsAreBounded has the schemas of a oneOf that references multiply to
// 100^5 pairs.
func TestComparisonsAreBounded(t *testing.T) {
	defs := make([]string, 0, 7)
	for level := range 6 {
		names, properties := make([]string, 0, 100), make([]string, 0, 100)
		for i := range 100 {
			names = append(names, fmt.Sprintf(`"p%d"`, i))
			properties = append(properties, fmt.Sprintf(`"p%d":{"$ref":"#/$defs/l%d"}`, i, level+1))
		}
		defs = append(defs, fmt.Sprintf(`"l%d":{"type":"object","properties":{%s},"required":[%s],"additionalProperties":false}`, level, strings.Join(properties, ","), strings.Join(names, ",")))
	}
	defs = append(defs, `"l6":{"type":"string"}`)
	schema := fmt.Sprintf(`{"$defs":{%s},"oneOf":[{"$ref":"#/$defs/l0"},{"$ref":"#/$defs/l0"}]}`, strings.Join(defs, ","))
	if err := Unenforced(newAccount(), json.RawMessage(schema)); !errors.Is(err, work.ErrExceeded) {
		t.Errorf("%v", err)
	}
}

// TestEnumOfLists shows that all values of an enum count with their text.
func TestEnumOfLists(t *testing.T) {
	value := `["` + strings.Repeat("x", 100) + `"]`
	schema := `{"enum":[` + strings.TrimSuffix(strings.Repeat(value+",", 1000), ",") + `]}`
	if err := CheckSchema(newAccount(), json.RawMessage(schema), true); err == nil || !strings.Contains(err.Error(), `"enum"`) {
		t.Errorf("%v", err)
	}
}
