package constraint

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestCheckSchema(t *testing.T) {
	for name, c := range map[string]struct {
		schema string
		strict bool
		want   string // in the error; "": none
	}{
		"object":             {schema: string(cityOf), strict: true},
		"anything":           {schema: `true`, strict: true},
		"list":               {schema: `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}}}}}`, strict: true},
		"tree":               {schema: `{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}}}`, strict: true},
		"escaped pointer":    {schema: `{"$ref":"#/$defs/a~1b%20c","$defs":{"a/b c":{"type":"string"}}}`, strict: true},
		"into a list":        {schema: `{"anyOf":[{"type":"string"},{"type":"object","properties":{"a":{"$ref":"#/anyOf/0"}}}]}`, strict: true},
		"loose not":          {schema: `{"not":{"type":"string"}}`},
		"property named not": {schema: `{"type":"object","properties":{"not":{"type":"string"},"$ref":{"type":"string"}}}`, strict: true},

		"zod's uuid":      {schema: `{"type":"string","format":"uuid","pattern":"^(?=a)[0-9a-f]+$"}`, strict: true},
		"into properties": {schema: `{"type":"object","properties":{"a":{"type":"string"},"b":{"$ref":"#/properties/a"}}}`, strict: true},

		"unknown keyword":    {schema: `{"$ref":"#/x","x":{"minLength":1000000000}}`, want: "leads nowhere"},
		"into a keyword":     {schema: `{"$ref":"#/properties","properties":{"not":{}}}`, want: "leads nowhere"},
		"too many":           {schema: manyRefs(MaxRefs + 1), want: "more than 500"},
		"not JSON":           {schema: `{"type"`, want: "not valid JSON"},
		"two":                {schema: `{} {}`, want: "not valid JSON"},
		"a number":           {schema: `1`, want: "neither an object nor a boolean"},
		"number inside":      {schema: `{"properties":{"a":1}}`, want: "neither an object nor a boolean"},
		"NUL":                {schema: `{"pattern":"a\u0000"}`, want: "NUL"},
		"self":               {schema: `{"$ref":"#"}`, want: "leads back to itself"},
		"two in a circle":    {schema: `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"allOf":[{"$ref":"#/$defs/a"}]}}}`, want: "leads back to itself"},
		"circle far inside":  {schema: `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/a"}}}`, want: "leads back to itself"},
		"nowhere":            {schema: `{"$ref":"#/$defs/a"}`, want: "leads nowhere"},
		"far away":           {schema: `{"$ref":"https://example.com/schema.json"}`, want: "leads nowhere"},
		"ref of no string":   {schema: `{"$ref":1}`, want: "no string"},
		"lookahead":          {schema: `{"type":"string","pattern":"(?=a)b"}`, want: "lookaround"},
		"pattern of a name":  {schema: `{"patternProperties":{"(?!a)":{}}}`, want: "lookaround"},
		"huge pattern":       {schema: `{"type":"string","pattern":"(a{1000}){1000}"}`, want: "repetitions"},
		"long":               {schema: `{"type":"string","maxLength":1000000}`, want: `"maxLength"`},
		"negative":           {schema: `{"type":"array","minItems":-1}`, want: `"minItems"`},
		"strict not":         {schema: `{"not":{"type":"string"}}`, strict: true, want: `"not"`},
		"strict deep":        {schema: `{"type":"array","items":{"type":"number","multipleOf":2}}`, strict: true, want: `"multipleOf"`},
		"strict in defs":     {schema: `{"$ref":"#/$defs/a","$defs":{"a":{"uniqueItems":true}}}`, strict: true, want: `"uniqueItems"`},
		"strict allOf":       {schema: `{"allOf":[{},{}]}`, strict: true, want: `"allOf"`},
		"strict pattern":     {schema: `{"pattern":"a","maxLength":3}`, strict: true, want: "together with"},
		"strict format":      {schema: `{"type":"string","format":"phone"}`, strict: true, want: `"format"`},
		"anyOf is an object": {schema: `{"anyOf":{}}`, want: `"anyOf"`},
		"properties a list":  {schema: `{"properties":[]}`, want: `"properties"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckSchema(json.RawMessage(c.schema), c.strict)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q in it", err, c.want)
			}
		})
	}
}

// manyRefs is a schema with n references, each behind the one before it.
func manyRefs(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"%d":{"type":"object","properties":{"p":{"$ref":"#/$defs/%d"}}},`, i, i+1)
	}
	fmt.Fprintf(&b, `"%d":{}}}`, n)
	return b.String()
}

