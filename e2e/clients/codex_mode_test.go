package clients

import (
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared/constant"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// In Codex compatibility mode a turn with tools is one response, in every store,
// streamed or not.
func TestCodexMode(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.AllowOverride = true }})
	c := d.CheckedOpenAI(t)
	mode := option.WithHeader("x-envoy-harmony-codex", "on")
	for _, model := range stack.HarmonyModels {
		for name, respond := range stack.Responders {
			t.Run(model+"/"+name, func(t *testing.T) {
				p := stack.Asking(model, "THINK Hm.\nCALL get_weather {\"city\":\"Bern\"}\nCALL get_weather {\"city\":\"Rom\"}\nSAY done")
				p.Tools = stack.ResponseTools
				first := respond(t, c, p, mode)

				p.PreviousResponseID = openai.String(first.ID)
				p.Input = stack.InputItems(stack.OutputOf(stack.CallOf(t, first), "sun"))
				second := respond(t, c, p, mode)
				if again := respond(t, c, p, mode); again.RawJSON() != second.RawJSON() {
					t.Errorf("the repeated request is answered with\n%s\nwant\n%s", again.RawJSON(), second.RawJSON())
				}

				call := stack.CallOf(t, second)
				p.Input = stack.InputItems(echoOf(call))
				third := respond(t, c, p, mode)
				if second.ID != first.ID || third.ID != first.ID || third.OutputText() != "done" {
					t.Errorf("the responses are %s, %s and %s: %q", first.ID, second.ID, third.ID, third.OutputText())
				}
				if len(third.Output) != 2 { // reasoning and answer
					t.Errorf("the last response repeats earlier items: %s", third.RawJSON())
				}
				got, err := c.Responses.Get(t.Context(), first.ID, responses.ResponseGetParams{})
				if err != nil {
					t.Fatal(err)
				}
				stack.SameJSON(t, "the stored response", third.RawJSON(), got.RawJSON())

				p.Input = stack.InputItems(stack.OutputOf(call, "rain"))
				_, err = c.Responses.New(t.Context(), p, mode)
				stack.WantError(t, "another output", err, http.StatusConflict, "response_conflict", "previous_response_id")

				p.Input = responses.ResponseNewParamsInputUnion{OfString: openai.String("LAST_ASSISTANT")}
				if next := respond(t, c, p, mode); next.ID == first.ID || next.OutputText() != "LAST:done" {
					t.Errorf("the next turn is %s: %q", next.ID, next.OutputText())
				}
			})
		}
	}
}

// echoOf returns a call as clients send it back, without the tool's result.
func echoOf(call *responses.ResponseOutputItemUnion) responses.ResponseInputItemUnionParam {
	return responses.ResponseInputItemUnionParam{OfFunctionCall: &responses.ResponseFunctionToolCallParam{
		Type: constant.FunctionCall("function_call"), CallID: call.CallID, Name: call.Name, Arguments: call.Arguments.OfString,
		Status: responses.ResponseFunctionToolCallStatusCompleted,
	}}
}
