package messages

import "testing"

// TestFieldsAreHandled shows that every field does what its row says.
func TestFieldsAreHandled(t *testing.T) {
	t.Parallel()
	turns := func(call, result string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}` + call + `}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"` + result + `}]}]}`
	}
	testAPI(t).Handles(t, objects, map[string]string{
		"":                              ask(`,%s`),
		"messages":                      `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi",%s}]}`,
		"messages.content[tool_use]":    turns(`,%s`, ``),
		"messages.content[tool_result]": turns(``, `,%s`),
		"thinking":                      ask(`,"thinking":{"type":"adaptive",%s}`),
		"output_config":                 ask(`,"output_config":{%s}`),
		"container":                     ask(`,"container":{%s}`),
		"metadata":                      ask(`,"metadata":{%s}`),
		"tools":                         ask(`,"tools":[{"name":"f","input_schema":{},%s}]`),
		"tool_choice":                   ask(`,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"auto",%s}`),
		"chat_template_kwargs":          ask(`,"chat_template_kwargs":{%s}`),
	})
}
