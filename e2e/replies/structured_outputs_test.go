package replies

import (
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

func responseTool(name string, strict bool) stack.Object {
	return stack.Object{"type": "function", "name": name, "strict": strict, "parameters": stack.CountParameters}
}

// chatStructuredOutputs are the cases of chat completions.
func chatStructuredOutputs() []stack.StructuredOutput {
	two := []stack.Object{stack.ChatTool("f", false), stack.ChatTool("g", false)}
	named := stack.Object{"type": "function", "function": stack.Object{"name": "g"}}

	allowed := func(mode string) stack.Object {
		return stack.Object{"type": "allowed_tools", "allowed_tools": stack.Object{"mode": mode, "tools": []stack.Object{named}}}
	}
	format := stack.Object{"type": "json_schema", "json_schema": stack.Object{"name": "verdict", "schema": stack.OkSchema, "strict": true}}

	const hm = "THINK Hm.\n"
	return []stack.StructuredOutput{
		{Name: "required", Text: hm + "SAY hello", Fields: stack.Object{"tools": two, "tool_choice": "required"}, Want: stack.ChoiceResult{Reasoning: "Hm.", Calls: []stack.Call{{Name: "f", Arguments: `{"n": 1}`}}, Finish: "tool_calls"}},
		{Name: "required, as it is", Text: hm + "COMMENTARY Well.\nCALL g {\"n\":2}", Fields: stack.Object{"tools": two, "tool_choice": "required"}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: "Well.", Calls: []stack.Call{{Name: "g", Arguments: `{"n":2}`}}, Finish: "tool_calls"}},
		{Name: "named", Text: hm + "SAY hello", Fields: stack.Object{"tools": two, "tool_choice": named}, Want: stack.ChoiceResult{Reasoning: "Hm.", Calls: []stack.Call{{Name: "g", Arguments: `{"n": 1}`}}, Finish: "tool_calls"}},
		{Name: "named, another wanted", Text: hm + "CALL f {\"n\":1}", Fields: stack.Object{"tools": two, "tool_choice": named}, Want: stack.ChoiceResult{Reasoning: "Hm.", Calls: []stack.Call{{Name: "g", Arguments: `{"n": 1}`}}, Finish: "tool_calls"}},
		{Name: "none", Text: hm + "SAY hello", Fields: stack.Object{"tools": two, "tool_choice": "none"}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: "hello", Finish: "stop"}},
		{Name: "allowed", Text: hm + "CALL g {\"n\":1}", Fields: stack.Object{"tools": two, "tool_choice": allowed("auto")}, Want: stack.ChoiceResult{Reasoning: "Hm.", Calls: []stack.Call{{Name: "g", Arguments: `{"n":1}`}}, Finish: "tool_calls"}},
		{Name: "allowed, no call", Text: hm + "SAY hello", Fields: stack.Object{"tools": two, "tool_choice": allowed("auto")}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: "hello", Finish: "stop"}},
		{Name: "allowed and required", Text: hm + "CALL f {\"n\":1}", Fields: stack.Object{"tools": two, "tool_choice": allowed("required")}, Want: stack.ChoiceResult{Reasoning: "Hm.", Calls: []stack.Call{{Name: "g", Arguments: `{"n": 1}`}}, Finish: "tool_calls"}},
		{Name: "strict", Text: hm + "CALL f {\"n\":\"one\"}", Fields: stack.Object{"tools": []stack.Object{stack.ChatTool("f", true)}}, Want: stack.ChoiceResult{Reasoning: "Hm.", Calls: []stack.Call{{Name: "f", Arguments: `{"n": 1}`}}, Finish: "tool_calls"}},
		{Name: "strict, no call", Text: hm + "SAY hello", Fields: stack.Object{"tools": []stack.Object{stack.ChatTool("f", true)}}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: "hello", Finish: "stop"}},
		{Name: "two calls", Text: "@@" + twoCalls + "@@", Fields: stack.Object{"tools": two, "tool_choice": "required"}, Want: stack.ChoiceResult{Calls: []stack.Call{{Name: "f", Arguments: `{"n":1}`}, {Name: "g", Arguments: `{"n":2}`}}, Finish: "tool_calls"}},
		{Name: "one call", Text: "@@" + twoCalls + "@@", Fields: stack.Object{"tools": two, "parallel_tool_calls": false}, Want: stack.ChoiceResult{Calls: []stack.Call{{Name: "f", Arguments: `{"n":1}`}}, Finish: "tool_calls"}},
		{Name: "json_object", Text: hm + "SAY hello", Fields: stack.Object{"response_format": stack.Object{"type": "json_object"}}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: `{}`, Finish: "stop"}},
		{Name: "json_schema", Text: hm + "SAY hello", Fields: stack.Object{"response_format": format}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: `{"ok": true}`, Finish: "stop"}},
		{Name: "json_schema, as it is", Text: hm + `JSON {"ok":false}`, Fields: stack.Object{"response_format": format}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: `{"ok":false}`, Finish: "stop"}},
		{Name: "json_schema and tools, a call", Text: hm + "CALL f {\"n\":1}", Fields: stack.Object{"response_format": format, "tools": two}, Want: stack.ChoiceResult{Reasoning: "Hm.", Calls: []stack.Call{{Name: "f", Arguments: `{"n":1}`}}, Finish: "tool_calls"}},
		{Name: "json_schema and tools, an answer", Text: hm + "SAY hello", Fields: stack.Object{"response_format": format, "tools": two}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: `{"ok": true}`, Finish: "stop"}},
		{Name: "regex", Text: hm + "SAY hello", Fields: stack.Object{"guided_regex": "(yes|no)!"}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: "yes!", Finish: "stop"}},
		{Name: "choice", Text: hm + "SAY hello", Fields: stack.Object{"structured_outputs": stack.Object{"choice": []string{"no", "maybe"}}}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: "no", Finish: "stop"}},
	}
}

