package constraint

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestValidator has texts that follow a schema, and texts that do not.
func TestValidator(t *testing.T) {
	t.Parallel()
	const tree = `{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"},"n":{"type":"integer","minimum":1}},"required":["n"],"additionalProperties":false}}}`
	for _, c := range []struct {
		schema, text string
		want         bool
	}{
		{`{"type":"object"}`, `{}`, true},
		{`{"type":"object"}`, `[]`, false},
		{`{"type":"object"}`, `{} {}`, false},
		{`{"type":"object"}`, `{`, false},
		{`true`, `7`, true},
		{tree, `{"n":1,"next":{"n":2}}`, true},
		{tree, `{"n":1,"next":{"n":0}}`, false},
		{tree, `{"n":1,"next":{"n":2,"more":3}}`, false},
		{`{"enum":["a",1]}`, `1.0`, true},
		{`{"enum":["a",1]}`, `"b"`, false},
		{`{"type":"string","pattern":"^[a-c]+$"}`, `"abc"`, true},
		{`{"type":"string","pattern":"^[a-c]+$"}`, `"abd"`, false},
		{`{"$schema":"http://json-schema.org/draft-07/schema","items":[{"type":"null"},{"const":2}]}`, `[null,2,3]`, true},
		{`{"$schema":"http://json-schema.org/draft-07/schema","items":[{"type":"null"},{"const":2}]}`, `[null,3]`, false},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","not":{"type":"string"}}`, `"a"`, false},
	} {
		v, err := NewValidator(newAccount(), json.RawMessage(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		if got := follows(v, []byte(c.text)); got != c.want {
			t.Errorf("%s of %s: %t", c.text, c.schema, got)
		}
	}
	for _, schema := range []string{`{"minLength":"a"}`, `{"pattern":"("}`, `{"$ref":"#/$defs/none"}`} {
		if _, err := NewValidator(newAccount(), json.RawMessage(schema)); err == nil {
			t.Errorf("%s passes", schema)
		}
	}
}

// TestValidatorIsBounded has schemas and texts that are rejected because validation
// would not end in reasonable time.
func TestValidatorIsBounded(t *testing.T) {
	t.Parallel()
	// doubled is 24 schemas, each of which has the next one twice.
	doubled := func(twice string) string {
		defs := make([]string, 25)
		for i := range 24 {
			ref := fmt.Sprintf(`{"$ref":"#/$defs/a%d"}`, i+1)
			defs[i] = fmt.Sprintf(`"a%d":%s`, i, strings.ReplaceAll(twice, "NEXT", ref))
		}
		defs[24] = `"a24":{"type":"object"}`
		return `{"$ref":"#/$defs/a0","$defs":{` + strings.Join(defs, ",") + `}}`
	}
	// again is a schema that leads back to itself.
	again := func(s string) string {
		return `{"$ref":"#/$defs/s","$defs":{"s":` + strings.ReplaceAll(s, "AGAIN", `{"$ref":"#/$defs/s"}`) + `}}`
	}
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprintf(`{"const":%d}`, i)
	}
	deep := strings.Repeat(`{"x":[`, 100) + strings.Repeat(`]}`, 100)
	for name, c := range map[string]struct{ schema, err, text string }{
		"anyOf":               {doubled(`{"anyOf":[NEXT,NEXT]}`), "in more than 10000 ways", ""},
		"allOf and $ref":      {doubled(`{"$ref":"#/$defs/a24","allOf":[NEXT,{"oneOf":[NEXT]}]}`), "in more than 10000 ways", ""},
		"not and if":          {doubled(`{"not":NEXT,"if":NEXT}`), "in more than 10000 ways", ""},
		"then and else":       {doubled(`{"if":true,"then":NEXT,"else":NEXT}`), "in more than 10000 ways", ""},
		"dependentSchemas":    {doubled(`{"dependentSchemas":{"a":NEXT,"b":NEXT}}`), "in more than 10000 ways", ""},
		"dependencies":        {doubled(`{"dependencies":{"a":NEXT,"b":NEXT}}`), "in more than 10000 ways", ""},
		"one property":        {doubled(`{"anyOf":[{"properties":{"x":NEXT}},{"properties":{"x":NEXT}}]}`), "in more than 10000 ways", ""},
		"items and contains":  {doubled(`{"items":NEXT,"contains":NEXT}`), "in more than 10000 ways", ""},
		"patterns":            {doubled(`{"patternProperties":{"a":NEXT,"b":NEXT}}`), "in more than 10000 ways", ""},
		"a tree of unions":    {again(`{"anyOf":[{"properties":{"x":AGAIN}},{"properties":{"x":{"items":AGAIN}}},{"items":AGAIN}]}`), "in more than 10000 ways", ""},
		"itself":              {`{"not":{"$ref":"#"}}`, "leads back to itself", ""},
		"itself, by the way":  {again(`{"if":{"then":AGAIN}}`), "leads back to itself", ""},
		"$dynamicRef":         {`{"$dynamicRef":"#a","$defs":{"a":{"$dynamicAnchor":"a"}}}`, `"$dynamicRef"`, ""},
		"$id of a part":       {`{"$defs":{"a":{"$id":"https://a.example/","$ref":"#/$defs/b","$defs":{"b":true}},"b":true},"$ref":"#/$defs/a"}`, `"$id"`, ""},
		"an anchor":           {`{"$ref":"#a","$defs":{"a":{"$anchor":"a"}}}`, "leads nowhere", ""},
		"many alternatives":   {`{"anyOf":[` + strings.Join(many, ",") + `]}`, "", `1999`},
		"different members":   {doubled(`{"properties":{"a":NEXT,"b":NEXT},"prefixItems":[NEXT,NEXT],"additionalProperties":NEXT}`), "", `{"a":{"b":{"c":{}}}}`},
		"a list":              {again(`{"anyOf":[{"type":"null"},{"properties":{"next":AGAIN},"required":["next"]}]}`), "", `{"next":{"next":null}}`},
		"a tree":              {again(`{"properties":{"x":{"items":AGAIN},"y":AGAIN}}`), "", deep},
		"alternatives' names": {again(`{"allOf":[{"anyOf":[{"properties":{"a":AGAIN}},{"properties":{"b":true}}]}]}`), "", `{"a":{"a":{"b":0}}}`},
		"names with ~ and /":  {`{"$ref":"#/$defs/a~1b~0%25","$defs":{"a/b~%":true}}`, "", `1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := NewValidator(newAccount(), json.RawMessage(c.schema))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil || !follows(v, []byte(c.text)) {
				t.Errorf("%s is not accepted: %v", c.text, err)
			}
		})
	}
	v, err := NewValidator(newAccount(), json.RawMessage(`true`))
	if err != nil || !follows(v, []byte(`"[{\"[{"`)) || !follows(v, []byte(nested(maxNesting))) || follows(v, []byte(nested(maxNesting+1))) {
		t.Errorf("the depth of texts is not bounded: %v", err)
	}
	v, err = NewValidator(newAccount(), json.RawMessage(`{"anyOf":[`+strings.Join(many, ",")+`,{"type":"array"}]}`))
	most := maxWork / (len(many) + 2)
	if err != nil || !follows(v, []byte("["+strings.Repeat(" ", most-2)+"]")) || follows(v, []byte("["+strings.Repeat(" ", most-1)+"]")) {
		t.Errorf("the length of texts is not bounded: %v", err)
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// follows validates without a bound.
func follows(v *Validator, text []byte) bool {
	ok, err := v.Accepts(newAccount(), text)

	return ok && err == nil
}
