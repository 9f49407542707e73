package harmony

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// list returns n copies of an item of a JSON array.
func list(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

// refsTo returns a schema with many references to a definition, which all have
// the same type.
func refsTo(definition string) string {
	return `{"$defs":{"a":` + definition + `},"anyOf":[` + list(`{"$ref":"#/$defs/a"}`, 4000) + `]}`
}

// multiplied returns a schema that references expand to width^depth schemas.
func multiplied(keyword string, width, depth int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"$defs":{"d%d":{"type":"string"}`, depth)
	for i := range depth {
		fmt.Fprintf(&b, `,"d%d":{%q:[%s]}`, i, keyword, list(fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1), width))
	}
	return b.String() + `},"type":"object","properties":{"x":{"$ref":"#/$defs/d0"}}}`
}

// TestSchemaTooMuchWork checks that schemas multiplied by references are an
// error, even if the text is small, and that finding that out takes little memory.
func TestSchemaTooMuchWork(t *testing.T) {
	for name, schema := range map[string]string{
		"equal variants":      multiplied("anyOf", 8, 12),
		"more of them":        multiplied("anyOf", 100, 25),
		"long equal text":     refsTo(`{"enum":["` + strings.Repeat("x", 150_000) + `"]}`),
		"unknown keywords":    refsTo(`{` + manyNames(10_000) + `}`),
		"required names":      refsTo(`{"type":"object","required":[` + list(`""`, 30_000) + `]}`),
		"types that are not":  refsTo(`{"type":[` + list(`1`, 60_000) + `]}`),
		"variants unwritten":  refsTo(`{"anyOf":[` + list(`{}`, 30_000) + `]}`),
		"parts unwritten":     refsTo(`{"allOf":[{` + manyNames(10_000) + `}]}`),
		"long references":     refsTo(`{"$ref":"#/` + strings.Repeat("x", 150_000) + `"}`),
		"pointers of slashes": refsTo(`{"$ref":"#/` + strings.Repeat("/", 150_000) + `"}`),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, err := appendParameters([]byte("before"), []byte(schema), false, new(schemaWork))
			runtime.ReadMemStats(&after)
			if !errors.Is(err, errSchemaTooMuchWork) {
				t.Errorf("%d bytes, %v", len(out), err)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 40<<20+uint64(64*len(schema)) {
				t.Errorf("%d bytes are allocated for %d", allocated, len(schema))
			}
		})
	}
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"x%d":0,`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// TestSchemaWorkWithoutReferences checks that a schema without references never
// needs too many steps.
func TestSchemaWorkWithoutReferences(t *testing.T) {
	deep := `{"type":"object","properties":{` + strings.ReplaceAll(manyNames(1000), ":0", `:{"type":"string"}`) + `}}`
	for range 20 {
		deep = `{"anyOf":[` + deep + `,` + `{"anyOf":[{},{},{"type":"null"}]},{"type":"string"}]}`
	}
	for name, schema := range map[string]string{
		"variants":       `{"anyOf":[` + list(`{}`, 80_000) + `,{"type":"null"}]}`,
		"equal variants": `{"anyOf":[` + list(`{"type":"null"}`, 15_000) + `]}`,
		"unions":         `{"anyOf":[` + list(`{"anyOf":[{},{"type":[]}]}`, 9_000) + `]}`,
		"parts":          `{"allOf":[` + list(`{"allOf":[{},{}]}`, 14_000) + `]}`,
		"items":          `{"prefixItems":[` + list(`{}`, 80_000) + `]}`,
		"types":          `{"type":[` + list(`""`, 80_000) + `]}`,
		"properties":     `{"properties":{` + strings.ReplaceAll(manyNames(20_000), ":0", `:{}`) + `}}`,
		"property parts": `{"properties":{"":{"allOf":[` + list(`{}`, 80_000) + `],"anyOf":[{"type":1}]}}}`,
		"names":          `{` + manyNames(20_000) + `}`,
		"deep":           deep,
	} {
		t.Run(name, func(t *testing.T) {
			var work schemaWork
			_, err := appendParameters(nil, []byte(schema), false, &work)
			if errors.Is(err, errSchemaTooMuchWork) || work.spent > 0 {
				t.Errorf("%d bytes take %d steps too many: %v", len(schema), work.spent, err)
			}
		})
	}
}

// TestToolsTooMuchWork checks the limit for all tools of a message. Tools that
// need no additional steps are not affected by it. Tools that pass ToolCheck
// can be rendered together.
func TestToolsTooMuchWork(t *testing.T) {
	var check ToolCheck
	var fit []Tool
	for range 512 {
		for _, parameters := range []string{multiplied("anyOf", 8, 12), multiplied("anyOf", 8, 4)} {
			tool := Tool{Name: fmt.Sprintf("f%d", len(fit)), Parameters: json.RawMessage(parameters)}
			if check.Check(tool) == nil {
				fit = append(fit, tool)
			}
		}
	}
	if check.work.spent > maxStepsTogether+512*2*1000 {
		t.Errorf("%d steps", check.work.spent)
	}
	if len(fit) == 0 || len(fit) == 512 {
		t.Errorf("%d tools are fit", len(fit))
	}
	plain := Tool{Name: "plain", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}}`)}
	if err := check.Check(plain); err != nil {
		t.Error(err)
	}
	render := func(tools ...Tool) error {
		developer := &DeveloperContent{Tools: []Namespace{{Name: "functions", Tools: tools}}}
		_, err := NewRenderer().AppendConversation(nil, []Message{{Role: RoleDeveloper, Content: []Content{developer}}})
		return err
	}
	if err := render(append(fit, plain)...); err != nil {
		t.Error(err)
	}
	bad := Tool{Name: "bad", Parameters: json.RawMessage(multiplied("anyOf", 8, 12))}
	if err := render(bad); !errors.Is(err, errSchemaTooMuchWork) || !strings.Contains(err.Error(), `tool "bad": its parameters take too many steps`) {
		t.Errorf("the error is %v", err)
	}
}

// TestManyVariants checks that equal variants are written once, in the order of
// the first ones, for any number of variants.
func TestManyVariants(t *testing.T) {
	variants, want := make([]string, 0, 20_000), make([]string, 0, 10_000)
	for i := range 20_000 {
		variants = append(variants, fmt.Sprintf(`{"const":%d}`, i/2))
		if i%2 == 0 {
			want = append(want, strconv.Itoa(i/2))
		}
	}
	got, err := appendParameters(nil, []byte(`{"anyOf":[`+strings.Join(variants, ",")+`]}`), false, new(schemaWork))
	if err != nil || string(got) != "_: "+strings.Join(want, " | ") {
		t.Errorf("%.100s, %v", got, err)
	}
	got, err = appendParameters(nil, []byte(`{"type":["integer","x","number","null","x","null"]}`), false, new(schemaWork))
	if err != nil || string(got) != "_: number | any | null" {
		t.Errorf("%s, %v", got, err)
	}
}

// TestManyReferences resolves references through large objects, including one
// with a duplicate member.
func TestManyReferences(t *testing.T) {
	got, err := appendParameters(nil, []byte(`{"$defs":{`+manyNames(100)+`,"a":{"type":"null"},"a":{"type":"string"}},"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}`), false, new(schemaWork))
	if err != nil || string(got) != "_: string | any" {
		t.Errorf("%s, %v", got, err)
	}
}

// TestControlCharacters quotes all of them.
func TestControlCharacters(t *testing.T) {
	t.Parallel()
	var text, want strings.Builder
	for c := range byte(' ') {
		text.WriteByte(c)
		if short := strings.IndexByte("\b\t\n\f\r", c); short >= 0 {
			want.WriteString(`\` + "btnfr"[short:short+1])
		} else {
			fmt.Fprintf(&want, `\u%04x`, c)
		}
	}
	if got := string(appendQuoted(nil, text.String())); got != `"`+want.String()+`"` {
		t.Errorf("%s", got)
	}
}
