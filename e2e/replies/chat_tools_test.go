package replies

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// foldedCall is a call as a client adds it up.
type foldedCall struct {
	kind, id, name, text, finish string
	content                      gjson.Result
}

// calledBy asks a question, and adds up the one call of the reply, a stream or not.
func calledBy(t *testing.T, d *stack.Dataplane, stream bool, question, more string) foldedCall {
	t.Helper()
	resp, text := d.Chat(t, stack.VLLMModel, question, fmt.Sprintf(`,"stream":%t%s`, stream, more))
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, text)
	}

	events, field := []string{text}, "message"
	if stream {
		events, field = strings.Split(strings.ReplaceAll(text, "data: ", ""), "\n\n"), "delta"
	}
	var c foldedCall
	for _, e := range events {
		choice := gjson.Get(e, "choices.0")
		m := choice.Get(field)
		c.finish += choice.Get("finish_reason").Str
		if content := m.Get("content"); content.Exists() && !stream {
			c.content = content
		}
		call := m.Get("function_call")
		if listed := m.Get("tool_calls.0"); listed.Exists() {
			c.id += listed.Get("id").Str
			c.kind += listed.Get("type").Str
			call = listed.Get("function")
			if custom := listed.Get("custom"); custom.Exists() {
				call = custom
			}
		}
		c.name += call.Get("name").Str
		c.text += call.Get("arguments").Str + call.Get("input").Str
	}
	return c
}

// A client that knows functions only, and none of their later form, has a tool loop.
func TestFunctionsOfChat(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	const functions = `,"functions":[{"name":"weather","description":"x","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}]`
	for _, stream := range []bool{false, true} {
		for _, choice := range []string{``, `,"function_call":"auto"`, `,"function_call":{"name":"weather"}`} {
			c := calledBy(t, d, stream, `CALL functions.weather {"city":"Rome"}`, functions+choice)
			if c.id != "" || c.kind != "" || c.name != "weather" || gjson.Get(c.text, "city").Str == "" && choice == "" || !gjson.Valid(c.text) || c.finish != "function_call" {
				t.Errorf("stream %t, %s: %+v", stream, choice, c)
			}
			if !stream && c.content.Type != gjson.Null {
				t.Errorf("%s: content %s", choice, c.content.Raw)
			}
		}
		if c := calledBy(t, d, stream, `SAY hello`, functions+`,"function_call":"none"`); c.name != "" || c.finish != "stop" {
			t.Errorf("stream %t, no call: %+v", stream, c)
		}
	}

	// The call comes back in the next request, with its result.
	body := `{"model":"` + stack.VLLMModel + `","messages":[{"role":"user","content":"CALL functions.weather {}"},` +
		`{"role":"assistant","content":null,"function_call":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}},` +
		`{"role":"function","name":"weather","content":"sunny"}]` + functions + `}`
	resp := d.Do(t, "POST", "/v1/chat/completions", "application/json", strings.NewReader(body))
	if text := stack.ReadText(t, resp); resp.StatusCode != http.StatusOK || !strings.Contains(gjson.Get(text, "choices.0.message.content").Str, "sunny") {
		t.Errorf("with the result: %s: %s", resp.Status, text)
	}
}

// Calls of custom tools are text, as in Responses.
func TestCustomToolsOfChat(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	const tools = `,"tools":[{"type":"custom","custom":{"name":"patch","description":"x"}},{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`
	const question = `CALL functions.patch {"input":"line \"one\"\nline two"}`
	for _, stream := range []bool{false, true} {
		for _, choice := range []string{
			``, `,"tool_choice":"required"`,
			`,"tool_choice":{"type":"custom","custom":{"name":"patch"}}`,
			`,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"custom","custom":{"name":"patch"}}]}}`,
		} {
			c := calledBy(t, d, stream, question, tools+choice)
			if c.id == "" || c.kind != "custom" || c.name != "patch" || choice == "" && c.text != "line \"one\"\nline two" || c.finish != "tool_calls" {
				t.Errorf("stream %t, %s: %+v", stream, choice, c)
			}
		}
		if c := calledBy(t, d, stream, `CALL functions.f {"a":1}`, tools); c.kind != "function" || c.text != `{"a":1}` {
			t.Errorf("stream %t, a function beside it: %+v", stream, c)
		}
		c := calledBy(t, d, stream, question, `,"tools":[{"type":"custom","custom":{"name":"patch","format":{"type":"grammar","grammar":{"syntax":"regex","definition":"[a-c]+"}}}}],"tool_choice":"required"`)
		if c.kind != "custom" || strings.Trim(c.text, "abc") != "" || c.text == "" {
			t.Errorf("stream %t, with a grammar: %+v", stream, c)
		}
	}

	body := `{"model":"` + stack.VLLMModel + `","messages":[{"role":"user","content":"Patch it."},` +
		`{"role":"assistant","tool_calls":[{"id":"c1","type":"custom","custom":{"name":"patch","input":"a \"b\""}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"done"}]` + tools + `}`
	resp := d.Do(t, "POST", "/v1/chat/completions", "application/json", strings.NewReader(body))
	if text := stack.ReadText(t, resp); resp.StatusCode != http.StatusOK {
		t.Errorf("with the result: %s: %s", resp.Status, text)
	}
}
