package constraint

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestAppendSchema shows schemas in the form for engines.
func TestAppendSchema(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, want string }{
		{`{"type": "object", "properties": {"b": true, "a": {"title": "A <b>"}}}`, `{"type":"object","properties":{"b":true,"a":{"title":"A <b>"}}}`},
		{`{"items":{"type":"string","pattern":"\\Aa\\z"}}`, `{"items":{"type":"string","pattern":"^a$"}}`},
		{`{"const":{"pattern":"\\p{L}","b":1,"a":[{"pattern":"x"}]}}`, `{"const":{"pattern":"\\p{L}","b":1,"a":[{"pattern":"x"}]}}`},
		{`{"properties":{"pattern":{"type":"string"}}}`, `{"properties":{"pattern":{"type":"string"}}}`},
		{`{"type":"object","patternProperties":{"^(?i)a$":{"pattern":"^\\u0061$"}}}`, `{"type":"object","patternProperties":{"^[Aa]$":{"pattern":"^a$"}}}`},
		{`{"type":"object","properties":{"a":{}},"required":["a","z"]}`, `{"type":"object","properties":{"a":{},"z":true},"required":["a","z"]}`},
		{`{"type":"object","required":["z","z"],"additionalProperties":{"pattern":"^\\Qa\\E$"}}`, `{"type":"object","required":["z","z"],"additionalProperties":{"pattern":"^a$"},"properties":{"z":{"pattern":"^a$"}}}`},
		{`{"anyOf":[{"required":["z"]}],"required":["y"]}`, `{"anyOf":[{"required":["z"],"properties":{"z":true}}],"required":["y"]}`},
		{`{"type":"array","items":[{"type":"string"}],"additionalItems":false}`, `{"type":"array","prefixItems":[{"type":"string"}],"items":false}`},
		{`{"type":"object","minProperties":2}`, `{"type":"object","minProperties":2,"additionalProperties":true}`},
		{`{"type":"string","format":"uuid","pattern":"^(?=a)$"}`, `{"type":"string","format":"uuid"}`},
		{`{"type":"string","format":"uuid","pattern":"^a$"}`, `{"type":"string","pattern":"^a$"}`},

		// What is not strict loses what takes too long, or cannot be enforced.
		{`{"type":"string","pattern":"\\p{L}"}`, `{"type":"string"}`},
		{`{"type":"string","pattern":"^([a-z]{1,30}){1,30}$"}`, `{"type":"string"}`},
		{`{"type":"string","minLength":2,"maxLength":10000}`, `{"type":"string","minLength":2}`},
		{`{"type":"array","maxItems":5000}`, `{"type":"array"}`},
		{`{"type":"object","patternProperties":{"(?=a)":{}},"additionalProperties":false}`, `{"type":"object"}`},
		{manyProperties(1000, `"$defs":{"a":{"type":"string"}}`), `{"type":"object","$defs":{"a":{"type":"string"}}}`},
		{manyValues(2001, 4), `{}`},
		{manyPatterns(33), `{"type":"object"}`},
	} {
		if err := CheckSchema(json.RawMessage(c.schema), false); err != nil {
			t.Errorf("%.60s: %v", c.schema, err)
		}
		if got := string(appendSchema(nil, json.RawMessage(c.schema))); got != c.want {
			t.Errorf("%.100s\n got %.200s\nwant %s", c.schema, got, c.want)
		}
	}
	counted := string(appendSchema(nil, json.RawMessage(manyProperties(200, `"minProperties":100,"maxProperties":110`))))
	if strings.Contains(counted, "Properties\":1") || !strings.Contains(counted, `"p199"`) {
		t.Errorf("counted properties are %.80s", counted)
	}
	if n := strings.Count(string(appendSchema(nil, json.RawMessage(manyLengths(20)))), "maxLength"); n != 10 {
		t.Errorf("%d lengths are left, want 10", n)
	}
}
