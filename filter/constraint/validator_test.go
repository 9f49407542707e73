package constraint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
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
		{`{"multipleOf":0.01}`, `0.07`, true},
		{`{"multipleOf":0.01}`, `0.075`, false},
		{`{"enum":[12345678901234567890]}`, `12345678901234567891`, false},
		{`{"maximum":1e308}`, `1e400`, false},
		{`{"minimum":-1e308}`, `-1e999999999`, false},
		{`{"multipleOf":1e-300}`, `1`, true},
		{`{"uniqueItems":true}`, `[1,1.0]`, false},
		{`{"uniqueItems":true}`, `[1,"1",[1],{"1":1}]`, true},
		{`{"uniqueItems":true}`, `[{"a":1,"b":2},{"b":2,"a":1e0}]`, false},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","not":{"type":"string"}}`, `"a"`, false},
	} {
		v, err := NewValidator(newAccount(), json.RawMessage(c.schema), nil)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		if got := follows(v, []byte(c.text)); got != c.want {
			t.Errorf("%s of %s: %t", c.text, c.schema, got)
		}
	}

	for _, schema := range []string{`{"minLength":"a"}`, `{"pattern":"("}`, `{"$ref":"#/$defs/none"}`} {
		if _, err := NewValidator(newAccount(), json.RawMessage(schema), nil); err == nil {
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
	// ways are the values of which one is looked at in millions of ways, or in few.
	const ways = "ways"
	texts := []string{`1`, `{}`, `{"a":1,"b":2}`, strings.Repeat(`{"x":`, 25) + `1` + strings.Repeat(`}`, 25), strings.Repeat(`[`, 25) + strings.Repeat(`]`, 25), strings.Repeat(`{"ab":`, 25) + `1` + strings.Repeat(`}`, 25)}

	for name, c := range map[string]struct{ schema, err, text string }{
		"anyOf":               {doubled(`{"anyOf":[NEXT,NEXT]}`), "", ways},
		"allOf and $ref":      {doubled(`{"$ref":"#/$defs/a24","allOf":[NEXT,{"oneOf":[NEXT]}]}`), "", ways},
		"not and if":          {doubled(`{"not":NEXT,"if":NEXT}`), "", ways},
		"then and else":       {doubled(`{"if":true,"then":NEXT,"else":NEXT}`), "", ways},
		"dependentSchemas":    {doubled(`{"dependentSchemas":{"a":NEXT,"b":NEXT}}`), "", ways},
		"dependencies":        {doubled(`{"dependencies":{"a":NEXT,"b":NEXT}}`), "", ways},
		"one property":        {doubled(`{"anyOf":[{"properties":{"x":NEXT}},{"properties":{"x":NEXT}}]}`), "", ways},
		"items and contains":  {doubled(`{"items":NEXT,"contains":NEXT}`), "", ways},
		"patterns":            {doubled(`{"patternProperties":{"a":NEXT,"b":NEXT}}`), "", ways},
		"a tree of unions":    {again(`{"anyOf":[{"properties":{"x":AGAIN}},{"properties":{"x":{"items":AGAIN}}},{"items":AGAIN}]}`), "", ways},
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
			v, err := NewValidator(newAccount(), json.RawMessage(c.schema), nil)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				return
			}

			if err != nil {
				t.Fatal(err)
			}

			if c.text != ways {
				if !follows(v, []byte(c.text)) {
					t.Errorf("%s is not accepted", c.text)
				}
				return
			}

			for _, text := range texts {
				if _, err := v.Accepts(work.New(t.Context(), work.PerRequest/20), []byte(text)); err != nil && !errors.Is(err, work.ErrExceeded) {
					t.Error(err)
				}
			}
		})
	}
}

// endingContext ends when it has been asked for its error some times.
type endingContext struct {
	context.Context
	left int
}

