package toolset

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestBuiltinsInSpec shows which tools the spec of the output has.
func TestBuiltinsInSpec(t *testing.T) {
	t.Parallel()
	strict := map[item.ToolName]bool{{Namespace: item.FunctionsNamespace, Name: "f"}: true}
	python := item.ToolName{Namespace: "python", Builtin: true}

	for _, c := range []struct {
		name string
		in   request.Input
		// Recipients; nil: any output is valid.
		want []string
	}{
		{"no spec", request.Input{}, nil},
		{"strict", request.Input{Tools: functions("f"), Strict: strict}, []string{"functions.f", "browser.search", "browser.open", "browser.find", "python", "container.exec"}},
		{"format", request.Input{Format: fields.JSONObject()}, []string{"browser.search", "browser.open", "browser.find", "python", "container.exec"}},
		{"format without calls", request.Input{Format: fields.JSONObject(), NoCalls: true}, []string{}},
		{"required", request.Input{Tools: functions("f"), Choice: request.Choice{Required: true}}, []string{"functions.f"}},
		{"required, and there are no others", request.Input{Choice: request.Choice{Required: true}}, []string{"browser.search", "browser.open", "browser.find", "python", "container.exec"}},
		{"required by name", request.Input{Tools: functions("f"), Choice: request.Choice{Required: true, Allowed: []item.ToolName{python}}}, []string{"python"}},
		{"allowed", request.Input{Tools: functions("f"), Choice: request.Choice{Allowed: []item.ToolName{{Namespace: item.FunctionsNamespace, Name: "f"}}}}, []string{"functions.f"}},
	} {
		c.in.Builtins = builtins()
		tools, err := newSet(c.in.Tools, c.in.Builtins, request.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}

		p, err := NewSpec(&request.Context{Model: &request.Model{}}, &c.in, tools.Narrow(c.in.Choice), tools)
		if err != nil {
			t.Fatal(err)
		}

		if c.want == nil {
			if p.Format(nil) != nil {
				t.Errorf("%s: the output has a spec", c.name)
			}
			continue
		}

		got := []string{}
		for _, t := range p.Tools {
			got = append(got, t.Recipient)
		}

		if diff := cmp.Diff(c.want, got); diff != "" || p.Format(nil) == nil {
			t.Errorf("%s: %s", c.name, diff)
		}

		for _, tool := range p.Tools {
			if tool.Builtin != !strings.HasPrefix(tool.Recipient, "functions.") || tool.Code != (tool.Recipient == "python") {
				t.Errorf("%s: %+v", c.name, tool)
			}
		}
	}
}

