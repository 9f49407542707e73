package replies

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// callingAPIs are requests of each API with a tool that takes a command, and where a
// reply has the arguments of its call.
var callingAPIs = map[string]struct{ fields, whole, delta string }{
	"/v1/chat/completions": {
		`"tools":[{"type":"function","function":{"name":"run","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}],"messages":[{"role":"user","content":%q}]`,
		"choices.0.message.tool_calls.0.function.arguments", "choices.0.delta.tool_calls.0.function.arguments",
	},
	"/v1/responses": {
		`"tools":[{"type":"function","name":"run","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}],"input":%q`,
		"output.0.arguments", "delta",
	},
	"/v1/messages": {
		`"max_tokens":1000,"tools":[{"name":"run","input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}],"messages":[{"role":"user","content":%q}]`,
		"content.0.input", "delta.partial_json",
	},
}

// streamedArguments joins the arguments of a call in a stream.
func streamedArguments(stream, delta string) string {
	var text strings.Builder
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if kind := gjson.Get(data, "type").Str; ok && (delta != "delta" || kind == "response.function_call_arguments.delta") {
			text.WriteString(gjson.Get(data, delta).Str)
		}
	}
	return text.String()
}

// Faulty arguments are repaired in every API, streamed and not; with pass they are passed
// on as they are.
func TestToolArguments(t *testing.T) {
	faults := map[string]string{
		`{"command":"ls"}`:                 `{"command":"ls"}`,
		`{'command': 'it is', 'x': True,}`: `{"command": "it is", "x": true}`,
		`ls -l "a b"`:                      `{"command":"ls -l \"a b\""}`,
		"{\"command\":\"a\nb\"}":           `{"command":"a\nb"}`,
		"```json\n{\"command\":1}\n```":    `{"command":1}`,
	}

	repairing := stack.Start(t, stack.Options{})
	passing := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.ModelDefaults.ToolArguments = turn.ArgumentsPass }})

	for path, api := range callingAPIs {
		for fault, want := range faults {
			script := "@@<channel>commentary to=functions.run<message>" + fault + "<call>@@"
			object := askText(t, repairing, path, fmt.Sprintf(`"model":%q,`, stack.SGLangModel)+api.fields, script)
			if got := gjson.Get(object, api.whole).String(); got != want && (path != "/v1/messages" || got != gjson.Get(want, "@ugly").Raw) {
				t.Errorf("%s, %s: %s, want %s", path, fault, got, want)
			}

			stream := askText(t, repairing, path, fmt.Sprintf(`"model":%q,"stream":true,`, stack.SGLangModel)+api.fields, script)
			if got := streamedArguments(stream, api.delta); got != want {
				t.Errorf("%s, %s, streamed: %s, want %s", path, fault, got, want)
			}

			if path == "/v1/messages" {
				continue // its objects have no other text than JSON
			}

			object = askText(t, passing, path, fmt.Sprintf(`"model":%q,`, stack.SGLangModel)+api.fields, script)
			if got := gjson.Get(object, api.whole).String(); got != fault {
				t.Errorf("%s, %s: passed on as %s", path, fault, got)
			}
		}
	}
}

// Arguments that a tool does not take are asked for again, and the client gets those that
// it does.
func TestToolArgumentsAreAskedForAgain(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.ModelDefaults.ToolArguments = turn.ArgumentsRetry }})
	for path, api := range callingAPIs {
		for _, model := range stack.HarmonyModels {
			for fault, kept := range map[string]bool{`{"command":"ls"}`: true, `{"command":1}`: false, `{"command":`: false, `[1]`: false} {
				script := "@@<channel>commentary to=functions.run<message>" + fault + "<call>@@"
				object := askText(t, d, path, fmt.Sprintf(`"model":%q,`, model)+api.fields, script)
				got := gjson.Get(object, api.whole).String()
				if !gjson.Valid(got) || gjson.Get(got, "command").Type == gjson.Number || kept != (gjson.Get(got, "command").Str == "ls") {
					t.Errorf("%s, %s, %s: %s", path, model, fault, got)
				}
				stream := askText(t, d, path, fmt.Sprintf(`"model":%q,"stream":true,`, model)+api.fields, script)
				if got := streamedArguments(stream, api.delta); !gjson.Valid(got) || gjson.Get(got, "command").Type == gjson.Number || kept != (gjson.Get(got, "command").Str == "ls") {
					t.Errorf("%s, %s, %s, streamed: %s", path, model, fault, got)
				}
			}
		}
	}
}
