package replies

import (
	"fmt"
	"net/http"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// With an engine without grammars, structured outputs are verified before the
// client receives the reply. If verification fails, the call is retried once, and
// the model is told by its script which line to follow. A second failure is an
// error with a code.
func TestStructuredOutputsWithoutGrammar(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: stack.EveryEngine})
	c := d.Openai()
	model := stack.ModelOf("llamacpp")
	two := []stack.Object{stack.ChatTool("f", true), stack.ChatTool("g", false)}
	format := stack.Object{"type": "json_schema", "json_schema": stack.Object{"name": "verdict", "schema": stack.OkSchema, "strict": true}}
	hello := stack.Object{"response_format": format}

	for i, tt := range []struct {
		name   string
		text   string
		fields stack.Object
		want   *stack.ChoiceResult // nil: an error
		calls  int
	}{
		{"kept", "THINK Hm.\nJSON {\"ok\":true}", hello, &stack.ChoiceResult{Reasoning: "Hm.", Content: `{"ok":true}`, Finish: "stop"}, 1},
		{"not of the schema, then kept", "THINK Hm.\nSAY {\"ok\":1}\nAGAIN JSON {\"ok\":false}", hello, &stack.ChoiceResult{Reasoning: "Hm.", Content: `{"ok":false}`, Finish: "stop"}, 2},
		{"broken twice", "THINK Hm.\nSAY hello", hello, nil, 2},
		{"required, then called", "NOTHINK\nSAY hello\nAGAIN CALL g {\"n\":1}", stack.Object{"tools": two, "tool_choice": "required"}, &stack.ChoiceResult{Calls: []stack.Call{{Name: "g", Arguments: `{"n":1}`}}, Finish: "tool_calls"}, 2},
		{"required, never called", "NOTHINK\nSAY hello!", stack.Object{"tools": two, "tool_choice": "required"}, nil, 2},
		{"strict arguments", "NOTHINK\nCALL f {\"n\":\"one\"}", stack.Object{"tools": two}, nil, 2},
		{"nothing promised", "NOTHINK\nSAY hello", stack.Object{"tools": []stack.Object{stack.ChatTool("g", false)}}, &stack.ChoiceResult{Content: "hello", Finish: "stop"}, 1},
	} {
		for how, ask := range map[string]stack.RequestMode{"whole": stack.NonStreamed, "streamed": stack.Streamed} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				id := fmt.Sprintf("unconstrained-%d-%s", i, how)
				fields := append(stack.SetFields(tt.fields), option.WithHeader("x-request-id", id))
				p := stack.UserMessage(model, tt.text+"\nAS "+how) // distinct prompts

				if tt.want != nil {
					if diff := gocmp.Diff([]stack.ChoiceResult{*tt.want}, ask(t, c, p, fields...).Choices); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				} else if how == "whole" {
					_, err := c.Chat.Completions.New(t.Context(), p, fields...)
					stack.WantErrorWith(t, err, http.StatusBadGateway, "constraint_not_kept")
				} else {
					stream := c.Chat.Completions.NewStreaming(t.Context(), p, fields...)
					for stream.Next() {
						t.Errorf("the client gets %s", stream.Current().RawJSON())
					}
					stack.WantErrorWith(t, stream.Err(), http.StatusBadGateway, "constraint_not_kept")
				}

				if got := d.EngineRequests(t, id); len(got) != tt.calls {
					t.Errorf("%d model calls, want %d", len(got), tt.calls)
				}
			})
		}
	}

	t.Run("a grammar", func(t *testing.T) {
		_, err := c.Chat.Completions.New(t.Context(), stack.UserMessage(model, "SAY x"), stack.SetFields(stack.Object{"guided_grammar": `root ::= "x"`})...)
		stack.WantStatus(t, err, http.StatusBadRequest)
	})

	t.Run("a schema of many ways", func(t *testing.T) {
		defs := stack.Object{"a24": stack.Object{"type": "object"}}
		for i := range 24 {
			next := stack.Object{"$ref": fmt.Sprintf("#/$defs/a%d", i+1)}
			defs[fmt.Sprintf("a%d", i)] = stack.Object{"anyOf": []stack.Object{next, next}}
		}
		format := stack.Object{"type": "json_schema", "json_schema": stack.Object{"name": "verdict", "schema": stack.Object{"$ref": "#/$defs/a0", "$defs": defs}}}

		ask := func(text string) error {
			_, err := c.Chat.Completions.New(t.Context(), stack.UserMessage(model, text), stack.SetFields(stack.Object{"response_format": format})...)
			return err
		}

		if err := ask("NOTHINK\nSAY {}"); err != nil {
			t.Error(err)
		}
		stack.WantErrorWith(t, ask("NOTHINK\nSAY 1"), http.StatusBadGateway, "too much work")
	})

	t.Run("responses", func(t *testing.T) {
		c := d.CheckedOpenAI(t)
		fields := stack.SetFields(stack.Object{"text": stack.Object{"format": stack.Object{"type": "json_schema", "name": "verdict", "schema": stack.OkSchema, "strict": true}}})
		if r := stack.RespondStreamed(t, c, stack.Asking(model, "NOTHINK\nSAY hello\nAGAIN JSON {\"ok\":true}"), fields...); r.Status != responses.ResponseStatusCompleted || r.OutputText() != `{"ok":true}` {
			t.Errorf("the response is %s", r.RawJSON())
		}
		_, err := c.Responses.New(t.Context(), stack.Asking(model, "NOTHINK\nSAY hello"), fields...)
		stack.WantStatus(t, err, http.StatusBadGateway)
	})
}