// TestForcedSchemas shows which schemas of tools that are not strict are enforced if
// a call is required.
func TestForcedSchemas(t *testing.T) {
	t.Parallel()
	tool := func(parameters string) []harmony.Namespace {
		return []harmony.Namespace{{Name: item.FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: json.RawMessage(parameters)}}}}
	}

	const city = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`
	for name, c := range map[string]struct {
		parameters string
		choice     request.Choice
		// The schema; "": any object.
		want string
	}{
		"required":                {city, request.Choice{Required: true}, city},
		"named":                   {city, request.Choice{Required: true, Allowed: []item.ToolName{{Namespace: item.FunctionsNamespace, Name: "f"}}}, city},
		"allowed":                 {city, request.Choice{Allowed: []item.ToolName{{Namespace: item.FunctionsNamespace, Name: "f"}}}, ""},
		"no object":               {`{"type":"string"}`, request.Choice{Required: true}, ""},
		"without a type":          {`{"properties":{"city":{"type":"string"}}}`, request.Choice{Required: true}, `{"type":"object","properties":{"city":{"type":"string"}}}`},
		"several types":           {`{"type":["object","null"]}`, request.Choice{Required: true}, ""},
		"nothing":                 {`{}`, request.Choice{Required: true}, ""},
		"leads nowhere":           {`{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}}}`, request.Choice{Required: true}, ""},
		"beyond grammars in part": {`{"type":"object","properties":{"a":{"type":"string","pattern":"(?=a)"}}}`, request.Choice{Required: true}, `{"type":"object","properties":{"a":{"type":"string","pattern":"(?=a)"}}}`},
	} {
		in := &request.Input{Tools: tool(c.parameters), Choice: c.choice}
		tools, err := newSet(in.Tools, nil, request.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}

		spec, err := NewSpec(&request.Context{Model: &request.Model{}}, in, c.choice, tools)
		if err != nil || string(spec.Tools[0].Schema) != c.want {
			t.Errorf("%s: the schema is %s, error %v", name, spec.Tools[0].Schema, err)
		}
	}

	// Many tools with lengths take an engine too long together.
	many := []harmony.Namespace{{Name: item.FunctionsNamespace}}
	for i := range 20 {
		many[0].Tools = append(many[0].Tools, harmony.Tool{Name: "f" + string(rune('a'+i)), Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","maxLength":2000}}}`)})
	}

	tools, _ := newSet(many, nil, request.DefaultLimits())
	spec, err := NewSpec(&request.Context{Model: &request.Model{}}, &request.Input{Tools: many}, request.Choice{Required: true}, tools)
	kept := 0

	for _, t := range spec.Tools {
		if t.Schema != nil {
			kept++
		}
	}

	if err != nil || kept != constraint.MaxCost/256 {
		t.Errorf("%d schemas are enforced, error %v", kept, err)
	}
}

// TestJoinedToolsEnforced shows that tools that join are part of the output's spec:
// with their strict schemas, and as tools that tool_choice can name.
func TestJoinedToolsEnforced(t *testing.T) {
	t.Parallel()
	rc := &request.Context{Env: &request.Env{Limits: request.DefaultLimits()}, Model: &request.Model{}}
	read := found("read")
	name := item.ToolName{Namespace: "mcp.docs", Name: "read"}
	read.Tools.Strict = map[item.ToolName]bool{name: true}
	in := request.Input{Tools: functions("f"), Choice: request.Choice{Allowed: []item.ToolName{name}}}
	joined := append(make([]*item.JoinedTools, 0, 2), read.Tools)
	spec := func() constraint.Spec {
		t.Helper()
		tools, err := New(rc, &in, joined)
		if err != nil {
			t.Fatal(err)
		}

		spec, err := NewSpec(rc, &in, in.Choice, tools)
		if err != nil {
			t.Fatal(err)
		}

		return spec
	}

	if s := spec(); len(s.Tools) != 1 || s.Tools[0].Recipient != "mcp_docs.read" || string(s.Tools[0].Schema) != string(read.Tools.Namespaces[0].Tools[0].Parameters) {
		t.Errorf("%+v", s.Tools)
	}

	looser := found("read")
	looser.Tools.Namespaces[0].Tools[0].Parameters = json.RawMessage(`{"type":"object"}`)
	looser.Tools.Strict = map[item.ToolName]bool{name: false}
	joined = append(joined, looser.Tools)
	if s := spec(); len(s.Tools) != 1 || s.Tools[0].Schema != nil {
		t.Errorf("the later definition does not count: %+v", s.Tools)
	}

	in.Choice.Required = true
	if s := spec(); len(s.Tools) != 1 || string(s.Tools[0].Schema) != `{"type":"object"}` {
		t.Errorf("the later definition of a forced tool does not count: %+v", s.Tools)
	}
}

// found is an item with one tool of the namespace "mcp.docs", which the model sees as
// mcp_docs.
func found(name string) item.Item {
	return item.Item{Kind: item.Tools, Tools: &item.JoinedTools{Namespaces: []harmony.Namespace{{Name: "mcp.docs", Description: "The documents.", Tools: []harmony.Tool{{
		Name: name, Description: "Reads " + name + ".", Parameters: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}`),
	}}}}}}
}
