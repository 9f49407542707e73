package enginesim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
)

// keywordSchemas are schemas with the keywords that restrict values, by what they
// show.
var keywordSchemas = map[string]string{
	"tuple":                 `{"type":"array","prefixItems":[{"const":"a"},{"type":"integer"},{"type":"null"}],"items":false,"minItems":3}`,
	"tuple and more":        `{"type":"array","prefixItems":[{"type":"boolean"}],"items":{"type":"string","format":"date"},"minItems":3}`,
	"tuple of draft 7":      `{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"string"},{"type":"integer"}],"additionalItems":false,"minItems":2}`,
	"unique numbers":        `{"type":"array","items":{"type":"integer","minimum":3,"maximum":7},"uniqueItems":true,"minItems":5}`,
	"unique words":          `{"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":3}`,
	"unique texts":          `{"type":"array","items":{"type":"string","maxLength":2},"uniqueItems":true,"minItems":5}`,
	"unique matches":        `{"type":"array","items":{"type":"string","pattern":"^[a-c]{2}$"},"uniqueItems":true,"minItems":3}`,
	"unique objects":        `{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},"uniqueItems":true,"minItems":3}`,
	"contains":              `{"type":"array","items":{"type":"integer"},"contains":{"minimum":5},"minContains":2,"minItems":4}`,
	"contains and nothing":  `{"type":"array","contains":{"const":"a"}}`,
	"exclusive":             `{"type":"number","exclusiveMinimum":1,"exclusiveMaximum":2}`,
	"exclusive integers":    `{"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":3}`,
	"negative":              `{"type":"integer","exclusiveMaximum":-5}`,
	"multiple":              `{"type":"integer","multipleOf":7,"minimum":15}`,
	"multiple of two":       `{"allOf":[{"type":"integer","multipleOf":4},{"multipleOf":6}],"minimum":1}`,
	"fraction":              `{"type":"number","multipleOf":0.5,"exclusiveMinimum":0,"exclusiveMaximum":1}`,
	"large":                 `{"type":"number","minimum":1e300}`,
	"length":                `{"type":"string","minLength":20,"maxLength":20}`,
	"no text":               `{"type":"string","maxLength":0}`,
	"pattern and length":    `{"type":"string","pattern":"^[a-z]+$","minLength":5,"maxLength":6}`,
	"pattern inside":        `{"type":"string","pattern":"[0-9]{3}"}`,
	"alternatives":          `{"type":"string","pattern":"^(?:ab|cd)+x?$","minLength":5}`,
	"enum beside others":    `{"enum":["a",1,5,"abc"],"type":"integer","minimum":2}`,
	"const":                 `{"const":{"a":[1,"b"]}}`,
	"allOf":                 `{"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"type":"object","properties":{"a":{"minLength":9},"b":{"type":"integer"}},"required":["b"]}]}`,
	"oneOf":                 `{"oneOf":[{"type":"number","minimum":0},{"type":"integer","maximum":5}]}`,
	"anyOf that is closed":  `{"anyOf":[{"type":"integer","minimum":5,"maximum":4},{"type":"null"}]}`,
	"anyOf and oneOf":       `{"type":"integer","anyOf":[{"minimum":5}],"oneOf":[{"multipleOf":3},{"multipleOf":7}]}`,
	"beside $ref":           `{"$ref":"#/$defs/a","minimum":8,"$defs":{"a":{"type":"integer"}}}`,
	"a list":                `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}}}`,
	"a tree":                `{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}},"required":["children"]}`,
	"undeclared":            `{"type":"object","required":["a"],"additionalProperties":{"type":"integer","minimum":4}}`,
	"names":                 `{"type":"object","propertyNames":{"pattern":"^k[0-9]$"},"minProperties":3,"additionalProperties":{"type":"boolean"}}`,
	"patterns of names":     `{"type":"object","patternProperties":{"^x":{"type":"integer"}},"additionalProperties":false,"minProperties":1}`,
	"optional but needed":   `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"null"}},"minProperties":2,"additionalProperties":false}`,
	"default":               `{"type":"integer","default":"no","minimum":3}`,
	"types":                 `{"type":["null","string"],"minLength":3}`,
	"escaped name":          `{"$ref":"#/$defs/a~1b%20c","$defs":{"a/b c":{"type":"null"}}}`,
	"every format":          `{"type":"object","properties":{"a":{"type":"string","format":"email"},"b":{"type":"string","format":"uri","minLength":30},"c":{"type":"string","format":"uuid"},"d":{"type":"string","format":"ipv6"}},"required":["a","b","c","d"]}`,
	"a combination to find": `{"type":"object","properties":{"k":{"enum":["a","b"]}},"required":["k"],"oneOf":[{"properties":{"k":{"const":"c"}}},{"properties":{"k":{"const":"b"},"n":{"type":"integer"}},"required":["n"]}]}`,
}

