package turn

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/output"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// newChecked returns a context whose engine accepts no constraint.
func newChecked() *RequestContext {
	rc, _ := newContext()
	rc.Checked = true
	return rc
}

// jsonFormat returns the output format of a schema.
func jsonFormat(schema string) *Format {
	return &Format{Answer: constraint.AnswerJSON{Schema: json.RawMessage(schema)}}
}

const countSchema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`

// TestCheck shows the verdicts on the output of an engine that accepts no grammar.
// They do not depend on the chunks.
func TestCheck(t *testing.T) {
	t.Parallel()
	strict := []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: json.RawMessage(countSchema)}, {Name: "g"}}}}
	f, g := ToolName{Namespace: FunctionsNamespace, Name: "f"}, ToolName{Namespace: FunctionsNamespace, Name: "g"}
	const thought = "<|channel|>analysis<|message|>a<|end|><|start|>assistant"
	call := func(name, arguments string) string {
		return "<|channel|>commentary to=functions." + name + " <|constrain|>json<|message|>" + arguments + "<|call|>"
	}

	answer := func(text string) string { return "<|channel|>final<|message|>" + text + "<|return|>" }
	for _, c := range []struct {
		name   string
		in     Input
		output string
		finish engine.Finish
		want   Verdict
	}{
		{"of the schema", Input{Format: jsonFormat(countSchema)}, thought + answer(`{"n":1}`), engine.FinishStop, output.Passed},
		{"not of the schema", Input{Format: jsonFormat(countSchema)}, thought + answer(`{"n":"1"}`), engine.FinishStop, Unkept},
		{"no JSON", Input{Format: fields.JSONObject()}, answer("hello"), engine.FinishStop, Unkept},
		{"no object", Input{Format: fields.JSONObject()}, answer("7"), engine.FinishStop, Unkept},
		{"no answer", Input{Format: fields.JSONObject()}, "<|channel|>analysis<|message|>a<|end|>", engine.FinishStop, Unkept},
		{"cut by its length", Input{Format: fields.JSONObject()}, "<|channel|>final<|message|>{", engine.FinishLength, output.Passed},
		{"cut by a stop string", Input{Format: fields.JSONObject(), Stop: []string{"x"}}, answer("{x}"), engine.FinishNone, output.Passed},
		{"a choice", Input{Format: &Format{Answer: constraint.AnswerChoice{"yes", "no"}}}, answer("no"), engine.FinishStop, output.Passed},
		{"none of the choice", Input{Format: &Format{Answer: constraint.AnswerChoice{"yes", "no"}}}, answer("perhaps"), engine.FinishStop, Unkept},
		{"no match", Input{Format: &Format{Answer: constraint.AnswerRegex("[a-c]+")}}, answer("abd"), engine.FinishStop, Unkept},
		{"a required call", Input{Tools: strict, Choice: Choice{Required: true}}, thought + call("g", `{}`), engine.FinishStop, output.Passed},
		{"no call", Input{Tools: strict, Choice: Choice{Required: true}}, answer("hello"), engine.FinishStop, Unkept},
		{"an answer beside the call", Input{Tools: strict, Choice: Choice{Required: true}}, "<|channel|>final<|message|>a<|end|><|start|>assistant" + call("g", `{}`), engine.FinishStop, Unkept},
		{"a preamble beside the call", Input{Tools: strict, Choice: Choice{Required: true}}, "<|channel|>commentary<|message|>a<|end|><|start|>assistant" + call("g", `{}`), engine.FinishStop, output.Passed},
		{"another tool", Input{Tools: strict, Choice: Choice{Required: true, Allowed: []ToolName{f}}}, call("g", `{}`), engine.FinishStop, Unkept},
		{"strict arguments", Input{Tools: strict, Strict: map[ToolName]bool{f: true}}, call("f", `{"n":1}`), engine.FinishStop, output.Passed},
		{"arguments not of the schema", Input{Tools: strict, Strict: map[ToolName]bool{f: true}}, call("f", `{"m":1}`), engine.FinishStop, Unkept},
		{"arguments of a tool that is not strict", Input{Tools: strict, Strict: map[ToolName]bool{f: true}}, call("g", `{"m":1}`), engine.FinishStop, output.Passed},
		{"arguments that are no JSON", Input{Tools: strict, Choice: Choice{Allowed: []ToolName{g}}}, call("g", `{`), engine.FinishStop, Unkept},
		{"the engine gave up", Input{Format: fields.JSONObject()}, "<|channel|>final<|message|>{", engine.FinishAbort, output.Passed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := c.in
			in.Items = []Item{userHi}
			tokens := harmony.AppendEncodeSpecial(nil, c.output)

			for _, size := range []int{1, 3, len(tokens)} {
				rc := newChecked()
				turn := prepare(t, rc, &in)
				if turn.Engine.Constraint != nil {
					t.Fatal("the engine gets a constraint")
				}

				check, got := turn.NewCheck(), Undecided
				for rest := tokens; got == Undecided && len(rest) > 0; {
					n := min(size, len(rest))
					chunk := engine.Chunk{Tokens: rest[:n]}
					if rest = rest[n:]; len(rest) == 0 {
						chunk.Finish = c.finish
					}
					got = verdictOn(t, check, &chunk)
				}

				if got != c.want {
					t.Errorf("in chunks of %d: verdict %d, want %d", size, got, c.want)
				}
			}
		})
	}
}

// verdictOn is the verdict of a check after a chunk, decided if the chunk is the last one.
func verdictOn(t *testing.T, check *Check, chunk *engine.Chunk) Verdict {
	t.Helper()
	v := check.Push(chunk)
	if v == Complete {
		v = check.Decide(t.Context())
	}
	return v
}

// TestSettled shows that readers do not verify again what a check has decided, and that
// output which took too much work to check fails.
func TestSettled(t *testing.T) {
	t.Parallel()
	chunk := engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, `<|channel|>final<|message|>[]<|return|>`), Finish: engine.FinishStop}
	for settled, code := range map[Verdict]string{Undecided: "constraint_not_kept", output.Passed: "", Unkept: "constraint_not_kept", Unchecked: "constraint_not_kept"} {
		turn := prepare(t, newChecked(), &Input{Items: []Item{userHi}, Format: &Format{Answer: constraint.AnswerJSON{Schema: constraint.AnyObject}}})
		turn.NewCheck().Settle(settled)
		_, err := turn.NewReader(func(Event) {}).Push(&chunk)
		if err == nil && code != "" || err != nil && err.Code != code {
			t.Errorf("settled as %d: %v", settled, err)
		}
	}
}

// TestNoCheck has requests that need no check, and requests that cannot be checked.
func TestNoCheck(t *testing.T) {
	t.Parallel()
	constrained, _ := newContext()

	for name, c := range map[string]struct {
		rc *RequestContext
		in Input
	}{
		"no spec":                {newChecked(), Input{Items: []Item{userHi}, Tools: functions("f")}},
		"the engine enforces it": {constrained, Input{Items: []Item{userHi}, Format: fields.JSONObject()}},
	} {
		turn := prepare(t, c.rc, &c.in)
		if turn.NewCheck() != nil || (turn.Engine.Constraint != nil) != (c.rc == constrained) {
			t.Errorf("%s: a check, or the constraint %v", name, turn.Engine.Constraint)
		}
	}

	for name, format := range map[string]*Format{
		"grammar": {Answer: constraint.AnswerGrammar(`root ::= "a"`)},
		"schema":  jsonFormat(`{"minLength":"a"}`),
	} {
		if _, err := Prepare(context.Background(), newChecked(), &Input{Items: []Item{userHi}, Format: format}); err == nil || err.Status != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStrictUnderAGrammar shows that a strict schema is verified beyond the
// engine's grammar, at the end of a reply that is not held back.
func TestStrictUnderAGrammar(t *testing.T) {
	t.Parallel()
	f := ToolName{Namespace: FunctionsNamespace, Name: "f"}
	tools := []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: json.RawMessage(countSchema)}}}}
	strict := jsonFormat(countSchema)
	strict.Strict = true
	costly := jsonFormat(`{"type":"array","items":{"enum":[` + strings.Repeat(`1,`, 1900) + `2]}}`)
	costly.Strict = true
	answer := func(text string) string { return "<|channel|>final<|message|>" + text + "<|return|>" }

	for name, c := range map[string]struct {
		in     Input
		output string
		kept   bool
	}{
		"answer":                      {Input{Format: strict}, answer(`{"n":1}`), true},
		"answer not of the schema":    {Input{Format: strict}, answer(`{"n":"1"}`), false},
		"not strict":                  {Input{Format: jsonFormat(countSchema)}, answer(`{"n":"1"}`), true},
		"too much to check":           {Input{Format: costly}, answer(`[` + strings.Repeat("2,", 1000) + `3]`), true},
		"arguments":                   {Input{Tools: tools, Strict: map[ToolName]bool{f: true}}, "<|channel|>commentary to=functions.f<|message|>{\"n\":1}<|call|>", true},
		"arguments not of the schema": {Input{Tools: tools, Strict: map[ToolName]bool{f: true}}, "<|channel|>commentary to=functions.f<|message|>{\"m\":1}<|call|>", false},
	} {
		rc, _ := newContext()
		c.in.Items = []Item{userHi}
		turn := prepare(t, rc, &c.in)
		if turn.Engine.Constraint == nil || turn.NewCheck() != nil {
			t.Errorf("%s: the engine gets no constraint, or the reply is held back", name)
		}

		_, err := turn.NewReader(func(Event) {}).Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, c.output), Finish: engine.FinishStop})
		if (err == nil) != c.kept || err != nil && err.Code != "constraint_not_kept" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckOfALaterCall shows that the reply's second turn requires no call, and
// that its answer has the output format.
func TestCheckOfALaterCall(t *testing.T) {
	t.Parallel()
	first := prepare(t, newChecked(), &Input{Items: []Item{userHi}, Tools: functions("f"), Choice: Choice{Required: true}, Format: fields.JSONObject()})
	next, err := first.Continue(t.Context(), []Item{{Kind: Call, CallID: "a", Namespace: FunctionsNamespace, Name: "f", Text: "{}"}, {Kind: Result, CallID: "a", Text: "x"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for out, want := range map[string]Verdict{"{}": output.Passed, "hello": Unkept} {
		chunk := engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>"+out+"<|return|>"), Finish: engine.FinishStop}
		if got := verdictOn(t, next.NewCheck(), &chunk); got != want || next.Engine.Constraint != nil {
			t.Errorf("%s: %d, constraint %v", out, got, next.Engine.Constraint)
		}
	}
}

// TestCheckBeyondAGrammar shows that a reply is held back for its check if its
// schema has keywords that no grammar enforces, and only then.
func TestCheckBeyondAGrammar(t *testing.T) {
	t.Parallel()
	const unique = `{"type":"object","properties":{"n":{"type":"array","items":{"type":"integer"},"uniqueItems":true}},"required":["n"],"additionalProperties":false}`
	f := ToolName{Namespace: FunctionsNamespace, Name: "f"}
	tools := []harmony.Namespace{{Name: FunctionsNamespace, Tools: []harmony.Tool{{Name: "f", Parameters: json.RawMessage(unique)}}}}
	strict := jsonFormat(unique)
	strict.Strict = true
	answer := func(text string) string { return "<|channel|>final<|message|>" + text + "<|return|>" }
	call := func(text string) string { return "<|channel|>commentary to=functions.f<|message|>" + text + "<|call|>" }

	for name, c := range map[string]struct {
		in     Input
		output string
		want   Verdict
	}{
		"an answer":                 {Input{Format: strict}, answer(`{"n":[1,2]}`), output.Passed},
		"an answer, not kept":       {Input{Format: strict}, answer(`{"n":[1,1]}`), Unkept},
		"arguments":                 {Input{Tools: tools, Strict: map[ToolName]bool{f: true}}, call(`{"n":[1,2]}`), output.Passed},
		"arguments, not kept":       {Input{Tools: tools, Strict: map[ToolName]bool{f: true}}, call(`{"n":[1,1]}`), Unkept},
		"an answer beside the tool": {Input{Tools: tools, Strict: map[ToolName]bool{f: true}}, answer(`hello`), output.Passed},
		"not strict":                {Input{Format: jsonFormat(unique)}, answer(`{"n":[1,1]}`), Undecided},
		"forced, not strict":        {Input{Tools: tools, Choice: Choice{Required: true}}, call(`{"n":[1,1]}`), Undecided},
	} {
		rc, _ := newContext()
		c.in.Items = []Item{userHi}
		turn := prepare(t, rc, &c.in)
		if turn.Engine.Constraint == nil {
			t.Errorf("%s: the engine gets no constraint", name)
		}

		chunk := &engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, c.output), Finish: engine.FinishStop}
		check := turn.NewCheck()
		got := Undecided
		if check != nil {
			got = verdictOn(t, check, chunk)
		}

		if got != c.want || check != nil && got == Undecided {
			t.Errorf("%s: verdict %d, want %d", name, got, c.want)
		}

		if _, err := turn.NewReader(func(Event) {}).Push(chunk); (err != nil) != (c.want == Unkept) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
