package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

func repeated(s string, n int) string { return strings.TrimSuffix(strings.Repeat(s+",", n), ",") }

func quotedNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d"`, i)
	}
	return b.String()[1:]
}

// allocated returns how many bytes f allocates, which reveals quadratic work.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestCopiesAreBounded has properties that are required and not declared, for which
// additionalProperties is copied. The copies multiply if they nest.
func TestCopiesAreBounded(t *testing.T) {
	nested := func(levels, names int) json.RawMessage {
		schema := `{"type":"string"}`
		for range levels {
			schema = `{"type":"object","required":[` + quotedNames(names) + `],"additionalProperties":` + schema + `}`
		}
		return json.RawMessage(schema)
	}

	for _, strict := range []bool{true, false} {
		for name, schema := range map[string]json.RawMessage{
			"nested":    nested(30, 8),
			"many":      nested(1, 8000),
			"in a part": json.RawMessage(`{"anyOf":[{"type":"object","properties":{"a":` + string(nested(30, 8)) + `}}]}`),
			"large":     json.RawMessage(`{"type":"object","required":["a","b","c"],"additionalProperties":{"enum":["` + strings.Repeat("x", 30_000) + `"]}}`),
		} {
			if err := CheckSchema(newAccount(), schema, strict); err == nil || !strings.Contains(err.Error(), "requires properties that it does not declare") {
				t.Errorf("%s: the error is %v", name, err)
			}
		}

		for _, schema := range []json.RawMessage{nested(2, 8), nested(1, 1000), nested(8, 1)} {
			if err := CheckSchema(newAccount(), schema, strict); err != nil {
				t.Errorf("%.60s: %v", schema, err)
			}
			_, copies := sizeOf(mustDecode(t, schema))
			if grown := len(schemaForEngines(newAccount(), schema)) - len(schema); grown > 2*copies+2*len(schema) {
				t.Errorf("%.60s grows by %d bytes, not by %d", schema, grown, copies)
			}
		}
	}
}