// allSchemas are keywordSchemas and those of schema generators.
func allSchemas(t *testing.T) map[string]string {
	t.Helper()
	schemas := map[string]string{}
	for name, schema := range keywordSchemas {
		schemas[name] = schema
	}
	text, err := os.ReadFile("../../../../filter/api/apitest/testdata/generators.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, schema, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && name[0] != '#' {
			schemas[name] = schema
		}
	}
	return schemas
}

// TestSmallestIsOfItsSchema shows that the smallest value of a schema is one of its
// values: by this project's validator, and by jsonschema for Python if it is
// installed. The format of strings is checked by neither.
func TestSmallestIsOfItsSchema(t *testing.T) {
	var lines bytes.Buffer
	var names []string
	for name, schema := range allSchemas(t) {
		got, err := smallestInstance(schema)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		v, err := constraint.NewValidator(nil, json.RawMessage(schema), nil)
		switch {
		case err != nil && name != "zod json": // whose references lead to a value in too many ways
			t.Errorf("%s: %v", name, err)
		case err == nil && !accepts(v, got):
			t.Errorf("%s: %s is not of %s", name, got, schema)
		}
		names = append(names, name)
		fmt.Fprintf(&lines, "%s\t%s\n", schema, got)
	}
	const python = "../../../../.venv/bin/python"
	if _, err := os.Stat(python); err != nil {
		t.Skip("jsonschema for Python is not installed: make venv")
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import json, sys, jsonschema
for line in sys.stdin:
    schema, value = map(json.loads, line.split("\t"))
    try:
        jsonschema.validators.validator_for(schema)(schema).validate(value)
        print("ok")
    except jsonschema.ValidationError as e:
        print(e.message)
    except Exception:
        print("ok") # a pattern that Python does not have
`)
	var faults bytes.Buffer
	cmd.Stdin, cmd.Stderr = &lines, &faults
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v; if a module is missing, make venv installs it:\n%s", err, &faults)
	}
	said := bufio.NewScanner(bytes.NewReader(out))
	for _, name := range names {
		if !said.Scan() || said.Text() != "ok" {
			t.Errorf("%s: Python says %s", name, said.Text())
		}
	}
}

// TestNoSmallest has schemas without a value, or without one that is found within
// bounds.
func TestNoSmallest(t *testing.T) {
	for name, schema := range map[string]string{
		"nothing":           `false`,
		"nothing inside":    `{"type":"object","required":["a"],"properties":{"a":false}}`,
		"no type":           `{"allOf":[{"type":"string"},{"type":"integer"}]}`,
		"no number":         `{"type":"integer","minimum":5,"maximum":4}`,
		"itself":            `{"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}}`,
		"itself at once":    `{"$ref":"#"}`,
		"too few to differ": `{"type":"array","items":{"type":"boolean"},"uniqueItems":true,"minItems":3}`,
		"no property":       `{"type":"object","required":["b"],"additionalProperties":false}`,
		"alternatives":      multiplied(`{"anyOf":[{"type":"integer","minimum":2,"maximum":1},%s]}`),
		"huge":              `{"type":"string","minLength":100000000}`,
	} {
		if got, err := smallestInstance(schema); err == nil && !strings.HasPrefix(name, "alternatives") {
			t.Errorf("%s: %.100s", name, got)
		} else if err == nil && !gjson.Valid(got) {
			t.Errorf("%s: %.100s is no JSON", name, got)
		}
	}
}

func accepts(v *constraint.Validator, text string) bool {
	ok, err := v.Accepts(nil, []byte(text))

	return ok && err == nil
}
