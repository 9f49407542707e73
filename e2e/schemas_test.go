package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// schemaFormat returns the response_format of a schema.
func schemaFormat(schema any, strict bool) object {
	return object{"response_format": object{"type": "json_schema", "json_schema": object{"name": "n", "schema": schema, "strict": strict}}}
}

// patterned returns the schema of an object with a text that matches a pattern.
func patterned(pattern string) object {
	return object{"type": "object", "properties": object{"a": object{"type": "string", "pattern": pattern}}, "required": []string{"a"}, "additionalProperties": false}
}

// A pattern has the same meaning for the engine and the filter, or is rejected with
// its position.
func TestSchemaPatterns(t *testing.T) {
	d := start(t, options{})
	c := d.openai()
	for pattern, value := range map[string]string{
		`\A[a-z]+\z`: "abz", `^[[:alpha:]]+$`: "Zoe", `^(?i)(?P<n>yes)$`: "YES", `^[\u4e00-\u9fa5]+$`: "世界", `b`: "abc", `^[a-z]{1,200}$`: strings.Repeat("a", 150),
		`^[\p{L} ]+$`: "é", `\bfoo`: "a foo", // which the filter checks
	} {
		for _, model := range harmonyModels {
			answer := `{"a":"` + value + `"}`
			r := nonStreamed(t, c, user(model, "JSON "+answer), setFields(schemaFormat(patterned(pattern), true))...)
			if len(r.Choices) != 1 || r.Choices[0].Content != answer {
				t.Errorf("%s, %s: %+v", model, pattern, r.Choices)
			}
		}
	}
	for _, pattern := range []string{`^(?=a)`, `^([a-z]{1,30}){1,30}$`} {
		for what, fields := range map[string]object{
			"response_format.json_schema.properties.a": schemaFormat(patterned(pattern), true),
			"tools.f.parameters.properties.a":          {"tools": []object{{"type": "function", "function": object{"name": "f", "strict": true, "parameters": patterned(pattern)}}}},
		} {
			_, err := c.Chat.Completions.New(t.Context(), user(sglangModel, "JSON {}"), setFields(fields)...)
			var fault *openai.Error
			if !errors.As(err, &fault) || fault.StatusCode != http.StatusBadRequest || fault.Param != what || !strings.Contains(fault.Message, "pattern") {
				t.Errorf("%s: %v", pattern, err)
			}
		}
		r := nonStreamed(t, c, user(sglangModel, `JSON {"a":"é"}`), setFields(schemaFormat(patterned(pattern), false))...)
		if len(r.Choices) != 1 || r.Choices[0].Content != `{"a":"é"}` {
			t.Errorf("%s, not strict: %+v", pattern, r.Choices)
		}
	}
	_, err := c.Chat.Completions.New(t.Context(), user(sglangModel, "SAY a"), setFields(object{"guided_regex": `\bfoo`})...)
	wantStatus(t, err, http.StatusBadRequest)
}

// Violations of a strict schema that the engine's grammar accepts are detected at
// the end of the reply. A schema that is not strict is only an instruction to the
// model.
func TestStrictSchemasViolated(t *testing.T) {
	d := start(t, options{})
	chat, c := d.openai(), d.checkedOpenAI(t)
	const answer, call = "JSON {\"ok\":1}\nSIM grammar=ignore delay=20ms", "CALL f {\"n\":\"one\"}\nSIM grammar=ignore delay=20ms"
	for _, model := range harmonyModels {
		for text, fields := range map[string]object{answer: schemaFormat(okSchema, true), call: {"tools": []object{chatTool("f", true)}}} {
			_, err := chat.Chat.Completions.New(t.Context(), user(model, text), setFields(fields)...)
			wantStatus(t, err, http.StatusBadGateway)
			stream := chat.Chat.Completions.NewStreaming(t.Context(), user(model, text), setFields(fields)...)
			for stream.Next() {
			}
			if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "constraint_not_kept") {
				t.Errorf("%s, %s: the stream ends with %v", model, text, err)
			}
			_ = stream.Close()
		}
		r := nonStreamed(t, chat, user(model, answer), setFields(schemaFormat(okSchema, false))...)
		if len(r.Choices) != 1 || r.Choices[0].Content != `{"ok":1}` {
			t.Errorf("%s, not strict: %+v", model, r.Choices)
		}
		strict := setFields(object{"tools": []object{responseTool("f", true)}})
		if r := respondStreamed(t, c, asking(model, call), strict...); r.Status != responses.ResponseStatusFailed {
			t.Errorf("the streamed response is %s", r.RawJSON())
		}
	}
}
