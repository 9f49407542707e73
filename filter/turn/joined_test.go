package turn

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/output"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// found is an item with one tool of the namespace "mcp.docs", which the model sees as
// mcp_docs.
func found(name string) Item {
	return Item{Kind: Tools, Tools: &JoinedTools{Namespaces: []harmony.Namespace{{Name: "mcp.docs", Description: "The documents.", Tools: []harmony.Tool{{
		Name: name, Description: "Reads " + name + ".", Parameters: json.RawMessage(`{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}`),
	}}}}}}
}

// searched is the items of a search for tools that found some.
func searched(id string, tools ...Item) []Item {
	return append([]Item{
		{Kind: Reasoning, Text: "I need a tool."},
		{Kind: Call, CallID: id, Name: "tool_search", Text: `{"query":"read"}`},
		{Kind: Result, CallID: id, Text: "Found."},
	}, tools...)
}

// TestToolsJoin shows where tools that join are rendered, and that the prompt of a
// turn begins with that of the turn before.
func TestToolsJoin(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	first := Input{Tools: functions("tool_search"), Items: []Item{userHi}}
	before := prepare(t, rc, &first).Engine.Prompt
	second := first
	second.Items = append([]Item{userHi}, searched("call_1", found("read"))...)
	after := prepare(t, rc, &second).Engine.Prompt
	if !slices.Equal(before, after[:len(before)]) {
		t.Error("the prompt with tools that have joined does not begin with the prompt before")
	}

	text := spell(t, after)
	const want = "<|start|>functions.tool_search to=assistant<|channel|>commentary<|message|>Found.<|end|>" +
		"<|start|>developer<|message|># Tools\n\n## mcp_docs\n\n// The documents.\nnamespace mcp_docs {\n\n// Reads read.\ntype read = (_: {\nid: string,\n}) => any;\n\n} // namespace mcp_docs<|end|><|start|>assistant"
	if !strings.HasSuffix(text, want) {
		t.Errorf("got …%s", text[len(before):])
	}

	third := second
	third.Items = append(slices.Clone(second.Items), searched("call_2", found("read"), found("write"))...)
	last := prepare(t, rc, &third).Engine.Prompt
	if kept := after[:len(after)-2]; !slices.Equal(kept, last[:len(kept)]) { // without the start of the reply
		t.Error("the prompt of the third turn does not begin with that of the second")
	}

	if n := strings.Count(spell(t, last), "type read ="); n != 1 {
		t.Errorf("a tool that is found twice is shown %d times", n)
	}
}

// TestToolsJoinFirst shows that tools at the beginning of a conversation stand in its
// first developer message, with the request's own.
func TestToolsJoinFirst(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	own := Input{Tools: append(functions("f", "g"), harmony.Namespace{Name: "n", Tools: []harmony.Tool{{Name: "h"}}}), Items: []Item{{Kind: Instructions, Text: "Be kind."}, userHi}}
	joined := Input{Tools: functions("f"), Items: append([]Item{
		{Kind: Tools, Tools: &JoinedTools{Namespaces: functions("g")}},
		{Kind: Tools, Tools: &JoinedTools{Namespaces: []harmony.Namespace{{Name: "n", Tools: []harmony.Tool{{Name: "h"}}}}}},
	}, own.Items...)}
	if diff := cmp.Diff(promptText(t, rc, &own), promptText(t, rc, &joined)); diff != "" {
		t.Errorf("-own +joined:\n%s", diff)
	}
	joined.NoCalls = true
	if text := promptText(t, rc, &joined); strings.Contains(text, "# Tools") {
		t.Errorf("tools are shown although they may not be called: %s", text)
	}
}

// TestCallsOfJoinedTools shows that calls of tools that have joined have the client's
// names: joined in the request, in its prefix, and in the reply itself.
func TestCallsOfJoinedTools(t *testing.T) {
	t.Parallel()
	const output = "<|channel|>commentary to=mcp_docs.read json<|message|>{}<|call|>"
	want := []string{"call 0 call_1 mcp.docs.read: {}."}
	items := append([]Item{userHi}, searched("call_x", found("read"))...)
	read := func(name string, turn *Turn) {
		t.Helper()
		lines, r := play(t, turn, output, engine.FinishStop)
		var s Summary
		if r.AddTo(&s); !cmp.Equal(lines, want) || len(s.Repairs) > 0 {
			t.Errorf("%s: %q, repairs %v", name, lines, s.Repairs)
		}
	}

	rc, _ := newContext()
	read("in the request", prepare(t, rc, &Input{Tools: functions("tool_search"), Items: items}))

	rc, _ = newContext()
	before, err := Extend(context.Background(), rc, nil, items)
	if err != nil {
		t.Fatal(err)
	}

	if none, err := Extend(context.Background(), rc, nil, items[:4]); err != nil || before.Bytes() <= none.Bytes() {
		t.Errorf("the tools take no memory: %d bytes, %v", before.Bytes(), err)
	}

	read("in the prefix", prepare(t, rc, &Input{Tools: functions("tool_search"), Before: before, Items: []Item{userHi}}))

	rc, _ = newContext()
	turn := prepare(t, rc, &Input{Tools: functions("tool_search"), Items: []Item{userHi}, Deferred: found("read").Tools.Namespaces})
	if text := spell(t, turn.Engine.Prompt); strings.Contains(text, "mcp_docs") {
		t.Errorf("a deferred tool is shown: %s", text)
	}

	next, apiErr := turn.Continue(t.Context(), searched("call_x", found("read")), 0)
	if apiErr != nil {
		t.Fatal(apiErr)
	}

	if text := spell(t, next.Engine.Prompt); !strings.Contains(text, "type read =") {
		t.Errorf("the tool that was found is not shown: %s", text)
	}

	read("in the reply", next)
}

