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
		{`{"anyOf":[{"required":["z"]}],"title":"y"}`, `{"anyOf":[{"required":["z"],"properties":{"z":true}}],"title":"y"}`},
		{`{"type":"array","items":[{"type":"string"}],"additionalItems":false}`, `{"type":"array","prefixItems":[{"type":"string"}],"items":false}`},
		{`{"type":"object","minProperties":2}`, `{"type":"object","minProperties":2,"additionalProperties":true}`},
		{`{"type":"string","format":"uuid","pattern":"^(?=a)$"}`, `{"type":"string","format":"uuid"}`},
		{`{"type":"string","format":"uuid","pattern":"^a$"}`, `{"type":"string","pattern":"^a$"}`},

		// Of keywords that cannot stand together those are left that say most.
		{`{"anyOf":[{"required":["z"]}],"required":["y"]}`, `{"required":["y"],"properties":{"y":true},"additionalProperties":true}`},
		{`{"type":"object","properties":{"a":{}},"anyOf":[{"required":["b"]}]}`, `{"type":"object","properties":{"a":{}},"additionalProperties":true}`},
		{`{"type":"object","properties":{"a":{}},"if":{"required":["a"]},"then":{"required":["b"]},"additionalProperties":false}`, `{"type":"object","properties":{"a":{}},"if":{"required":["a"]},"then":{"required":["b"]},"additionalProperties":false}`},
		{`{"type":"object","allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}`, `{"type":"object"}`},
		{`{"anyOf":[{"type":"null"},{"type":"string"}],"minLength":2}`, `{"anyOf":[{"type":"null"},{"type":"string"}],"minLength":2}`},
		{`{"$ref":"#/$defs/a","minimum":1,"$defs":{"a":{"type":"integer"}}}`, `{"$ref":"#/$defs/a","minimum":1,"$defs":{"a":{"type":"integer"}}}`},
		{`{"$ref":"#/$defs/a","properties":{"b":{}},"$defs":{"a":{"type":"object"}}}`, `{"properties":{"b":{}},"$defs":{"a":{"type":"object"}},"additionalProperties":true}`},
		{`{"type":"object","properties":{"a":{}},"patternProperties":{"^x":{}},"required":["a"],"additionalProperties":false}`, `{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false}`},
		{`{"type":"object","patternProperties":{"^x":{}},"required":["x1"],"additionalProperties":false}`, `{"type":"object","required":["x1"],"properties":{"x1":true}}`},
		{`{"type":"object","propertyNames":{"enum":["a"]},"required":["a"],"additionalProperties":{"type":"integer"}}`, `{"type":"object","required":["a"],"additionalProperties":{"type":"integer"},"properties":{"a":{"type":"integer"}}}`},
		{`{"type":"string","format":"uri","minLength":1,"maxLength":2083}`, `{"type":"string","format":"uri"}`},
		{`{"type":"string","pattern":"^a$","minLength":1}`, `{"type":"string","pattern":"^a$"}`},
		{`{"type":"string","format":"mine","minLength":1}`, `{"type":"string","format":"mine","minLength":1}`},
		{`{"type":"number","minimum":-1e300,"maximum":1}`, `{"type":"number","maximum":1}`},

		// xgrammar allows no members where it finds restrictions without descriptions.
		{`{"type":"array","minItems":1}`, `{"type":"array","minItems":1,"items":true}`},
		{`{"type":"array","uniqueItems":true,"contains":{"const":1}}`, `{"type":"array","uniqueItems":true,"contains":{"const":1},"items":true}`},
		{`{"type":"array","prefixItems":[{}],"minItems":2}`, `{"type":"array","prefixItems":[{}],"minItems":2,"items":true}`},
		{`{"type":"object","not":{"required":["a"]}}`, `{"type":"object","not":{"required":["a"]},"additionalProperties":true}`},
		{`{"type":"object","required":[]}`, `{"type":"object"}`},
		{`{"type":"object","maxProperties":2}`, `{"type":"object","maxProperties":2,"additionalProperties":true}`},

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
		if err := CheckSchema(newAccount(), json.RawMessage(c.schema), false); err != nil {
			t.Errorf("%.60s: %v", c.schema, err)
		}
		if got := string(schemaForEngines(newAccount(), json.RawMessage(c.schema))); got != c.want {
			t.Errorf("%.100s\n got %.200s\nwant %s", c.schema, got, c.want)
		}
	}

	counted := string(schemaForEngines(newAccount(), json.RawMessage(manyProperties(200, `"minProperties":100,"maxProperties":110`))))
	if strings.Contains(counted, "Properties\":1") || !strings.Contains(counted, `"p199"`) {
		t.Errorf("counted properties are %.80s", counted)
	}

	if n := strings.Count(string(schemaForEngines(newAccount(), json.RawMessage(manyLengths(20)))), "maxLength"); n != 10 {
		t.Errorf("%d lengths are left, want 10", n)
	}
}
