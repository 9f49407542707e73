package enginesim

import (
	"fmt"
	"strings"
	"testing"
)

// multiplied returns a schema that references expand to 8^12 schemas. %s in form
// stands for the reference.
func multiplied(form string) string {
	var b strings.Builder
	b.WriteString(`{"$defs":{"d12":{"type":"string","minLength":40000}`)
	for i := range 12 {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		fmt.Fprintf(&b, `,"d%d":`+form, i, strings.Repeat(ref+",", 7)+ref)
	}
	return b.String() + `},"$ref":"#/$defs/d0"}`
}

// Schemas that references multiply are given up after a limit.
func TestMultipliedSchema(t *testing.T) {
	var members strings.Builder
	members.WriteString(`{"$defs":{"d40":{"type":"string","minLength":40000}`)
	for i := range 40 {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		fmt.Fprintf(&members, `,"d%d":{"type":"object","required":["a","b"],"properties":{"a":%s,"b":%s}}`, i, ref, ref)
	}
	members.WriteString(`},"$ref":"#/$defs/d0"}`)
	for name, schema := range map[string]string{
		"properties": members.String(),
		"itself":     `{"type":"object","required":["a","b"],"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`,
		"items":      strings.Repeat(`{"type":"array","minItems":1000,"items":`, 20) + `{"type":"string"}` + strings.Repeat(`}`, 20),
	} {
		if got, err := smallestInstance(schema); err == nil {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
	for name, form := range map[string]string{
		"anyOf": `{"anyOf":[%s]}`,
		"oneOf": `{"oneOf":[%s,{"type":"null"}]}`,
		"allOf": `{"allOf":[{"anyOf":[%s]}]}`,
	} {
		if matchesSchema([]byte(`1`), []byte(multiplied(form))) {
			t.Errorf("%s: 1 matches the schema", name)
		}
	}
	if !matchesSchema([]byte(`"`+strings.Repeat("x", 40000)+`"`), []byte(multiplied(`{"anyOf":[%s]}`))) {
		t.Error("the first alternative is not found")
	}
}
