package chat

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// The tools of the requests below: f is strict, g is not.
const twoTools = `,"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}},` +
	`{"type":"function","function":{"name":"g"}}]`

// TestConstraint shows which constraint every field leads to.
func TestConstraint(t *testing.T) {
	t.Parallel()
	const g = `,"tools":[{"type":"function","function":{"name":"g"}}]`
	fOnly := constraint.Tool{Recipient: "functions.f", Schema: []byte(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`)}
	gOnly := constraint.Tool{Recipient: "functions.g"}
	object := constraint.AnswerJSON{Schema: constraint.AnyObject}
	for _, c := range []struct {
		name, fields string
		want         constraint.Spec
	}{
		{"nothing", "", constraint.Spec{}},
		{"text", `,"response_format":{"type":"text"}`, constraint.Spec{}},
		{"tools", g, constraint.Spec{}},
		{"one call", g + `,"parallel_tool_calls":false`, constraint.Spec{}},
		{"no call", twoTools + `,"tool_choice":"none"`, constraint.Spec{}},
		{"strict", twoTools, constraint.Spec{Tools: []constraint.Tool{fOnly, gOnly}, Parallel: true}},
		{"strict one call", twoTools + `,"parallel_tool_calls":false`, constraint.Spec{Tools: []constraint.Tool{fOnly, gOnly}}},
		{"required", g + `,"tool_choice":"required"`, constraint.Spec{Tools: []constraint.Tool{gOnly}, Required: true, Parallel: true}},
		{"named", `,"parallel_tool_calls":true,"tool_choice":{"type":"function","function":{"name":"g"}}` + twoTools, constraint.Spec{Tools: []constraint.Tool{gOnly}, Required: true}},
		{"named, then parallel", `,"tool_choice":{"type":"function","function":{"name":"g"}},"parallel_tool_calls":true` + twoTools, constraint.Spec{Tools: []constraint.Tool{gOnly}, Required: true}},
		{"allowed", twoTools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}`, constraint.Spec{Tools: []constraint.Tool{gOnly}, Narrowed: true, Parallel: true}},
		{"allowed and required", twoTools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}}`, constraint.Spec{Tools: []constraint.Tool{gOnly}, Required: true, Parallel: true}},
		{"json_object", `,"response_format":{"type":"json_object"}`, constraint.Spec{Answer: object}},
		{"json_schema", `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type": "array"},"strict":true}}`, constraint.Spec{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}}},
		{"json_schema and tools", g + `,"response_format":{"type":"json_object"}`, constraint.Spec{Tools: []constraint.Tool{gOnly}, Parallel: true, Answer: object}},
		{"json_schema and required", g + `,"response_format":{"type":"json_object"},"tool_choice":"required"`, constraint.Spec{Tools: []constraint.Tool{gOnly}, Parallel: true, Required: true}},
		{"guided_json", `,"guided_json":{"type":"array"}`, constraint.Spec{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}}},
		{"json_schema of SGLang", `,"json_schema":"{\"type\":\"array\"}"`, constraint.Spec{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}}},
		{"guided_regex", `,"guided_regex":"a+"`, constraint.Spec{Answer: constraint.AnswerRegex("a+")}},
		{"regex", `,"regex":"a+"`, constraint.Spec{Answer: constraint.AnswerRegex("a+")}},
		{"guided_choice", `,"guided_choice":["a","b"]`, constraint.Spec{Answer: constraint.AnswerChoice{"a", "b"}}},
		{"guided_grammar", `,"guided_grammar":"root ::= \"a\""`, constraint.Spec{Answer: constraint.AnswerGrammar(`root ::= "a"`)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testAPI.Constraint(t, c.fields, c.want)
		})
	}
	testAPI.StructuredOutputs(t)
}

// TestAnnounced shows that the prompt announces the output format, and has all
// tools even if only some may be called.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ fields, want string }{
		{`,"response_format":{"type":"json_schema","json_schema":{"name":"city","description":"A city.","schema":{"type": "object"}}}`, "# Response Formats\n\n## city\n\n// A city.\n{\"type\":\"object\"}<|end|>"},
		{`,"response_format":{"type":"json_object"}`, "# Response Formats\n\n## json_object\n\n{\"type\":\"object\"}<|end|>"},
		{twoTools + `,"tool_choice":{"type":"function","function":{"name":"g"}}`, "type f = (_: {"},
	} {
		if text := apitest.Spell(t, mustDecode(t, ask(c.fields)).Engine().Prompt); !strings.Contains(text, c.want) {
			t.Errorf("%s: %q is not in %s", c.fields, c.want, text)
		}
	}
}

// TestViolation shows that output which violates its spec, because the engine
// ignored the constraint, is an error, unless its length ended it.
func TestViolation(t *testing.T) {
	t.Parallel()
	const (
		one      = `,"tool_choice":"required"`
		onlyG    = `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}`
		asJSON   = `,"response_format":{"type":"json_object"}`
		callF    = `<|channel|>commentary to=functions.f <|constrain|>json<|message|>`
		callG    = `<|channel|>commentary to=functions.g <|constrain|>json<|message|>`
		final    = `<|channel|>final<|message|>`
		analysis = `<|channel|>analysis<|message|>a<|end|><|start|>assistant`
	)
	for _, c := range []struct {
		name, fields, output string
		finish               engine.Finish
		kept                 bool
	}{
		{"call", twoTools + one, analysis + callF + `{"a":"b"}<|call|>`, engine.FinishStop, true},
		{"call ended by return", twoTools + one, callF + `{"a":"b"}<|return|>`, engine.FinishStop, true},
		{"no call", twoTools + one, analysis + final + `Hello<|return|>`, engine.FinishStop, false},
		{"only reasoning", twoTools + one, `<|channel|>analysis<|message|>a<|return|>`, engine.FinishStop, false},
		{"cut before the call", twoTools + one, analysis + `<|channel|>comm`, engine.FinishLength, true},
		{"cut in the call", twoTools + one, callF + `{"a":`, engine.FinishLength, true},
		{"broken arguments", twoTools, callF + `{"a":<|call|>`, engine.FinishStop, false},
		{"another tool", twoTools + onlyG, callF + `{"a":"b"}<|call|>`, engine.FinishStop, false},
		{"the allowed tool", twoTools + onlyG, callG + `{}<|call|>`, engine.FinishStop, true},
		{"JSON", asJSON, analysis + final + `{"a":1}<|return|>`, engine.FinishStop, true},
		{"no JSON", asJSON, final + `Hello<|return|>`, engine.FinishStop, false},
		{"no answer", asJSON, `<|channel|>analysis<|message|>a<|return|>`, engine.FinishStop, false},
		{"cut JSON", asJSON, final + `{"a":`, engine.FinishLength, true},
		{"JSON up to a stop string", asJSON + `,"stop":"b"`, final + `{"ab":1}<|return|>`, engine.FinishStop, true},
		{"JSON or a call", twoTools + asJSON, callG + `{}<|call|>`, engine.FinishStop, true},
	} {
		for _, stream := range []string{"false", "true"} {
			t.Run(c.name+" "+stream, func(t *testing.T) {
				t.Parallel()
				r := mustDecode(t, ask(c.fields+`,"stream":`+stream)).NewReply(api.SingleCall)
				_, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(c.output), Finish: c.finish})
				switch {
				case c.kept && err != nil:
					t.Error(err)
				case !c.kept && (err == nil || err.Status != 502 || err.Code != "constraint_not_kept"):
					t.Errorf("%v, want constraint_not_kept", err)
				}
			})
		}
	}
}