// twoCalls is a script with two calls in one completion.
const twoCalls = `<channel>commentary to=functions.f <constrain>json<message>{"n":1}<end><start>assistant<channel>commentary to=functions.g <constrain>json<message>{"n":2}<call>`

// Both engines enforce structured outputs, streamed and not: the model reasons
// first and then writes what the constraint allows.
func TestChatStructuredOutputs(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.Openai()
	for _, tt := range chatStructuredOutputs() {
		for _, model := range stack.HarmonyModels {
			t.Run(tt.Name+"/"+model, func(t *testing.T) {
				fields := stack.SetFields(tt.Fields)
				for how, r := range map[string]stack.ChatReply{"whole": stack.NonStreamed(t, c, stack.UserMessage(model, tt.Text), fields...), "streamed": stack.Streamed(t, c, stack.UserMessage(model, tt.Text), fields...)} {
					if diff := gocmp.Diff([]stack.ChoiceResult{tt.Want}, r.Choices); diff != "" {
						t.Errorf("%s reply (-want +got):\n%s", how, diff)
					}
				}
			})
		}
	}
}

// The same cases in the Responses API.
func TestResponsesStructuredOutputs(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.CheckedOpenAI(t)
	two := []stack.Object{responseTool("f", false), responseTool("g", false)}
	g := stack.Object{"type": "function", "name": "g"}
	format := stack.Object{"type": "json_schema", "name": "verdict", "description": "Whether it is.", "schema": stack.OkSchema, "strict": true}
	const hm = "THINK Hm.\n"
	thought := stack.Item{Type: "reasoning", Status: "completed", Text: "Hm."}

	calls := func(name, arguments string) stack.Item {
		return stack.Item{Type: "function_call", Status: "completed", Name: name, Text: arguments}
	}
	final := func(text string) stack.Item {
		return stack.Item{Type: "message", Status: "completed", Phase: "final_answer", Text: text}
	}

	for _, tt := range []struct {
		name   string
		text   string
		fields stack.Object
		want   []stack.Item
		echo   map[string]string // members of the response
	}{
		{"required", hm + "SAY hello", stack.Object{"tools": two, "tool_choice": "required"}, []stack.Item{thought, calls("f", `{"n": 1}`)}, map[string]string{"tool_choice": `"required"`}},
		{"named", hm + "SAY hello", stack.Object{"tools": two, "tool_choice": g}, []stack.Item{thought, calls("g", `{"n": 1}`)}, map[string]string{"tool_choice": `{"type":"function","name":"g"}`}},
		{
			"custom", hm + "SAY hello",
			stack.Object{"tools": []stack.Object{{"type": "custom", "name": "shell"}}, "tool_choice": stack.Object{"type": "custom", "name": "shell"}},
			[]stack.Item{thought, {Type: "custom_tool_call", Status: "completed", Name: "shell", Text: "example"}},
			map[string]string{"tool_choice": `{"type":"custom","name":"shell"}`},
		},
		{
			"namespace", hm + "SAY hello",
			stack.Object{"tools": []stack.Object{{"type": "namespace", "name": "places", "description": "Places.", "tools": []stack.Object{responseTool("find", true)}}}, "tool_choice": "required"},
			[]stack.Item{thought, {Type: "function_call", Status: "completed", Namespace: "places", Name: "find", Text: `{"n": 1}`}},
			nil,
		},
		{"none", hm + "SAY hello", stack.Object{"tools": two, "tool_choice": "none"}, []stack.Item{thought, final("hello")}, nil},
		{
			"allowed", hm + "CALL g {\"n\":1}",
			stack.Object{"tools": two, "tool_choice": stack.Object{"type": "allowed_tools", "mode": "auto", "tools": []stack.Object{g}}},
			[]stack.Item{thought, calls("g", `{"n":1}`)},
			map[string]string{"tool_choice": `{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}`, "tools.#": "2"},
		},
		{
			"allowed and required", hm + "CALL f {\"n\":1}",
			stack.Object{"tools": two, "tool_choice": stack.Object{"type": "allowed_tools", "mode": "required", "tools": []stack.Object{g}}},
			[]stack.Item{thought, calls("g", `{"n": 1}`)},
			map[string]string{"tool_choice.mode": `"required"`},
		},
		{"strict", hm + "CALL f {\"n\":\"one\"}", stack.Object{"tools": []stack.Object{responseTool("f", true)}}, []stack.Item{thought, calls("f", `{"n": 1}`)}, map[string]string{"tools.0.strict": "true"}},
		{"two calls", "@@" + twoCalls + "@@", stack.Object{"tools": two, "tool_choice": "required"}, []stack.Item{calls("f", `{"n":1}`), calls("g", `{"n":2}`)}, nil},
		{"one call", "@@" + twoCalls + "@@", stack.Object{"tools": two, "tool_choice": "required", "parallel_tool_calls": false}, []stack.Item{calls("f", `{"n": 1}`)}, map[string]string{"parallel_tool_calls": "false"}},
		{"json_object", hm + "SAY hello", stack.Object{"text": stack.Object{"format": stack.Object{"type": "json_object"}}}, []stack.Item{thought, final(`{}`)}, map[string]string{"text.format": `{"type":"json_object"}`}},
		{
			"json_schema", hm + "SAY hello",
			stack.Object{"text": stack.Object{"format": format}},
			[]stack.Item{thought, final(`{"ok": true}`)},
			map[string]string{"text.format.name": `"verdict"`, "text.format.strict": "true", "text.format.schema.required": `["ok"]`, "text.format.description": `"Whether it is."`},
		},
		{"json_schema and tools, a call", hm + "CALL f {\"n\":1}", stack.Object{"text": stack.Object{"format": format}, "tools": two}, []stack.Item{thought, calls("f", `{"n":1}`)}, nil},
		{"json_schema and tools, an answer", hm + "SAY hello", stack.Object{"text": stack.Object{"format": format}, "tools": two}, []stack.Item{thought, final(`{"ok": true}`)}, nil},
		{"choice", hm + "SAY hello", stack.Object{"structured_outputs": stack.Object{"choice": []string{"no", "maybe"}}}, []stack.Item{thought, final("no")}, nil},
	} {
		for _, model := range stack.HarmonyModels {
			for name, respond := range stack.Responders {
				t.Run(tt.name+"/"+model+"/"+name, func(t *testing.T) {
					r := respond(t, c, stack.Asking(model, tt.text), stack.SetFields(tt.fields)...)
					if diff := gocmp.Diff(tt.want, stack.ItemsOf(r)); diff != "" {
						t.Errorf("items (-want +got):\n%s", diff)
					}

					for field, want := range tt.echo {
						if got := gjson.Get(r.RawJSON(), field).Raw; got != want {
							t.Errorf("%s is %s, want %s", field, got, want)
						}
					}
				})
			}
		}
	}
}

