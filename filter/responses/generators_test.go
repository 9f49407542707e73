package responses

import "testing"

// TestGeneratedSchemas shows that the schemas of zod and pydantic are accepted
// wherever a request can have one.
func TestGeneratedSchemas(t *testing.T) {
	t.Parallel()
	const function = `,"tools":[{"type":"function","name":"f","parameters":ARGUMENTS`
	testAPI.Generated(t, map[string]string{
		"strict text.format": `,"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":SCHEMA}}`,
		"loose text.format":  `,"text":{"format":{"type":"json_schema","name":"n","schema":SCHEMA}}`,
		"structured_outputs": `,"structured_outputs":{"json":SCHEMA}`,
		"strict tool":        function + `,"strict":true}]`,
		"strict required":    function + `,"strict":true}],"tool_choice":"required"`,
		"required":           function + `,"strict":false}],"tool_choice":"required"`,
		"named":              function + `,"strict":false}],"tool_choice":{"type":"function","name":"f"}`,
		"allowed_tools":      function + `,"strict":false}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]}`,
	})
}