func mustDecode(t *testing.T, schema json.RawMessage) (v any) {
	t.Helper()
	if err := json.Unmarshal(schema, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestManyUndeclared shows that every undeclared property is declared once.
func TestManyUndeclared(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":[` + quotedNames(8000) + `,"1","2"]}`)
	want := strings.TrimSuffix(string(schema), "}") + `,"properties":{` + strings.ReplaceAll(quotedNames(8000), ",", ":true,") + `:true}}`
	if got := string(schemaForEngines(newAccount(), schema)); got != want {
		t.Errorf("%.100s … %s", got, got[len(got)-100:])
	}
}

// TestTypesOnce shows that repeated types have no effect.
func TestTypesOnce(t *testing.T) {
	object := map[string]any{"type": slices.Repeat([]any{"string", "integer", "number"}, 1000)}
	if names, ok := typesOf(object); !ok || len(names) != 3 {
		t.Errorf("%d names, %t", len(names), ok)
	}
	if kinds := kindsOf(object, slices.Repeat([]any{"a", nil}, 1000)); !slices.Equal(kinds, []string{"null", "number", "string"}) {
		t.Errorf("the kinds are %v", kinds)
	}
}

// TestLongValuesOfOneOf shows that comparing long values is bounded.
func TestLongValuesOfOneOf(t *testing.T) {
	union := func(schemas, size, times int) json.RawMessage {
		defs, refs, unions := make([]string, 0, schemas), make([]string, 0, schemas), make([]string, 0, times)
		for i := range schemas {
			defs = append(defs, fmt.Sprintf(`"%d":{"const":[%d,%s]}`, i, i, repeated("1", size)))
			refs = append(refs, fmt.Sprintf(`{"$ref":"#/$defs/%d"}`, i))
		}
		for i := range times {
			unions = append(unions, fmt.Sprintf(`"%d":{"oneOf":[%s]}`, i, strings.Join(refs, ",")))
		}
		return json.RawMessage(`{"$defs":{` + strings.Join(defs, ",") + `},"type":"object","properties":{` + strings.Join(unions, ",") + `}}`)
	}
	for _, schema := range []json.RawMessage{union(50, 10, 20), union(50, 1000, 40)} {
		steps, err := stepsOf(func(account *work.Account) error { return Unenforced(account, schema) })
		if err != nil || steps > work.PerRequest/4 {
			t.Errorf("%d steps, %v", steps, err)
		}
	}
}

func TestWorkOfTexts(t *testing.T) {
	refs := repeated(`{"$ref":"#/$defs/a"}`, 2000)
	for range 25 {
		refs = `{"anyOf":[` + refs + `]}`
	}

	var others strings.Builder
	for i := range 25 {
		fmt.Fprintf(&others, `,{"$ref":"#/$defs/b%s"}`, strings.Repeat("/anyOf/0", i))
	}

	referred := json.RawMessage(`{"$defs":{"a":{"type":"string"},"b":` + refs + `},"anyOf":[{"type":"string"}` + others.String() + `]}`)
	for name, c := range map[string]struct {
		most uint64
		f    func() error
	}{
		"characters":        {8 << 20, func() error { return CheckRegex(newAccount(), "^"+strings.Repeat(".", 100)+strings.Repeat("()", 4000)) }},
		"lines of comments": {1 << 20, func() error { return CheckGrammar("root ::= \"a\"\n" + strings.Repeat("#\n", 30_000)) }},
		"references":        {60 << 20, func() error { return CheckSchema(newAccount(), referred, true) }},
	} {
		var err error
		if n := allocated(func() { err = c.f() }); n > c.most || err != nil {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}

// TestNestedAnchors shows that anchors are found at any depth.
func TestNestedAnchors(t *testing.T) {
	for pattern, anchors := range map[string]bool{
		strings.Repeat("(", 300) + "^a$" + strings.Repeat(")", 300): true,
		"^((a|b)|c)$":          true,
		"(^a|^b)(c|d)$":        true,
		"((x|^a)|(^b|y))(c|d)": true,
		"(^a|b$)c?":            false,
		"(a(b|c^))":            false,
	} {
		text, _, err := engineRegex(newAccount(), pattern, true)
		if anchors != (err == nil) || !anchors && !errors.Is(err, errAnchor) {
			t.Errorf("%.40s: %s, %v", pattern, text, err)
		}
	}
}

// TestWorkOfValidators has schemas that would take too much memory, and large ones that
// take a small part of what a request may take.
func TestWorkOfValidators(t *testing.T) {
	var different strings.Builder
	for i := range 100 {
		fmt.Fprintf(&different, `,{"pattern":"%d(a{30}){30}"}`, i)
	}
	for schema, want := range map[string]string{
		`{"pattern":"` + strings.Repeat(".{1000}", 100) + `"}`:                                              "states",
		`{"patternProperties":{"` + strings.Repeat(".{1000}", 100) + `":{}}}`:                               "states",
		`{"anyOf":[` + different.String()[1:] + `]}`:                                                        "states",
		strings.Repeat(`{"anyOf":[`, 30) + repeated(`{"type":"string"}`, 10_000) + strings.Repeat(`]}`, 30): "",
		`{"properties":{"` + strings.Repeat("x", 100_000) + `":{"anyOf":[` + repeated("{}", 2000) + `]}}}`:  "",
	} {
		steps, err := stepsOf(func(account *work.Account) error {
			_, err := NewValidator(account, json.RawMessage(schema), nil)
			return err
		})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) || steps > work.PerRequest/5 {
			t.Errorf("%.60s: %d steps, %v", schema, steps, err)
		}
	}
}

// TestPatternsOfTheCheck has patterns that only the check of the reply can enforce.
// Compiling them is bounded.
func TestPatternsOfTheCheck(t *testing.T) {
	schema := func(count int, pattern string) json.RawMessage {
		var properties strings.Builder
		for i := range count {
			fmt.Fprintf(&properties, `,"%d":{"type":"string","pattern":"%d%s"}`, i, i, pattern)
		}
		return json.RawMessage(`{"type":"object","properties":{` + properties.String()[1:] + `},"required":[` + quotedNames(count) + `],"additionalProperties":false}`)
	}
	var err error
	if n := allocated(func() { err = CheckSchema(newAccount(), schema(1, "x^y"+strings.Repeat(`\\pL{1000}`, 60)), true) }); !errors.Is(err, errCost) || n > 4<<20 {
		t.Errorf("one with many states: %v, %d bytes are allocated", err, n)
	}
	steps, err := stepsOf(func(account *work.Account) error { return CheckSchema(account, schema(200, `x^y\\pL{50}`), true) })
	if err != nil || steps > work.PerRequest/10 {
		t.Errorf("many: %d steps, %v", steps, err)
	}
	if err := CheckSchema(newAccount(), schema(20, "x^y"), true); err != nil {
		t.Errorf("a few small ones: %v", err)
	}
}
