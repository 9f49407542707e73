package chat

import "testing"

// TestGeneratedSchemas shows that the schemas of zod and pydantic are accepted
// wherever a request can have one.
func TestGeneratedSchemas(t *testing.T) {
	t.Parallel()
	const function = `,"tools":[{"type":"function","function":{"name":"f","parameters":ARGUMENTS`
	testAPI.Generated(t, map[string]string{
		"strict response_format": `,"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":SCHEMA}}`,
		"loose response_format":  `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":SCHEMA}}`,
		"guided_json":            `,"guided_json":SCHEMA`,
		"structured_outputs":     `,"structured_outputs":{"json":SCHEMA}`,
		"strict tool":            function + `,"strict":true}}]`,
		"strict required":        function + `,"strict":true}}],"tool_choice":"required"`,
		"required":               function + `}}],"tool_choice":"required"`,
		"named":                  function + `}}],"tool_choice":{"type":"function","function":{"name":"f"}}`,
		"allowed_tools":          function + `}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}}`,
	})
}