// TestSpellingsOfAReferenceAreOne: a reference is followed once, however often
// and in whatever spelling it stands there.
func TestSpellingsOfAReferenceAreOne(t *testing.T) {
	c := schemaCheck{root: map[string]any{"$defs": map[string]any{"a/b": true, "c": []any{}}, "anyOf": []any{true}}}
	paths := map[string]bool{}
	for _, ref := range []string{"#/$defs/a~1b", "#/$defs/%61~1b", "#/%24defs/a~1%62"} {
		_, path, ok := c.resolve(ref)
		if !ok {
			t.Errorf("%s leads nowhere", ref)
		}
		paths[path] = true
	}
	for _, ref := range []string{"#/anyOf/0", "#/anyOf/00", "#/anyOf/%30"} {
		if _, path, ok := c.resolve(ref); !ok || path != "/anyOf/0" {
			t.Errorf("%s is %q, %v", ref, path, ok)
		}
	}
	if len(paths) != 1 {
		t.Errorf("paths %v", paths)
	}
}

// TestSchemaErrorsNameNoProperty: names of properties may be part of a prompt.
func TestSchemaErrorsNameNoProperty(t *testing.T) {
	for _, schema := range []string{
		`{"properties":{"secret":{"not":{}}}}`, `{"$ref":"#/$defs/secret"}`, `{"patternProperties":{"secret(?=":{}}}`, `{"properties":{"secret":{"format":"secret"}}}`,
	} {
		if err := CheckSchema(json.RawMessage(schema), true); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func TestCheckGrammar(t *testing.T) {
	for _, g := range []string{
		`root ::= "a" ("b" | item)* # Token(1)`, "root ::= Item\nItem ::= [A(] \"Token(1)\"", `root ::= "a\"Token(1)"`, `root ::= item ("x")`,
	} {
		if err := CheckGrammar(g); err != nil {
			t.Errorf("%s: %v", g, err)
		}
	}
	for _, g := range []string{
		"", "start: \"a\"", "root ::= Token(200002)", "root ::= \"a\" Token (200002)", "root ::= TagDispatch(\n)", "root ::= Token\n(1)", "root ::= Token #x\n (1)", "root ::= \"a\x00\"",
		strings.Repeat("root ::= a ", 10_000),
	} {
		if CheckGrammar(g) == nil {
			t.Errorf("%.60q is taken", g)
		}
	}
}

func TestCheckChoice(t *testing.T) {
	if err := CheckChoice([]string{"yes", "<|x|>"}); err != nil {
		t.Error(err)
	}
	for _, texts := range [][]string{nil, {""}, {"a\x00"}, {"<|end|>"}, make([]string, 2000), {strings.Repeat("a", 1<<17)}} {
		if CheckChoice(texts) == nil {
			t.Errorf("%d texts are taken", len(texts))
		}
	}
}

func FuzzCheckSchema(f *testing.F) {
	f.Add(string(cityOf), true)
	f.Add(`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#"}]}}}`, false)
	f.Fuzz(func(_ *testing.T, schema string, strict bool) {
		_ = CheckSchema(json.RawMessage(schema), strict) // ends, and does not panic
	})
}

func FuzzCheckGrammar(f *testing.F) {
	f.Add("root ::= \"a\\\"\" [b-\\]] Rule (\"c\") # x")
	f.Fuzz(func(_ *testing.T, grammar string) { _ = CheckGrammar(grammar) })
}
