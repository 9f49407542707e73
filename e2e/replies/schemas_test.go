package replies

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// schemaFormat returns the response_format of a schema.
func schemaFormat(schema any, strict bool) stack.Object {
	return stack.Object{"response_format": stack.Object{"type": "json_schema", "json_schema": stack.Object{"name": "n", "schema": schema, "strict": strict}}}
}

// patterned returns the schema of an object with a text that matches a pattern.
func patterned(pattern string) stack.Object {
	return stack.Object{"type": "object", "properties": stack.Object{"a": stack.Object{"type": "string", "pattern": pattern}}, "required": []string{"a"}, "additionalProperties": false}
}

// A pattern has the same meaning for the engine and the filter, or is rejected with
// its position.
func TestSchemaPatterns(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	c := d.Openai()

	for pattern, value := range map[string]string{
		`\A[a-z]+\z`: "abz", `^[[:alpha:]]+$`: "Zoe", `^(?i)(?P<n>yes)$`: "YES", `^[\u4e00-\u9fa5]+$`: "世界", `b`: "abc", `^[a-z]{1,200}$`: strings.Repeat("a", 150),
		`^[\p{L} ]+$`: "é", `\bfoo`: "a foo", // which the filter checks
	} {
		for _, model := range stack.HarmonyModels {
			answer := `{"a":"` + value + `"}`
			r := stack.NonStreamed(t, c, stack.UserMessage(model, "JSON "+answer), stack.SetFields(schemaFormat(patterned(pattern), true))...)
			if len(r.Choices) != 1 || r.Choices[0].Content != answer {
				t.Errorf("%s, %s: %+v", model, pattern, r.Choices)
			}
		}
	}

	for _, pattern := range []string{`^(?=a)`, `^([a-z]{1,30}){1,30}$`} {
		for what, fields := range map[string]stack.Object{
			"response_format.json_schema.properties.a": schemaFormat(patterned(pattern), true),
			"tools.f.parameters.properties.a":          {"tools": []stack.Object{{"type": "function", "function": stack.Object{"name": "f", "strict": true, "parameters": patterned(pattern)}}}},
		} {
			_, err := c.Chat.Completions.New(t.Context(), stack.UserMessage(stack.SGLangModel, "JSON {}"), stack.SetFields(fields)...)
			var fault *openai.Error
			if !errors.As(err, &fault) || fault.StatusCode != http.StatusBadRequest || fault.Param != what || !strings.Contains(fault.Message, "pattern") {
				t.Errorf("%s: %v", pattern, err)
			}
		}

		r := stack.NonStreamed(t, c, stack.UserMessage(stack.SGLangModel, `JSON {"a":"é"}`), stack.SetFields(schemaFormat(patterned(pattern), false))...)
		if len(r.Choices) != 1 || r.Choices[0].Content != `{"a":"é"}` {
			t.Errorf("%s, not strict: %+v", pattern, r.Choices)
		}
	}

	_, err := c.Chat.Completions.New(t.Context(), stack.UserMessage(stack.SGLangModel, "SAY a"), stack.SetFields(stack.Object{"guided_regex": `\bfoo`})...)
	stack.WantStatus(t, err, http.StatusBadRequest)
}

// Violations of a strict schema that the engine's grammar accepts are detected at
// the end of the reply. A schema that is not strict is only an instruction to the
// model.
func TestStrictSchemasViolated(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	chat, c := d.Openai(), d.CheckedOpenAI(t)
	const answer, call = "JSON {\"ok\":1}\nSIM grammar=ignore delay=20ms", "CALL f {\"n\":\"one\"}\nSIM grammar=ignore delay=20ms"

	for _, model := range stack.HarmonyModels {
		for text, fields := range map[string]stack.Object{answer: schemaFormat(stack.OkSchema, true), call: {"tools": []stack.Object{stack.ChatTool("f", true)}}} {
			_, err := chat.Chat.Completions.New(t.Context(), stack.UserMessage(model, text), stack.SetFields(fields)...)
			stack.WantStatus(t, err, http.StatusBadGateway)

			stream := chat.Chat.Completions.NewStreaming(t.Context(), stack.UserMessage(model, text), stack.SetFields(fields)...)
			for stream.Next() {
			}
			if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "constraint_not_kept") {
				t.Errorf("%s, %s: the stream ends with %v", model, text, err)
			}
			_ = stream.Close()
		}

		r := stack.NonStreamed(t, chat, stack.UserMessage(model, answer), stack.SetFields(schemaFormat(stack.OkSchema, false))...)
		if len(r.Choices) != 1 || r.Choices[0].Content != `{"ok":1}` {
			t.Errorf("%s, not strict: %+v", model, r.Choices)
		}

		strict := stack.SetFields(stack.Object{"tools": []stack.Object{responseTool("f", true)}})
		if r := stack.RespondStreamed(t, c, stack.Asking(model, call), strict...); r.Status != responses.ResponseStatusFailed {
			t.Errorf("the streamed response is %s", r.RawJSON())
		}
	}
}
