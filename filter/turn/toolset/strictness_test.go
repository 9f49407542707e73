package toolset

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestStrictnessOfTheOperator shows what is enforced of each kind of tool at each level: "schema", "object",
// "text", or "code".
func TestStrictnessOfTheOperator(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`
	named := func(name string) item.ToolName { return item.ToolName{Namespace: item.FunctionsNamespace, Name: name} }
	tools := []harmony.Namespace{{Name: item.FunctionsNamespace, Tools: []harmony.Tool{
		{Name: "plain", Parameters: json.RawMessage(schema)},
		{Name: "loose", Parameters: json.RawMessage(schema)},
		{Name: "strict", Parameters: json.RawMessage(schema)},
		{Name: "custom", Parameters: json.RawMessage(fields.CustomParameters)},
		{Name: "bare"},
		{Name: "odd", Parameters: json.RawMessage(`{"type":"string"}`)},
	}}}
	python := []harmony.Namespace{{Name: "python"}, {Name: "browser", Tools: []harmony.Tool{{Name: "open"}}}}

	for _, c := range []struct {
		name string
		// A tool is strict.
		strict bool
		level  string
		change func(*request.Context, *request.Input)
		want   map[string]string
	}{
		{name: "none", level: request.StrictnessNone},
		{name: "no level"},
		{name: "names", level: request.StrictnessNames, want: map[string]string{
			"plain": "text", "loose": "text", "strict": "text", "custom": "text", "bare": "text", "odd": "text",
			"python": "code", "browser.open": "text",
		}},
		{name: "arguments", level: request.StrictnessArguments, want: map[string]string{
			"plain": "schema", "loose": "text", "strict": "schema", "custom": "text", "bare": "object", "odd": "object",
			"python": "code", "browser.open": "text",
		}},
		{name: "all arguments", level: request.StrictnessAll, want: map[string]string{
			"plain": "schema", "loose": "schema", "strict": "schema", "custom": "text", "bare": "object", "odd": "object",
			"python": "code", "browser.open": "text",
		}},
		{name: "a strict tool beside", level: request.StrictnessArguments, strict: true, want: map[string]string{
			"plain": "schema", "loose": "object", "strict": "schema", "custom": "object", "bare": "object", "odd": "object",
			"python": "code", "browser.open": "object",
		}},
		{name: "tools without calls", level: request.StrictnessAll, change: func(_ *request.Context, in *request.Input) { in.NoCalls = true }},
		// What cannot go together with a grammar is the client's own wish.
		{name: "an output of a least length", level: request.StrictnessAll, change: func(_ *request.Context, in *request.Input) { in.Engine.MinTokens = 5 }},
		{name: "a continued message", level: request.StrictnessAll, change: func(_ *request.Context, in *request.Input) { in.Continue = true }},
		{name: "an engine without grammars", level: request.StrictnessAll, change: func(rc *request.Context, _ *request.Input) { rc.Checked = true }},
	} {
		rc := &request.Context{
			Env: &request.Env{Limits: request.DefaultLimits()}, Model: &request.Model{ToolStrictness: c.level},
		}
		in := &request.Input{
			Tools: tools, Builtins: python, AsIs: map[item.ToolName]bool{named("custom"): true},
			Strict: map[item.ToolName]bool{named("loose"): false},
		}
		if c.strict {
			in.SetStrict(named("strict"), request.Said(true))
		}
		if c.change != nil {
			c.change(rc, in)
		}
		set, err := New(rc, in, nil)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := NewSpec(rc, in, in.Choice, set)
		if err != nil {
			t.Fatal(err)
		}

		if spec.Restricts() != c.strict {
			t.Errorf("%s: what the operator asks for counts as the client's", c.name)
		}
		format := spec.Format(nil)
		if (format != nil) != (c.want != nil) {
			t.Errorf("%s: a format: %t", c.name, format != nil)
		}
		if c.want == nil {
			continue
		}

		got := map[string]string{}
		for _, tool := range spec.Tools {
			got[set.Named(tool.Recipient).Name] = enforcedOf(&tool)
			if tool.Builtin {
				delete(got, set.Named(tool.Recipient).Name)
				got[tool.Recipient] = enforcedOf(&tool)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func enforcedOf(tool *constraint.Tool) string {
	switch {
	case tool.Code:
		return "code"
	case tool.Schema != nil || tool.Enforced.Schema != nil:
		return "schema"
	case tool.Free:
		return "text"
	}
	return "object"
}

// TestAdvisedSchemasCompileFast shows that patterns and lengths are left out of the schemas that no client asks
// to be enforced, where they would take the engine long.
func TestAdvisedSchemasCompileFast(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","maxLength":200}}}`)
	var forced forcedSchemas
	for _, c := range []struct {
		most int
		want string
	}{
		{maxAdvisedCost, `{"type":"object","properties":{"a":{"type":"string"}}}`},
		{constraint.MaxCost, string(schema)},
	} {
		if _, value := forced.schema(nil, schema, schemaRoom{maxStrictSchemas, c.most}); string(value.Schema) != c.want {
			t.Errorf("with a cost of %d: %s", c.most, value.Schema)
		}
	}
}
