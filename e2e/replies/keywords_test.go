package replies

import (
	"fmt"
	"net/http"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/option"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// TestKeywordsBeyondGrammars shows that a keyword of a strict schema that no grammar
// enforces is checked in the reply: the call is made once more, then it is an error.
func TestKeywordsBeyondGrammars(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: stack.EveryEngine})
	c := d.Openai()
	model := stack.ModelOf("vllm")

	schema := stack.Object{
		"type": "object", "required": []string{"n"}, "additionalProperties": false,
		"properties": stack.Object{"n": stack.Object{"type": "array", "items": stack.Object{"type": "integer"}, "uniqueItems": true}},
	}
	fields := stack.Object{"response_format": stack.Object{"type": "json_schema", "json_schema": stack.Object{"name": "numbers", "schema": schema, "strict": true}}}

	for i, tt := range []struct {
		name, text, want string
		calls            int
	}{
		{"kept", `JSON {"n":[1,2]}`, `{"n":[1,2]}`, 1},
		{"kept the second time", "JSON {\"n\":[1,1]}\nAGAIN JSON {\"n\":[1,2]}", `{"n":[1,2]}`, 2},
		{"never kept", `JSON {"n":[1,1]}`, "", 2},
	} {
		for how, ask := range map[string]stack.RequestMode{"whole": stack.NonStreamed, "streamed": stack.Streamed} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				id := fmt.Sprintf("keywords-%d-%s", i, how)
				opts := append(stack.SetFields(fields), option.WithHeader("x-request-id", id))
				p := stack.UserMessage(model, "NOTHINK\n"+tt.text+"\nAS "+how) // distinct prompts

				if tt.want != "" {
					if diff := gocmp.Diff([]stack.ChoiceResult{{Content: tt.want, Finish: "stop"}}, ask(t, c, p, opts...).Choices); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				} else if how == "whole" {
					_, err := c.Chat.Completions.New(t.Context(), p, opts...)
					stack.WantErrorWith(t, err, http.StatusBadGateway, "constraint_not_kept")
				} else {
					stream := c.Chat.Completions.NewStreaming(t.Context(), p, opts...)
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
}