func (c *endingContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestChecksEndWithTheirContext has checks that would take long: after the end of its
// context each does no more than is between two questions.
func TestChecksEndWithTheirContext(t *testing.T) {
	t.Parallel()
	slow := "a*" + strings.Repeat("a{0,128}", 7) + "b"
	long := `"` + strings.Repeat("a", 100_000) + `"`

	for name, c := range map[string]struct{ schema, text string }{
		"a pattern":   {`{"pattern":"` + slow + `"}`, long},
		"expression":  {"", long},
		"elements":    {`{"items":{"enum":["b",1]}}`, "[" + strings.Repeat("1,", 100_000) + "1]"},
		"ways":        {`{"$defs":{` + doubledDefs() + `},"$ref":"#/$defs/a0"}`, `1`},
		"uniqueItems": {`{"uniqueItems":true,"contains":{"pattern":"` + slow + `"}}`, "[" + long + "," + long + "]"},
	} {
		ctx := &endingContext{context.Background(), 10}
		account := work.New(ctx, work.PerRequest)
		var err error
		if c.schema == "" {
			_, err = AnswerRegex(slow).Accepts(account, []byte(strings.Trim(c.text, `"`)))
		} else if v, failed := NewValidator(nil, json.RawMessage(c.schema), nil); failed != nil {
			t.Fatal(failed)
		} else {
			_, err = v.Accepts(account, []byte(c.text))
		}

		if !errors.Is(err, context.Canceled) || ctx.left < -4 {
			t.Errorf("%s: %v, and the context was asked %d times behind its end", name, err, -ctx.left)
		}
	}
}

// doubledDefs are schemas each of which leads to the next one twice.
func doubledDefs() string {
	var defs strings.Builder
	for i := range 30 {
		fmt.Fprintf(&defs, `"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	return defs.String() + `"a30":{"type":"object"}`
}

// follows validates without a bound.
func follows(v *Validator, text []byte) bool {
	ok, err := v.Accepts(newAccount(), text)

	return ok && err == nil
}

// TestNullKeywords has a null for each keyword, which some clients write for those that they do
// not have: it means nothing. Only const is null itself.
func TestNullKeywords(t *testing.T) {
	t.Parallel()
	values := []string{`null`, `1`, `"a"`, `[1,{"a":2}]`, `{"a":1,"b":[2]}`}

	for _, keyword := range []string{
		"type", "enum", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "properties", "patternProperties", "additionalProperties",
		"propertyNames", "unevaluatedProperties", "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minContains",
		"uniqueItems", "pattern", "format", "minLength", "maximum", "multipleOf", "required", "dependentSchemas", "$defs", "$ref", "examples",
	} {
		v, err := NewValidator(newAccount(), json.RawMessage(`{"`+keyword+`":null}`), nil)
		if err != nil {
			t.Errorf("%s: %v", keyword, err)
			continue
		}

		for _, value := range values {
			if ok, err := v.Accepts(newAccount(), []byte(value)); !ok || err != nil {
				t.Errorf("%s: null rejects %s, %v", keyword, value, err)
			}
		}
	}

	v, err := NewValidator(newAccount(), json.RawMessage(`{"const":null}`), nil)
	if err != nil {
		t.Fatal(err)
	}

	for i, value := range values {
		if ok, _ := v.Accepts(newAccount(), []byte(value)); ok != (i == 0) {
			t.Errorf("the const null accepts %s: %t", value, ok)
		}
	}
}

// TestPatternBesideAFormat has a pattern that Go cannot read, once beside a format, where it
// does not count, and once where it does.
func TestPatternBesideAFormat(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		schema := `{"properties":{"` + names[0] + `":{"format":"x","pattern":"(?=a)"},"` + names[1] + `":{"pattern":"(?=a)"}}}`
		if _, err := NewValidator(newAccount(), json.RawMessage(schema), nil); err == nil {
			t.Errorf("%s is accepted", schema)
		}
	}
}
