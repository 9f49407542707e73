package e2e

import (
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"
)

// object is a JSON object.
type object = map[string]any

// okSchema is the schema of {"ok":true}.
var okSchema = object{"type": "object", "properties": object{"ok": object{"type": "boolean"}}, "required": []string{"ok"}, "additionalProperties": false}

// chatTool and responseTool return the tool f with one property.
func chatTool(name string, strict bool) object {
	return object{"type": "function", "function": object{"name": name, "strict": strict, "parameters": countParameters}}
}

func responseTool(name string, strict bool) object {
	return object{"type": "function", "name": name, "strict": strict, "parameters": countParameters}
}

var countParameters = object{"type": "object", "properties": object{"n": object{"type": "integer"}}, "required": []string{"n"}, "additionalProperties": false}

// structuredOutput is a request that constrains the form of its reply, for a model
// that would write something else, and the expected result.
type structuredOutput struct {
	name   string
	text   string
	fields object
	want   choiceResult
}

// chatStructuredOutputs are the cases of chat completions.
func chatStructuredOutputs() []structuredOutput {
	two := []object{chatTool("f", false), chatTool("g", false)}
	named := object{"type": "function", "function": object{"name": "g"}}
	allowed := func(mode string) object {
		return object{"type": "allowed_tools", "allowed_tools": object{"mode": mode, "tools": []object{named}}}
	}
	format := object{"type": "json_schema", "json_schema": object{"name": "verdict", "schema": okSchema, "strict": true}}
	const hm = "THINK Hm.\n"
	return []structuredOutput{
		{"required", hm + "SAY hello", object{"tools": two, "tool_choice": "required"}, choiceResult{Reasoning: "Hm.", Calls: []call{{"f", `{"n": 1}`}}, Finish: "tool_calls"}},
		{"required, as it is", hm + "COMMENTARY Well.\nCALL g {\"n\":2}", object{"tools": two, "tool_choice": "required"}, choiceResult{Reasoning: "Hm.", Content: "Well.", Calls: []call{{"g", `{"n":2}`}}, Finish: "tool_calls"}},
		{"named", hm + "SAY hello", object{"tools": two, "tool_choice": named}, choiceResult{Reasoning: "Hm.", Calls: []call{{"g", `{"n": 1}`}}, Finish: "tool_calls"}},
		{"named, another wanted", hm + "CALL f {\"n\":1}", object{"tools": two, "tool_choice": named}, choiceResult{Reasoning: "Hm.", Calls: []call{{"g", `{"n": 1}`}}, Finish: "tool_calls"}},
		{"none", hm + "SAY hello", object{"tools": two, "tool_choice": "none"}, choiceResult{Reasoning: "Hm.", Content: "hello", Finish: "stop"}},
		{"allowed", hm + "CALL g {\"n\":1}", object{"tools": two, "tool_choice": allowed("auto")}, choiceResult{Reasoning: "Hm.", Calls: []call{{"g", `{"n":1}`}}, Finish: "tool_calls"}},
		{"allowed, no call", hm + "SAY hello", object{"tools": two, "tool_choice": allowed("auto")}, choiceResult{Reasoning: "Hm.", Content: "hello", Finish: "stop"}},
		{"allowed and required", hm + "CALL f {\"n\":1}", object{"tools": two, "tool_choice": allowed("required")}, choiceResult{Reasoning: "Hm.", Calls: []call{{"g", `{"n": 1}`}}, Finish: "tool_calls"}},
		{"strict", hm + "CALL f {\"n\":\"one\"}", object{"tools": []object{chatTool("f", true)}}, choiceResult{Reasoning: "Hm.", Calls: []call{{"f", `{"n": 1}`}}, Finish: "tool_calls"}},
		{"strict, no call", hm + "SAY hello", object{"tools": []object{chatTool("f", true)}}, choiceResult{Reasoning: "Hm.", Content: "hello", Finish: "stop"}},
		{"two calls", "@@" + twoCalls + "@@", object{"tools": two, "tool_choice": "required"}, choiceResult{Calls: []call{{"f", `{"n":1}`}, {"g", `{"n":2}`}}, Finish: "tool_calls"}},
		{"one call", "@@" + twoCalls + "@@", object{"tools": two, "parallel_tool_calls": false}, choiceResult{Calls: []call{{"f", `{"n":1}`}}, Finish: "tool_calls"}},
		{"json_object", hm + "SAY hello", object{"response_format": object{"type": "json_object"}}, choiceResult{Reasoning: "Hm.", Content: `{}`, Finish: "stop"}},
		{"json_schema", hm + "SAY hello", object{"response_format": format}, choiceResult{Reasoning: "Hm.", Content: `{"ok": true}`, Finish: "stop"}},
		{"json_schema, as it is", hm + `JSON {"ok":false}`, object{"response_format": format}, choiceResult{Reasoning: "Hm.", Content: `{"ok":false}`, Finish: "stop"}},
		{"json_schema and tools, a call", hm + "CALL f {\"n\":1}", object{"response_format": format, "tools": two}, choiceResult{Reasoning: "Hm.", Calls: []call{{"f", `{"n":1}`}}, Finish: "tool_calls"}},
		{"json_schema and tools, an answer", hm + "SAY hello", object{"response_format": format, "tools": two}, choiceResult{Reasoning: "Hm.", Content: `{"ok": true}`, Finish: "stop"}},
		{"regex", hm + "SAY hello", object{"guided_regex": "(yes|no)!"}, choiceResult{Reasoning: "Hm.", Content: "yes!", Finish: "stop"}},
		{"choice", hm + "SAY hello", object{"structured_outputs": object{"choice": []string{"no", "maybe"}}}, choiceResult{Reasoning: "Hm.", Content: "no", Finish: "stop"}},
	}
}

