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

// An engine that takes no grammar keeps promises too: the reply is checked
// before the client sees any of it, and made once more where it breaks one. What
// breaks it twice is an error with a name. The model is told which line to follow
// the second time.
func TestPromisesWithoutGrammar(t *testing.T) {
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
		want   *said // nil: the error
		calls  int
	}{
		{"kept", "THINK Hm.\nJSON {\"ok\":true}", hello, &said{Reasoning: "Hm.", Content: `{"ok":true}`, Finish: "stop"}, 1},
		{"not of the schema, then kept", "THINK Hm.\nSAY {\"ok\":1}\nAGAIN JSON {\"ok\":false}", hello, &said{Reasoning: "Hm.", Content: `{"ok":false}`, Finish: "stop"}, 2},
		{"broken twice", "THINK Hm.\nSAY hello", hello, nil, 2},
		{"required, then called", "NOTHINK\nSAY hello\nAGAIN CALL g {\"n\":1}", object{"tools": two, "tool_choice": "required"}, &said{Calls: []call{{"g", `{"n":1}`}}, Finish: "tool_calls"}, 2},
		{"required, never called", "NOTHINK\nSAY hello!", object{"tools": two, "tool_choice": "required"}, nil, 2},
		{"strict arguments", "NOTHINK\nCALL f {\"n\":\"one\"}", object{"tools": two}, nil, 2},
		{"nothing promised", "NOTHINK\nSAY hello", object{"tools": []object{chatTool("g", false)}}, &said{Content: "hello", Finish: "stop"}, 1},
	} {
		for how, ask := range map[string]asker{"whole": whole, "streamed": streamed} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				id := fmt.Sprintf("unconstrained-%d-%s", i, how)
				fields := append(setFields(tt.fields), option.WithHeader("x-request-id", id))
				p := user(model, tt.text+"\nAS "+how) // prompts of their own
				if tt.want != nil {
					if diff := gocmp.Diff([]said{*tt.want}, ask(t, c, p, fields...).Choices); diff != "" {
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
	t.Run("a schema that nobody can check", func(t *testing.T) {
		defs := object{"a24": object{"type": "object"}}
		for i := range 24 {
			next := object{"$ref": fmt.Sprintf("#/$defs/a%d", i+1)}
			defs[fmt.Sprintf("a%d", i)] = object{"anyOf": []object{next, next}}
		}
		format := object{"type": "json_schema", "json_schema": object{"name": "verdict", "schema": object{"$ref": "#/$defs/a0", "$defs": defs}}}
		_, err := c.Chat.Completions.New(t.Context(), user(model, "JSON {}"), setFields(object{"response_format": format})...)
		wantErrorWith(t, err, http.StatusBadRequest, "more than 10000 ways")
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

// wantErrorWith demands an error of the API with a status and a word that its JSON
// has.
func wantErrorWith(t *testing.T, err error, status int, word string) {
	t.Helper()
	var apiError *openai.Error
	if !errors.As(err, &apiError) || apiError.StatusCode != status || !strings.Contains(apiError.RawJSON(), word) {
		t.Errorf("got %v, want %d with %q", err, status, word)
	}
}