// If an engine ignores grammars, the client gets an error, streamed or not, in both
// APIs.
func TestStructuredOutputsViolated(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	chat, c := d.Openai(), d.CheckedOpenAI(t)
	const text = "SAY hello\nSIM grammar=ignore delay=20ms" // slow, so that the stream has started before its end is known

	for _, model := range stack.HarmonyModels {
		for name, fields := range map[string][]option.RequestOption{
			"json": stack.SetFields(stack.Object{"response_format": stack.Object{"type": "json_object"}}),
			"call": stack.SetFields(stack.Object{"tools": []stack.Object{stack.ChatTool("f", false)}, "tool_choice": "required"}),
		} {
			t.Run("chat/"+name+"/"+model, func(t *testing.T) {
				_, err := chat.Chat.Completions.New(t.Context(), stack.UserMessage(model, text), fields...)
				stack.WantStatus(t, err, http.StatusBadGateway)

				stream := chat.Chat.Completions.NewStreaming(t.Context(), stack.UserMessage(model, text), fields...)
				defer func() { _ = stream.Close() }()
				for stream.Next() {
				}
				if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "constraint_not_kept") {
					t.Errorf("the stream ends with %v", err)
				}
			})
		}

		for name, fields := range map[string][]option.RequestOption{
			"json": stack.SetFields(stack.Object{"text": stack.Object{"format": stack.Object{"type": "json_object"}}}),
			"call": stack.SetFields(stack.Object{"tools": []stack.Object{responseTool("f", false)}, "tool_choice": "required"}),
		} {
			t.Run("responses/"+name+"/"+model, func(t *testing.T) {
				_, err := c.Responses.New(t.Context(), stack.Asking(model, text), fields...)
				stack.WantStatus(t, err, http.StatusBadGateway)
				if r := stack.RespondStreamed(t, c, stack.Asking(model, text), fields...); r.Status != responses.ResponseStatusFailed {
					t.Errorf("the streamed response is %s", r.RawJSON())
				}
			})
		}
	}
}

// The engine gets the constraint with the prompt, and the prompt describes the form
// of the answer.
func TestEngineSeesConstraint(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for model, path := range map[string]string{stack.SGLangModel: "sampling_params.structural_tag", stack.VLLMModel: "structured_outputs.structural_tag"} {
		id := "constraint-" + model
		fields := append(stack.SetFields(stack.Object{"response_format": stack.Object{"type": "json_object"}}), option.WithHeader("x-request-id", id))
		stack.NonStreamed(t, d.Openai(), stack.UserMessage(model, "JSON {}"), fields...)
		r := d.AwaitEngine(t, id, stack.StateFinished)
		if tag := gjson.GetBytes(r.Params, path).Str; !gjson.Valid(tag) || !strings.Contains(tag, `"json_schema":{"type":"object"}`) {
			t.Errorf("%s: the tag is %s", model, tag)
		}
		if !strings.Contains(r.Prompt, "# Response Formats\n\n## json_object") {
			t.Errorf("%s: the prompt is %s", model, r.Prompt)
		}
	}
}