// twoCalls is a script with two calls in one completion.
const twoCalls = `<channel>commentary to=functions.f <constrain>json<message>{"n":1}<end><start>assistant<channel>commentary to=functions.g <constrain>json<message>{"n":2}<call>`

// Both engines enforce structured outputs, streamed and not: the model reasons
// first and then writes what the constraint allows.
func TestChatStructuredOutputs(t *testing.T) {
	d := start(t, options{})
	c := d.openai()
	for _, tt := range chatStructuredOutputs() {
		for _, model := range harmonyModels {
			t.Run(tt.name+"/"+model, func(t *testing.T) {
				fields := setFields(tt.fields)
				for how, r := range map[string]reply{"whole": nonStreamed(t, c, user(model, tt.text), fields...), "streamed": streamed(t, c, user(model, tt.text), fields...)} {
					if diff := gocmp.Diff([]choiceResult{tt.want}, r.Choices); diff != "" {
						t.Errorf("%s reply (-want +got):\n%s", how, diff)
					}
				}
			})
		}
	}
}

func setFields(fields object) []option.RequestOption {
	o := make([]option.RequestOption, 0, len(fields))
	for name, value := range fields {
		o = append(o, option.WithJSONSet(name, value))
	}
	return o
}

// The same cases in the Responses API.
func TestResponsesStructuredOutputs(t *testing.T) {
	d := start(t, options{})
	c := d.checkedOpenAI(t)
	two := []object{responseTool("f", false), responseTool("g", false)}
	g := object{"type": "function", "name": "g"}
	format := object{"type": "json_schema", "name": "verdict", "description": "Whether it is.", "schema": okSchema, "strict": true}
	const hm = "THINK Hm.\n"
	thought := item{Type: "reasoning", Status: "completed", Text: "Hm."}
	calls := func(name, arguments string) item {
		return item{Type: "function_call", Status: "completed", Name: name, Text: arguments}
	}
	final := func(text string) item {
		return item{Type: "message", Status: "completed", Phase: "final_answer", Text: text}
	}
	for _, tt := range []struct {
		name   string
		text   string
		fields object
		want   []item
		echo   map[string]string // members of the response
	}{
		{"required", hm + "SAY hello", object{"tools": two, "tool_choice": "required"}, []item{thought, calls("f", `{"n": 1}`)}, map[string]string{"tool_choice": `"required"`}},
		{"named", hm + "SAY hello", object{"tools": two, "tool_choice": g}, []item{thought, calls("g", `{"n": 1}`)}, map[string]string{"tool_choice": `{"type":"function","name":"g"}`}},
		{
			"custom", hm + "SAY hello",
			object{"tools": []object{{"type": "custom", "name": "shell"}}, "tool_choice": object{"type": "custom", "name": "shell"}},
			[]item{thought, {Type: "custom_tool_call", Status: "completed", Name: "shell", Text: "example"}},
			map[string]string{"tool_choice": `{"type":"custom","name":"shell"}`},
		},
		{
			"namespace", hm + "SAY hello",
			object{"tools": []object{{"type": "namespace", "name": "places", "description": "Places.", "tools": []object{responseTool("find", true)}}}, "tool_choice": "required"},
			[]item{thought, {Type: "function_call", Status: "completed", Namespace: "places", Name: "find", Text: `{"n": 1}`}},
			nil,
		},
		{"none", hm + "SAY hello", object{"tools": two, "tool_choice": "none"}, []item{thought, final("hello")}, nil},
		{
			"allowed", hm + "CALL g {\"n\":1}",
			object{"tools": two, "tool_choice": object{"type": "allowed_tools", "mode": "auto", "tools": []object{g}}},
			[]item{thought, calls("g", `{"n":1}`)},
			map[string]string{"tool_choice": `{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}`, "tools.#": "2"},
		},
		{
			"allowed and required", hm + "CALL f {\"n\":1}",
			object{"tools": two, "tool_choice": object{"type": "allowed_tools", "mode": "required", "tools": []object{g}}},
			[]item{thought, calls("g", `{"n": 1}`)},
			map[string]string{"tool_choice.mode": `"required"`},
		},
		{"strict", hm + "CALL f {\"n\":\"one\"}", object{"tools": []object{responseTool("f", true)}}, []item{thought, calls("f", `{"n": 1}`)}, map[string]string{"tools.0.strict": "true"}},
		{"two calls", "@@" + twoCalls + "@@", object{"tools": two, "tool_choice": "required"}, []item{calls("f", `{"n":1}`), calls("g", `{"n":2}`)}, nil},
		{"one call", "@@" + twoCalls + "@@", object{"tools": two, "tool_choice": "required", "parallel_tool_calls": false}, []item{calls("f", `{"n": 1}`)}, map[string]string{"parallel_tool_calls": "false"}},
		{"json_object", hm + "SAY hello", object{"text": object{"format": object{"type": "json_object"}}}, []item{thought, final(`{}`)}, map[string]string{"text.format": `{"type":"json_object"}`}},
		{
			"json_schema", hm + "SAY hello",
			object{"text": object{"format": format}},
			[]item{thought, final(`{"ok": true}`)},
			map[string]string{"text.format.name": `"verdict"`, "text.format.strict": "true", "text.format.schema.required": `["ok"]`, "text.format.description": `"Whether it is."`},
		},
		{"json_schema and tools, a call", hm + "CALL f {\"n\":1}", object{"text": object{"format": format}, "tools": two}, []item{thought, calls("f", `{"n":1}`)}, nil},
		{"json_schema and tools, an answer", hm + "SAY hello", object{"text": object{"format": format}, "tools": two}, []item{thought, final(`{"ok": true}`)}, nil},
		{"choice", hm + "SAY hello", object{"structured_outputs": object{"choice": []string{"no", "maybe"}}}, []item{thought, final("no")}, nil},
	} {
		for _, model := range harmonyModels {
			for name, respond := range responders {
				t.Run(tt.name+"/"+model+"/"+name, func(t *testing.T) {
					r := respond(t, c, asking(model, tt.text), setFields(tt.fields)...)
					if diff := gocmp.Diff(tt.want, itemsOf(r)); diff != "" {
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
	d := start(t, options{})
	chat, c := d.openai(), d.checkedOpenAI(t)
	const text = "SAY hello\nSIM grammar=ignore delay=20ms" // slow, so that the stream has started before its end is known
	for _, model := range harmonyModels {
		for name, fields := range map[string][]option.RequestOption{
			"json": setFields(object{"response_format": object{"type": "json_object"}}),
			"call": setFields(object{"tools": []object{chatTool("f", false)}, "tool_choice": "required"}),
		} {
			t.Run("chat/"+name+"/"+model, func(t *testing.T) {
				_, err := chat.Chat.Completions.New(t.Context(), user(model, text), fields...)
				wantStatus(t, err, http.StatusBadGateway)
				stream := chat.Chat.Completions.NewStreaming(t.Context(), user(model, text), fields...)
				defer func() { _ = stream.Close() }()
				for stream.Next() {
				}
				if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "constraint_not_kept") {
					t.Errorf("the stream ends with %v", err)
				}
			})
		}
		for name, fields := range map[string][]option.RequestOption{
			"json": setFields(object{"text": object{"format": object{"type": "json_object"}}}),
			"call": setFields(object{"tools": []object{responseTool("f", false)}, "tool_choice": "required"}),
		} {
			t.Run("responses/"+name+"/"+model, func(t *testing.T) {
				_, err := c.Responses.New(t.Context(), asking(model, text), fields...)
				wantStatus(t, err, http.StatusBadGateway)
				if r := respondStreamed(t, c, asking(model, text), fields...); r.Status != responses.ResponseStatusFailed {
					t.Errorf("the streamed response is %s", r.RawJSON())
				}
			})
		}
	}
}

// The engine gets the constraint with the prompt, and the prompt describes the form
// of the answer.
func TestEngineSeesConstraint(t *testing.T) {
	d := start(t, options{})
	for model, path := range map[string]string{sglangModel: "sampling_params.structural_tag", vllmModel: "structured_outputs.structural_tag"} {
		id := "constraint-" + model
		fields := append(setFields(object{"response_format": object{"type": "json_object"}}), option.WithHeader("x-request-id", id))
		nonStreamed(t, d.openai(), user(model, "JSON {}"), fields...)
		r := d.awaitEngine(t, id, stateFinished)
		if tag := gjson.GetBytes(r.Params, path).Str; !gjson.Valid(tag) || !strings.Contains(tag, `"json_schema":{"type":"object"}`) {
			t.Errorf("%s: the tag is %s", model, tag)
		}
		if !strings.Contains(r.Prompt, "# Response Formats\n\n## json_object") {
			t.Errorf("%s: the prompt is %s", model, r.Prompt)
		}
	}
}
