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
		// In the error; "": none.
		want string
		// In the error of Unenforced; "": none.
		left string
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

		"unknown keyword":   {schema: `{"$ref":"#/x","x":{"minLength":1000000000}}`, want: "leads nowhere"},
		"into a keyword":    {schema: `{"$ref":"#/properties","properties":{"not":{}}}`, want: "leads nowhere"},
		"too many":          {schema: manyRefs(MaxRefs + 1), want: "more than 500"},
		"not JSON":          {schema: `{"type"`, want: "not valid JSON"},
		"two":               {schema: `{} {}`, want: "not valid JSON"},
		"a number":          {schema: `1`, want: "neither an object nor a boolean"},
		"number inside":     {schema: `{"properties":{"a":1}}`, want: "neither an object nor a boolean"},
		"NUL":               {schema: `{"pattern":"a\u0000"}`, want: "NUL"},
		"self":              {schema: `{"$ref":"#"}`, want: "leads back to itself"},
		"two in a circle":   {schema: `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},"b":{"allOf":[{"$ref":"#/$defs/a"}]}}}`, want: "leads back to itself"},
		"circle far inside": {schema: `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/a"}}}`, want: "leads back to itself"},
		"nowhere":           {schema: `{"$ref":"#/$defs/a"}`, want: "leads nowhere"},
		"far away":          {schema: `{"$ref":"https://example.com/schema.json"}`, want: "leads nowhere"},
		"ref of no string":  {schema: `{"$ref":1}`, want: "no string"},
		"negative":          {schema: `{"type":"array","minItems":-1}`, want: `"minItems"`},
		"named twice":       {schema: `{"properties":{"a":{"pattern":"a","pattern":"(?=b)"}}}`, want: "twice"},

		"loose lookahead":         {schema: `{"type":"string","pattern":"(?=a)b"}`},
		"loose name":              {schema: `{"patternProperties":{"(?!a)":{}}}`},
		"loose length":            {schema: `{"type":"string","maxLength":1000000}`},
		"loose properties":        {schema: manyProperties(1000, "")},
		"strict lookahead":        {schema: `{"type":"string","pattern":"(?=a)b"}`, strict: true, want: "lookaround"},
		"strict name":             {schema: `{"type":"object","patternProperties":{"(?!a)":{}}}`, strict: true, want: "lookaround"},
		"strict Unicode class":    {schema: `{"type":"string","pattern":"^[\\p{L} ]+$"}`, strict: true, left: `\p{L}`},
		"strict huge pattern":     {schema: `{"type":"string","pattern":"(a{1000}){1000}"}`, strict: true, want: "repetitions"},
		"strict nested pattern":   {schema: `{"type":"string","pattern":"^([a-z]{1,30}){1,30}$"}`, strict: true, want: "too long"},
		"strict length":           {schema: `{"type":"string","maxLength":4097}`, strict: true, left: `"maxLength" beyond`},
		"strict items":            {schema: `{"type":"array","maxItems":4097}`, strict: true, left: `"maxItems" beyond`},
		"minimum length":          {schema: `{"type":"string","minLength":4097}`, want: `"minLength" beyond`},
		"200 optional":            {schema: manyProperties(200, ""), strict: true},
		"201 optional":            {schema: manyProperties(201, ""), strict: true, want: "not required"},
		"1000 required":           {schema: manyProperties(1000, "required"), strict: true},
		"counted":                 {schema: manyProperties(200, `"minProperties":100,"maxProperties":110`), strict: true, want: `"minProperties"`},
		"one of 60":               {schema: manyProperties(60, `"minProperties":1`), strict: true},
		"one of 200":              {schema: manyProperties(200, `"minProperties":1`), strict: true, want: `"minProperties"`},
		"33 patternProperties":    {schema: manyPatterns(33), strict: true, want: `"patternProperties"`},
		"32 patternProperties":    {schema: manyPatterns(32), strict: true},
		"2000 values":             {schema: manyValues(2000, 8), strict: true},
		"2001 values":             {schema: manyValues(2001, 8), strict: true, want: `"enum"`},
		"long values":             {schema: manyValues(1500, 60), strict: true, want: `"enum"`},
		"5 different lengths":     {schema: manyLengths(5), strict: true},
		"6 different lengths":     {schema: manyLengths(6), strict: true, want: "together"},
		"no values":               {schema: `{"enum":[]}`, want: `"enum"`},
		"unknown type":            {schema: `{"type":"text"}`, want: `"type"`},
		"type of a number":        {schema: `{"type":5}`, want: `"type"`},
		"unknown type of two":     {schema: `{"type":["string","text"]}`, want: `"type"`},
		"required of one":         {schema: `{"required":"a"}`, want: `"required"`},
		"length in quotes":        {schema: `{"minLength":"5"}`, want: `"minLength"`},
		"half a length":           {schema: `{"minLength":1.5}`, want: `"minLength"`},
		"least above most":        {schema: `{"minItems":3,"maxItems":2}`, want: "above"},
		"minimum above maximum":   {schema: `{"minimum":3,"maximum":2}`, want: "above"},
		"minimum in quotes":       {schema: `{"minimum":"x"}`, want: `"minimum"`},
		"maximum beyond integers": {schema: `{"type":"number","maximum":1e23}`, strict: true, left: `"maximum" beyond 2^63`},
		"zod's float64":           {schema: `{"type":"number","minimum":-1.7976931348623157e+308}`, strict: true, left: `"minimum" beyond 2^63`},
		"multiple of nothing":     {schema: `{"multipleOf":0}`, want: `"multipleOf"`},
		"length beside a format":  {schema: `{"type":"string","format":"uri","minLength":1,"maxLength":2083}`, strict: true, left: `"format" together with "minLength"`},
		"zod's emoji":             {schema: `{"type":"string","format":"emoji","pattern":"^(?=[\\s\\S])\\p{Emoji}+$"}`, strict: true, left: "lookaround"},
		"word boundary":           {schema: `{"type":"string","pattern":"\\bx"}`, strict: true, left: `\b`},
		"boundary in a name":      {schema: `{"type":"object","patternProperties":{"\\bx":{}}}`, strict: true, left: `\b`},
		"lookahead and a length":  {schema: `{"type":"string","pattern":"(?=a)b","maxLength":9}`, strict: true, want: "lookaround"},
		"exclusive, draft 4":      {schema: `{"exclusiveMinimum":true}`, want: `"exclusiveMinimum"`},
		"half an integer":         {schema: `{"type":"integer","minimum":1.5}`, want: "whole"},
		"pattern of a number":     {schema: `{"pattern":5}`, want: `"pattern"`},
		"more than there are":     {schema: `{"properties":{"a":{}},"additionalProperties":false,"minProperties":2}`, want: `"minProperties"`},
		"nothing":                 {schema: `false`, want: "false"},
		"nothing inside":          {schema: `{"properties":{"a":false}}`, want: "false"},
		"nothing more":            {schema: `{"type":"array","prefixItems":[{}],"items":false}`, strict: true},
		"required and not there":  {schema: `{"properties":{"a":{}},"required":["b"],"additionalProperties":false}`, want: `"required"`},
		"required and undeclared": {schema: `{"type":"object","properties":{"a":{}},"required":["b"]}`, strict: true},

		"beside anyOf":             {schema: `{"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]}]}`, strict: true, left: `"type" beside "anyOf"`},
		"beside $ref":              {schema: `{"$ref":"#/$defs/a","minimum":1,"$defs":{"a":{"type":"integer"}}}`, strict: true, left: `"minimum" beside "$ref"`},
		"beside allOf":             {schema: `{"allOf":[{"type":"object"}],"required":["a"]}`, strict: true, left: `"required" beside "allOf"`},
		"beside enum":              {schema: `{"enum":["a"],"maxLength":3}`, strict: true, left: `"maxLength" beside "enum"`},
		"enum and its type":        {schema: `{"type":["string","null"],"enum":["a",null]}`, strict: true},
		"enum of another type":     {schema: `{"type":"string","enum":["a",1]}`, strict: true, left: `not of its "type"`},
		"described reference":      {schema: `{"$ref":"#/$defs/a","description":"a","default":1,"$defs":{"a":{"type":"integer"}}}`, strict: true},
		"one allOf":                {schema: `{"allOf":[{"$ref":"#/$defs/a"}],"title":"a","$defs":{"a":{"type":"integer"}}}`, strict: true},
		"oneOf of kinds":           {schema: `{"oneOf":[{"type":"string"},{"type":"integer"},{"const":null}]}`, strict: true},
		"oneOf of tags":            {schema: `{"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"discriminator":{"propertyName":"t"},"$defs":{"a":{"type":"object","properties":{"t":{"const":"a","type":"string"}},"required":["t"]},"b":{"type":"object","properties":{"t":{"enum":["b","c"]}},"required":["t"]}}}`, strict: true},
		"oneOf that overlaps":      {schema: `{"oneOf":[{"type":"integer"},{"type":"number"}]}`, strict: true, left: `"oneOf"`},
		"oneOf of optional tags":   {schema: `{"oneOf":[{"type":"object","properties":{"t":{"const":1}}},{"type":"object","properties":{"t":{"const":2}},"required":["t"]}]}`, strict: true, left: `"oneOf"`},
		"oneOf of a tree":          {schema: `{"oneOf":[{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]},{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}]}`, strict: true, left: `"oneOf"`},
		"length without type":      {schema: `{"minLength":3}`, strict: true, left: `without "type"`},
		"format and pattern":       {schema: `{"type":"string","format":"date","pattern":"^2"}`, strict: true},
		"tuple of older drafts":    {schema: `{"type":"array","items":[{"type":"string"}],"additionalItems":false}`, strict: true},
		"integer's format":         {schema: `{"type":"integer","format":"int32"}`, strict: true},
		"pydantic's optional":      {schema: `{"type":"object","properties":{"a":{"anyOf":[{"type":"string","maxLength":100},{"type":"null"}],"default":null,"title":"A"}},"required":["a"],"additionalProperties":false}`, strict: true},
		"names of many properties": {schema: `{"type":"object","properties":{"a.b":{"type":"string"},"type":{"type":"string"},"enum":{"type":"array","items":{"type":"string"}},"required":{"type":"boolean"}},"required":["type"]}`, strict: true},

		"strict not":         {schema: `{"not":{"type":"string"}}`, strict: true, left: `"not"`},
		"strict deep":        {schema: `{"type":"array","items":{"type":"number","multipleOf":2}}`, strict: true, left: `"multipleOf"`},
		"strict in defs":     {schema: `{"$ref":"#/$defs/a","$defs":{"a":{"uniqueItems":true}}}`, strict: true, left: `"uniqueItems"`},
		"strict allOf":       {schema: `{"allOf":[{},{}]}`, strict: true, left: `"allOf"`},
		"strict pattern":     {schema: `{"type":"string","pattern":"a","maxLength":3}`, strict: true, left: "together with"},
		"strict format":      {schema: `{"type":"string","format":"phone"}`, strict: true},
		"anyOf is an object": {schema: `{"anyOf":{}}`, want: `"anyOf"`},
		"properties a list":  {schema: `{"properties":[]}`, want: `"properties"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckSchema(newAccount(), json.RawMessage(c.schema), c.strict)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if left := Unenforced(newAccount(), json.RawMessage(c.schema)); c.strict && (left == nil) != (c.left == "") || c.left != "" && !strings.Contains(left.Error(), c.left) {
					t.Errorf("%v is left to the check, want %q in it", left, c.left)
				}
				return
			}

			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q in it", err, c.want)
			}
		})
	}
}

// manyProperties returns the schema of an object of n strings, which are all
// required, and with more keywords.
func manyProperties(n int, more string) string {
	properties, names := make([]string, 0, n), make([]string, 0, n)
	for i := range n {
		names = append(names, fmt.Sprintf(`"p%d"`, i))
		properties = append(properties, names[i]+`:{"type":"string"}`)
	}
	if more == "required" {
		more = `"required":[` + strings.Join(names, ",") + `]`
	}
	if more != "" {
		more = "," + more
	}
	return `{"type":"object","properties":{` + strings.Join(properties, ",") + `},"additionalProperties":false` + more + `}`
}

func manyPatterns(n int) string {
	patterns := make([]string, 0, n)
	for i := range n {
		patterns = append(patterns, fmt.Sprintf(`"^p%d[a-z]*$":{"type":"string"}`, i))
	}
	return `{"type":"object","patternProperties":{` + strings.Join(patterns, ",") + `}}`
}

func manyValues(n, size int) string {
	values := make([]string, 0, n)
	for i := range n {
		values = append(values, fmt.Sprintf(`"%0*d"`, size, i))
	}
	return `{"enum":[` + strings.Join(values, ",") + `]}`
}

func manyLengths(n int) string {
	lengths := make([]string, 0, n)
	for i := range n {
		lengths = append(lengths, fmt.Sprintf(`"p%d":{"type":"string","maxLength":%d},"q%d":{"type":"string","maxLength":%d}`, i, 300+i, i, 300+i))
	}
	return `{"type":"object","properties":{` + strings.Join(lengths, ",") + `}}`
}

// manyRefs returns a schema with a chain of n references.
func manyRefs(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"%d":{"type":"object","properties":{"p":{"$ref":"#/$defs/%d"}}},`, i, i+1)
	}
	fmt.Fprintf(&b, `"%d":{}}}`, n)
	return b.String()
}

