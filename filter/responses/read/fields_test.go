package read

import (
	"context"
	"fmt"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// TestFieldsAreHandled shows that every field does what its row says.
func TestFieldsAreHandled(t *testing.T) {
	t.Parallel()
	part := func(kind, member string) string {
		return askItems(`{"role":"user","content":[{"type":"` + kind + `","` + member + `":"x",%s}]}`)
	}
	call := func(kind, text string) string {
		return askItems(`{"type":"` + kind + `","call_id":"a","name":"f","` + text + `":"{}",%s},{"type":"` + kind + `_output","call_id":"a","output":"x"}`)
	}
	output := func(kind, text string) string {
		return askItems(`{"type":"` + kind + `","call_id":"a","name":"f","` + text + `":"{}"},{"type":"` + kind + `_output","call_id":"a","output":"x",%s}`)
	}
	outputPart := func(kind, member string) string {
		return askItems(`{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":[{"type":"` + kind + `","` + member + `":"x",%s}]}`)
	}
	testAPI.Handles(t, objects, map[string]string{
		"":                               ask(`,%s`),
		"reasoning":                      ask(`,"reasoning":{%s}`),
		"thinking":                       ask(`,"thinking":{%s}`),
		"chat_template_kwargs":           ask(`,"chat_template_kwargs":{%s}`),
		"text":                           ask(`,"text":{%s}`),
		"text.format":                    ask(`,"text":{"format":{"type":"json_schema","name":"n","schema":{},%s}}`),
		"context_management":             ask(`,"context_management":[{"type":"compaction",%s}]`),
		"structured_outputs":             ask(`,"structured_outputs":{%s}`),
		"tools[function]":                ask(`,"tools":[{"type":"function","name":"f",%s}]`),
		"tools[custom]":                  ask(`,"tools":[{"type":"custom","name":"f",%s}]`),
		"tools[namespace]":               ask(`,"tools":[{"type":"namespace","name":"s","tools":[],%s}]`),
		"tools[tool_search]":             ask(`,"tools":[{"type":"tool_search","execution":"client",%s}]`),
		"tools[mcp]":                     "",
		"prompt_cache_options":           ask(`,"prompt_cache_options":{%s}`),
		"tools.tools[function]":          ask(`,"tools":[{"type":"namespace","name":"s","tools":[{"type":"function","name":"f",%s}]}]`),
		"tools.tools[custom]":            ask(`,"tools":[{"type":"namespace","name":"s","tools":[{"type":"custom","name":"f",%s}]}]`),
		"tool_choice[allowed_tools]":     ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"get_weather"}],%s}`),
		"input[message]":                 askItems(`{"type":"message","role":"user","content":"x",%s}`),
		"input[reasoning]":               askItems(`{"role":"user","content":"x"},{"type":"reasoning","summary":[],%s}`),
		"input[function_call]":           call("function_call", "arguments"),
		"input[function_call_output]":    output("function_call", "arguments"),
		"input[custom_tool_call]":        call("custom_tool_call", "input"),
		"input[custom_tool_call_output]": output("custom_tool_call", "input"),
		"input.content[input_text]":      part("input_text", "text"),
		"input.content[output_text]":     part("output_text", "text"),
		"input.content[refusal]":         part("refusal", "refusal"),
		"input.content[input_image]":     part("input_image", "image_url"),
		"input.output[input_text]":       outputPart("input_text", "text"),
		"input.output[input_image]":      outputPart("input_image", "image_url"),
		"input.content[reasoning_text]":  askItems(`{"role":"user","content":"x"},{"type":"reasoning","content":[{"type":"reasoning_text","text":"x",%s}]}`),
		"input.summary[summary_text]":    askItems(`{"role":"user","content":"x"},{"type":"reasoning","summary":[{"type":"summary_text","text":"x",%s}]}`),
		"input.content[input_file]":      "", // is a 400
		"input.output[input_file]":       askItems(`{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":[{"type":"input_file","file_id":"x",%s}]}`),
	})
}

// testAPI reads requests, and makes no replies.
var testAPI = &apitest.API{
	Decode: func(body []byte, rc *turn.RequestContext) (api.Request, *apierror.Error) {
		q, err := (&Reader{}).Read(context.Background(), body, rc)
		return unanswered{q}, err
	},
	Ask: ask,
}

// unanswered is a request to which no reply is made.
type unanswered struct{ *request.Request }

func (unanswered) Info() api.Info              { return api.Info{} }
func (unanswered) NewReply(api.Mode) api.Reply { return nil }

func ask(members string) string {
	return fmt.Sprintf(`{"model":"gpt-oss-20b","input":"Hi"%s}`, members)
}

func askItems(items string) string {
	return fmt.Sprintf(`{"model":"gpt-oss-20b","input":[%s]}`, items)
}

const weatherTool = `,"tools":[{"type":"function",` + apitest.WeatherTool + `}]`
