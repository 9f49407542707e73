package chat

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
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
		want         constraint.Promise
	}{
		{"nothing", "", constraint.Promise{}},
		{"text", `,"response_format":{"type":"text"}`, constraint.Promise{}},
		{"tools", g, constraint.Promise{}},
		{"one call", g + `,"parallel_tool_calls":false`, constraint.Promise{}},
		{"no call", twoTools + `,"tool_choice":"none"`, constraint.Promise{}},
		{"strict", twoTools, constraint.Promise{Tools: []constraint.Tool{fOnly, gOnly}, Parallel: true}},
		{"strict one call", twoTools + `,"parallel_tool_calls":false`, constraint.Promise{Tools: []constraint.Tool{fOnly, gOnly}}},
		{"required", g + `,"tool_choice":"required"`, constraint.Promise{Tools: []constraint.Tool{gOnly}, Required: true, Parallel: true}},
		{"named", `,"parallel_tool_calls":true,"tool_choice":{"type":"function","function":{"name":"g"}}` + twoTools, constraint.Promise{Tools: []constraint.Tool{gOnly}, Required: true}},
		{"named, then parallel", `,"tool_choice":{"type":"function","function":{"name":"g"}},"parallel_tool_calls":true` + twoTools, constraint.Promise{Tools: []constraint.Tool{gOnly}, Required: true}},
		{"allowed", twoTools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}`, constraint.Promise{Tools: []constraint.Tool{gOnly}, Narrowed: true, Parallel: true}},
		{"allowed and required", twoTools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}}`, constraint.Promise{Tools: []constraint.Tool{gOnly}, Required: true, Parallel: true}},
		{"json_object", `,"response_format":{"type":"json_object"}`, constraint.Promise{Answer: object}},
		{"json_schema", `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type": "array"},"strict":true}}`, constraint.Promise{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}}},
		{"json_schema and tools", g + `,"response_format":{"type":"json_object"}`, constraint.Promise{Tools: []constraint.Tool{gOnly}, Parallel: true, Answer: object}},
		{"json_schema and required", g + `,"response_format":{"type":"json_object"},"tool_choice":"required"`, constraint.Promise{Tools: []constraint.Tool{gOnly}, Parallel: true, Required: true}},
		{"guided_json", `,"guided_json":{"type":"array"}`, constraint.Promise{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}}},
		{"json_schema of SGLang", `,"json_schema":"{\"type\":\"array\"}"`, constraint.Promise{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}}},
		{"guided_regex", `,"guided_regex":"a+"`, constraint.Promise{Answer: constraint.AnswerRegex("a+")}},
		{"regex", `,"regex":"a+"`, constraint.Promise{Answer: constraint.AnswerRegex("a+")}},
		{"guided_choice", `,"guided_choice":["a","b"]`, constraint.Promise{Answer: constraint.AnswerChoice{"a", "b"}}},
		{"guided_grammar", `,"guided_grammar":"root ::= \"a\""`, constraint.Promise{Answer: constraint.AnswerGrammar(`root ::= "a"`)}},
		{"structured json", `,"structured_outputs":{"json":{"type":"array"}}`, constraint.Promise{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}}},
		{"structured object", `,"structured_outputs":{"json_object":true,"disable_any_whitespace":true}`, constraint.Promise{Answer: object}},
		{"structured regex", `,"structured_outputs":{"regex":"a"}`, constraint.Promise{Answer: constraint.AnswerRegex("a")}},
		{"structured choice", `,"structured_outputs":{"choice":["a"]}`, constraint.Promise{Answer: constraint.AnswerChoice{"a"}}},
		{"structured grammar", `,"structured_outputs":{"grammar":"root ::= \"a\""}`, constraint.Promise{Answer: constraint.AnswerGrammar(`root ::= "a"`)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := mustDecode(t, ask(c.fields)).Engine().Constraint
			want := c.want.Format()
			if got == nil || want == nil {
				if got != nil || want != nil {
					t.Errorf("got %v, want %v", got, want)
				}
				return
			}
			if diff := cmp.Diff(string(constraint.AppendStructuralTag(nil, want)), string(constraint.AppendStructuralTag(nil, got))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAnnounced: the prompt says in which form the answer is wanted, and still
// has all tools where only some may be called.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ fields, want string }{
		{`,"response_format":{"type":"json_schema","json_schema":{"name":"city","description":"A city.","schema":{"type": "object"}}}`, "# Response Formats\n\n## city\n\n// A city.\n{\"type\":\"object\"}<|end|>"},
		{`,"response_format":{"type":"json_object"}`, "# Response Formats\n\n## json_object\n\n{\"type\":\"object\"}<|end|>"},
		{twoTools + `,"tool_choice":{"type":"function","function":{"name":"g"}}`, "type f = (_: {"},
	} {
		text, err := harmony.AppendDecode(nil, mustDecode(t, ask(c.fields)).Engine().Prompt)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), c.want) {
			t.Errorf("%s: %q is not in %s", c.fields, c.want, text)
		}
	}
}

// TestNotKept: a reply that breaks what its request promises, because the
// engine ignored the constraint, is an error, unless it was cut.
func TestNotKept(t *testing.T) {
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
				call, err := Decode(context.Background(), []byte(ask(c.fields+`,"stream":`+stream)), newScope())
				if err != nil {
					t.Fatal(err)
				}
				r := call.NewReply()
				_, err = r.Push(nil, &engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, c.output), Finish: c.finish})
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
