package stack

import (
	"github.com/openai/openai-go/v3/option"
)

// Object is a JSON object.
type Object = map[string]any

// OkSchema is the schema of {"ok":true}.
var OkSchema = Object{
	"type": "object", "properties": Object{"ok": Object{"type": "boolean"}},
	"required": []string{"ok"}, "additionalProperties": false,
}

// ChatTool and responseTool return the tool f with one property.
func ChatTool(name string, strict bool) Object {
	return Object{"type": "function", "function": Object{"name": name, "strict": strict, "parameters": CountParameters}}
}

// CountParameters are the parameters of a function that takes an integer.
var CountParameters = Object{
	"type": "object", "properties": Object{"n": Object{"type": "integer"}},
	"required": []string{"n"}, "additionalProperties": false,
}

// StructuredOutput is a request that constrains the form of its reply, for a model
// that would write something else, and the expected result.
type StructuredOutput struct {
	Name   string
	Text   string
	Fields Object
	Want   ChoiceResult
}

// SetFields returns options that set fields of a request.
func SetFields(fields Object) []option.RequestOption {
	o := make([]option.RequestOption, 0, len(fields))
	for name, value := range fields {
		o = append(o, option.WithJSONSet(name, value))
	}
	return o
}