// TestSpellingsOfAReferenceAreOne shows that a reference is followed once, however
// often and in whatever spellings it occurs.
func TestSpellingsOfAReferenceAreOne(t *testing.T) {
	c := schemaCheck{root: map[string]any{"$defs": map[string]any{"a/b": true, "c": []any{}}, "anyOf": []any{true}}}
	paths := map[string]bool{}
	for _, ref := range []string{"#/$defs/a~1b", "#/$defs/%61~1b", "#/%24defs/a~1%62"} {
		target := c.find(ref)
		if !target.ok {
			t.Errorf("%s leads nowhere", ref)
		}
		paths[target.path] = true
	}
	for _, ref := range []string{"#/anyOf/0", "#/anyOf/00", "#/anyOf/%30"} {
		if target := c.find(ref); !target.ok || target.path != "/anyOf/0" {
			t.Errorf("%s is %q, %v", ref, target.path, target.ok)
		}
	}
	if len(paths) != 1 {
		t.Errorf("paths %v", paths)
	}
}

// TestSchemaPath shows the paths of errors.
func TestSchemaPath(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties":{"a":{"items":{"anyOf":[{},{"pattern":5}]}}}}`:         ".properties.a.items.anyOf.1",
		`{"properties":{"a":{"type":"string","pattern":"(?=x)"}}}`:            ".properties.a",
		`{"$defs":{"a":{"enum":[]}}}`:                                         ".$defs.a",
		`{"items":[{},{"x":1,"x":2}]}`:                                        ".items.1",
		`{"type":"text"}`:                                                     "",
		`{"properties":{"` + strings.Repeat("ä", 200) + `":{"type":"text"}}}`: ".properties." + strings.Repeat("ä", 94) + "…",
	} {
		if err := CheckSchema(newAccount(), json.RawMessage(schema), true); err == nil || SchemaPath(err) != want {
			t.Errorf("%.60s: path %q of %v, want %q", schema, SchemaPath(err), err, want)
		}
	}
}

// TestSchemaErrorsNameNoProperty shows that errors contain no names of properties,
// which may be part of a prompt.
func TestSchemaErrorsNameNoProperty(t *testing.T) {
	for _, schema := range []string{
		`{"properties":{"secret":{"not":{}}}}`, `{"$ref":"#/$defs/secret"}`, `{"patternProperties":{"secret(?=":{}}}`, `{"properties":{"secret":{"format":"secret","minLength":1}}}`,
	} {
		err := CheckSchema(newAccount(), json.RawMessage(schema), true)
		if err == nil {
			err = Unenforced(newAccount(), json.RawMessage(schema))
		}
		if err == nil || strings.Contains(err.Error(), "secret") {
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
		_ = CheckSchema(newAccount(), json.RawMessage(schema), strict) // ends, and does not panic
	})
}

func FuzzCheckGrammar(f *testing.F) {
	f.Add("root ::= \"a\\\"\" [b-\\]] Rule (\"c\") # x")
	f.Fuzz(func(_ *testing.T, grammar string) { _ = CheckGrammar(grammar) })
}