// TestJoinedToolsVerified shows that calls of strict tools that join follow their
// schemas where no engine enforces them, also where a call is required.
func TestJoinedToolsVerified(t *testing.T) {
	t.Parallel()
	item := found("read")
	item.Tools.Namespaces[0].Tools[0].Parameters = json.RawMessage(`{"anyOf":[{"type":"object","properties":{"id":{"type":"string"}},"required":["id"],"additionalProperties":false}]}`)
	item.Tools.Strict = map[ToolName]bool{{Namespace: "mcp.docs", Name: "read"}: true}
	for _, required := range []bool{false, true} {
		turn := prepare(t, newChecked(), &Input{Items: []Item{userHi, item, userHi}, Choice: Choice{Required: required}})
		for arguments, want := range map[string]Verdict{`{"id":"a"}`: output.Passed, `{"id":1}`: Unkept} {
			check := turn.NewCheck()
			if check == nil {
				t.Fatalf("required %t: the reply is not checked", required)
			}
			chunk := engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, "<|channel|>commentary to=mcp_docs.read <|constrain|>json<|message|>"+arguments+"<|call|>"), Finish: engine.FinishStop}
			if got := verdictOn(t, check, &chunk); got != want {
				t.Errorf("required %t: the verdict on %s is %d, want %d", required, arguments, got, want)
			}
		}
	}
}

// TestJoinedToolsBounded shows that tools that join are bound by the limits of the
// request's own, together with these.
func TestJoinedToolsBounded(t *testing.T) {
	t.Parallel()
	deep := found("read")
	deep.Tools.Namespaces[0].Tools[0].Parameters = json.RawMessage(`{"properties":{"a":{"properties":{"b":{"items":{}}}}}}`)
	same := found("read")
	same.Tools.Namespaces[0].Name = "mcp docs" // the model's name is that of mcp.docs
	own := Item{Kind: Tools, Tools: &JoinedTools{Namespaces: functions("f")}}
	browser := Item{Kind: Tools, Tools: &JoinedTools{Namespaces: []harmony.Namespace{{Name: "browser", Tools: []harmony.Tool{{Name: "open"}}}}}}
	few, shallow := DefaultLimits(), DefaultLimits()
	few.Tools, shallow.SchemaDepth = 2, 4

	for name, c := range map[string]struct {
		limits   request.Limits
		builtins []harmony.Namespace
		items    []Item
		want     string
	}{
		"too many":              {few, nil, []Item{found("a"), found("b")}, "more than 2 tools"},
		"too deep":              {shallow, nil, []Item{deep}, "nest more than 4 levels"},
		"a long name":           {few, nil, []Item{found(strings.Repeat("x", item.MaxNameBytes+1))}, "longer than 256 bytes"},
		"the same name":         {few, nil, []Item{found("read"), same}, `Two tools have the name "read"`},
		"twice the same":        {few, nil, []Item{found("read"), found("read")}, ""},
		"the request's own":     {few, nil, []Item{own}, ""},
		"the name of a builtin": {DefaultLimits(), builtins()[:1], []Item{browser}, ""},
	} {
		rc, _ := newContext()
		rc.Limits = c.limits
		_, err := Prepare(context.Background(), rc, &Input{Tools: functions("f"), Builtins: c.builtins, Items: append([]Item{userHi}, c.items...)})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Message, c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWithdrawnTools shows that a tool which was withdrawn stays in the prompt, and is none
// that the model may be made to call.
func TestWithdrawnTools(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	gone := map[ToolName]bool{{Namespace: FunctionsNamespace, Name: "f"}: true}
	spec := func(in Input) (constraint.Format, error) {
		in.Tools, in.Items = functions("f", "g"), []Item{userHi}
		turn, err := Prepare(context.Background(), rc, &in)
		if err != nil {
			return nil, err
		}
		return turn.Engine.Constraint, nil
	}

	if before, after := promptText(t, rc, &Input{Tools: functions("f", "g"), Items: []Item{userHi}}),
		promptText(t, rc, &Input{Tools: functions("f", "g"), Items: []Item{userHi}, Withdrawn: gone}); before != after {
		t.Errorf("the prompt is another:\n%s", after)
	}
	if format, err := spec(Input{Withdrawn: gone}); err != nil || format != nil {
		t.Errorf("the other tool is narrowed: %v, %v", format, err)
	}

	strict := map[ToolName]bool{{Namespace: FunctionsNamespace, Name: "f"}: true}
	if format, err := spec(Input{Withdrawn: gone, Strict: strict}); err != nil || format != nil {
		t.Errorf("the strict tool that is gone has a grammar: %v, %v", format, err)
	}
	forced, err := spec(Input{Withdrawn: gone, Choice: Choice{Required: true}})
	if text := string(mustMarshal(t, forced)); err != nil || !strings.Contains(text, "functions.g") || strings.Contains(text, "functions.f") {
		t.Errorf("the tool that is gone can be forced: %s, %v", text, err)
	}
	choice := Choice{Required: true, Allowed: []ToolName{{Namespace: FunctionsNamespace, Name: "f"}}}
	if _, err := spec(Input{Withdrawn: gone, Choice: choice}); err == nil {
		t.Error("the tool that is gone can be chosen")
	}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
