package responses

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// TestConstraint shows which constraint every field leads to.
func TestConstraint(t *testing.T) {
	t.Parallel()
	const tools = `,"tools":[{"type":"function","name":"f","strict":true,"parameters":{"type":"array"}},{"type":"custom","name":"c"},` +
		`{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]`
	const loose = `,"tools":[{"type":"function","name":"g","strict":false},{"type":"custom","name":"c"}]`
	f := constraint.Tool{Recipient: "functions.f", Schema: []byte(`{"type":"array"}`)}
	custom := constraint.Tool{Recipient: "functions.c", Schema: []byte(fields.CustomParameters)}
	inSpace := constraint.Tool{Recipient: "n.f"}
	matching, patched := constraint.Tool{Recipient: "functions.c"}, constraint.Tool{Recipient: "functions.c"}
	matching.Grammar, _, _ = constraint.InputRegex(nil, `[a-z]+-\d{2}`)
	patched.Grammar, _, _ = constraint.InputLark(nil, "start: /a/")
	for _, c := range []struct {
		name, fields string
		want         constraint.Spec
	}{
		{"nothing", loose, constraint.Spec{}},
		{"one call", loose + `,"parallel_tool_calls":false`, constraint.Spec{}},
		{"no call", tools + `,"tool_choice":"none"`, constraint.Spec{}},
		{"strict", tools, constraint.Spec{Tools: []constraint.Tool{f, custom, inSpace}, Parallel: true}},
		{"required", tools + `,"tool_choice":"required"`, constraint.Spec{Tools: []constraint.Tool{f, custom, inSpace}, Required: true, Parallel: true}},
		{"named", tools + `,"tool_choice":{"type":"function","name":"f"}`, constraint.Spec{Tools: []constraint.Tool{f}, Required: true}},
		{"named in a namespace", tools + `,"tool_choice":{"type":"function","name":"f","namespace":"n"}`, constraint.Spec{Tools: []constraint.Tool{inSpace}, Required: true}},
		{"custom", loose + `,"tool_choice":{"type":"custom","name":"c"}`, constraint.Spec{Tools: []constraint.Tool{custom}, Required: true}},
		{"custom with an expression", `,"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"regex","definition":"[a-z]+-\\d{2}"}}]`, constraint.Spec{Tools: []constraint.Tool{matching}, Parallel: true}},
		{"custom with another expression", `,"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"regex","definition":"(?=a)"}}]`, constraint.Spec{}},
		{"custom with a grammar", `,"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"start: /a/"}}]`, constraint.Spec{Tools: []constraint.Tool{patched}, Parallel: true}},
		{"allowed", tools + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"custom","name":"c"}]}`, constraint.Spec{Tools: []constraint.Tool{custom}, Narrowed: true, Parallel: true}},
		{"json_object", `,"text":{"format":{"type":"json_object"}}`, constraint.Spec{Answer: constraint.AnswerJSON{Schema: constraint.AnyObject}}},
		{"json_schema", `,"text":{"format":{"type":"json_schema","name":"n","schema":{"type": "array"}}}`, constraint.Spec{Answer: constraint.AnswerJSON{Schema: []byte(`{"type":"array"}`)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testAPI.Constraint(t, c.fields, c.want)
		})
	}
	testAPI.StructuredOutputs(t)
}
