package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// With an engine without grammars, structured outputs are verified before the
// client receives the reply. If verification fails, the call is retried once, and
// the model is told by its script which line to follow. A second failure is an
// error with a code.
func TestStructuredOutputsWithoutGrammar(t *testing.T) {
	d := start(t, options{config: everyEngine})
	c := d.openai()
	model := modelOf("llamacpp")
	two := []object{chatTool("f", true), chatTool("g", false)}
	format := object{"type": "json_schema", "json_schema": object{"name": "verdict", "schema": okSchema, "strict": true}}
	hello := object{"response_format": format}
	for i, tt := range []struct {
		name   string
		text   string
		fields object
		want   *choiceResult // nil: an error
		calls  int
	}{
		{"kept", "THINK Hm.\nJSON {\"ok\":true}", hello, &choiceResult{Reasoning: "Hm.", Content: `{"ok":true}`, Finish: "stop"}, 1},
		{"not of the schema, then kept", "THINK Hm.\nSAY {\"ok\":1}\nAGAIN JSON {\"ok\":false}", hello, &choiceResult{Reasoning: "Hm.", Content: `{"ok":false}`, Finish: "stop"}, 2},
		{"broken twice", "THINK Hm.\nSAY hello", hello, nil, 2},
		{"required, then called", "NOTHINK\nSAY hello\nAGAIN CALL g {\"n\":1}", object{"tools": two, "tool_choice": "required"}, &choiceResult{Calls: []call{{"g", `{"n":1}`}}, Finish: "tool_calls"}, 2},
		{"required, never called", "NOTHINK\nSAY hello!", object{"tools": two, "tool_choice": "required"}, nil, 2},
		{"strict arguments", "NOTHINK\nCALL f {\"n\":\"one\"}", object{"tools": two}, nil, 2},
		{"nothing promised", "NOTHINK\nSAY hello", object{"tools": []object{chatTool("g", false)}}, &choiceResult{Content: "hello", Finish: "stop"}, 1},
	} {
		for how, ask := range map[string]requestMode{"whole": nonStreamed, "streamed": streamed} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				id := fmt.Sprintf("unconstrained-%d-%s", i, how)
				fields := append(setFields(tt.fields), option.WithHeader("x-request-id", id))
				p := user(model, tt.text+"\nAS "+how) // distinct prompts
				if tt.want != nil {
					if diff := gocmp.Diff([]choiceResult{*tt.want}, ask(t, c, p, fields...).Choices); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				} else if how == "whole" {
					_, err := c.Chat.Completions.New(t.Context(), p, fields...)
					wantErrorWith(t, err, http.StatusBadGateway, "constraint_not_kept")
				} else {
					stream := c.Chat.Completions.NewStreaming(t.Context(), p, fields...)
					for stream.Next() {
						t.Errorf("the client gets %s", stream.Current().RawJSON())
					}
					wantErrorWith(t, stream.Err(), http.StatusBadGateway, "constraint_not_kept")
				}
				if got := d.engineRequests(t, id); len(got) != tt.calls {
					t.Errorf("%d model calls, want %d", len(got), tt.calls)
				}
			})
		}
	}
	t.Run("a grammar", func(t *testing.T) {
		_, err := c.Chat.Completions.New(t.Context(), user(model, "SAY x"), setFields(object{"guided_grammar": `root ::= "x"`})...)
		wantStatus(t, err, http.StatusBadRequest)
	})
	t.Run("a schema of many ways", func(t *testing.T) {
		defs := object{"a24": object{"type": "object"}}
		for i := range 24 {
			next := object{"$ref": fmt.Sprintf("#/$defs/a%d", i+1)}
			defs[fmt.Sprintf("a%d", i)] = object{"anyOf": []object{next, next}}
		}
		format := object{"type": "json_schema", "json_schema": object{"name": "verdict", "schema": object{"$ref": "#/$defs/a0", "$defs": defs}}}
		ask := func(text string) error {
			_, err := c.Chat.Completions.New(t.Context(), user(model, text), setFields(object{"response_format": format})...)
			return err
		}
		if err := ask("NOTHINK\nSAY {}"); err != nil {
			t.Error(err)
		}
		wantErrorWith(t, ask("NOTHINK\nSAY 1"), http.StatusBadGateway, "too much work")
	})
	t.Run("responses", func(t *testing.T) {
		c := d.checkedOpenAI(t)
		fields := setFields(object{"text": object{"format": object{"type": "json_schema", "name": "verdict", "schema": okSchema, "strict": true}}})
		if r := respondStreamed(t, c, asking(model, "NOTHINK\nSAY hello\nAGAIN JSON {\"ok\":true}"), fields...); r.Status != responses.ResponseStatusCompleted || r.OutputText() != `{"ok":true}` {
			t.Errorf("the response is %s", r.RawJSON())
		}
		_, err := c.Responses.New(t.Context(), asking(model, "NOTHINK\nSAY hello"), fields...)
		wantStatus(t, err, http.StatusBadGateway)
	})
}

// wantErrorWith checks for an API error with a status and a word in its JSON.
func wantErrorWith(t *testing.T, err error, status int, word string) {
	t.Helper()
	var apiError *openai.Error
	if !errors.As(err, &apiError) || apiError.StatusCode != status || !strings.Contains(apiError.RawJSON(), word) {
		t.Errorf("got %v, want %d with %q", err, status, word)
	}
}
