package responses

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestSpellings shows that the prompt does not depend on how a library writes JSON, wherever
// the model sees some.
func TestSpellings(t *testing.T) {
	t.Parallel()
	const spoken = `"` + apitest.Spoken + `"`
	arguments := apitest.Quote(`{` + spoken + `:[` + spoken + `,1.50]}`)
	definition := `{"type":"function","name":"f","description":` + spoken + `,"parameters":{"type":"object","properties":{
		` + spoken + `:{"description":` + spoken + `,"default":` + spoken + `},"e":{"enum":[` + spoken + `,1.50]},"x":{"type":"string","examples":[` + spoken + `]},
		"c":{"const":{` + spoken + `:[]}}}}}`
	object := `{` + spoken + `:[` + spoken + `,1.50,{"b":2,"a":1}]}`
	for name, c := range map[string]struct {
		items string
		times int
	}{
		"function calls": {`{"type":"function_call","call_id":"1","name":"f","arguments":` + arguments + `},{"type":"function_call_output","call_id":"1","output":` + spoken + `},
			{"type":"function_call","call_id":"2","name":"f","arguments":` + object + `},
			{"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":` + apitest.Quote(`{"a":`+spoken+`}`) + `}]}`, 5},
		"custom calls": {`{"type":"custom_tool_call","call_id":"1","name":"c","input":` + spoken + `},{"type":"custom_tool_call_output","call_id":"1","output":` + spoken + `}`, 1},
		"calls of servers": {`{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"f","arguments":` + arguments + `,"output":` + apitest.Quote(`{"a":`+spoken+`}`) + `},
			{"type":"mcp_call","id":"mcp_2","server_label":"s","name":"f","arguments":` + arguments + `,"error":{"code":[1, 1.50, ` + spoken + `]}}`, 6},
		"tool search": {`{"type":"tool_search_call","call_id":"1","execution":"client","arguments":` + object + `},
			{"type":"tool_search_output","call_id":"1","execution":"client","tools":[` + definition + `]}`, 7},
		"additional tools": {`{"type":"additional_tools","tools":[{"type":"function","name":"g","parameters":` + `{"type":"object","properties":{"a":{"default":{"b": ` + spoken + `}}}}}]}`, 1},
		"shell": {`{"type":"shell_call","call_id":"1","action":{"commands":["ls", {"a": ` + spoken + `}]}},{"type":"shell_call_output","call_id":"1","output":[{"stdout":"a","outcome":{"type":"exit","exit_code":{"a": 1}}}]},
			{"type":"shell_call","call_id":"2","action":{"run": [1, 2, ` + spoken + `]}},{"type":"shell_call_output","call_id":"2","output":"a"},
			{"type":"local_shell_call","call_id":"3","action":{"type":"exec","command":["a", {"b": ` + spoken + `}],"env":{"c":[1, 2]}}},{"type":"local_shell_call_output","call_id":"3","output":"a"},
			{"type":"apply_patch_call","call_id":"4","operation":{"other": [1, ` + spoken + `]}},{"type":"apply_patch_call_output","call_id":"4","output":"a"},
			{"type":"computer_call","call_id":"5","action":{"type":"click","x":1.50,"y":[` + spoken + `, 1]}},{"type":"computer_call_output","call_id":"5","output":"a"}`, 1},
		"unknown items": {`{"type":"new_call","action":{"a":[` + spoken + `, 1.50]},"output":true,"code":1.50}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testAPI.Spellings(t, `{"model":"m","instructions":`+spoken+`,"input":[{"role":"user","content":`+spoken+`},`+c.items+`],
				"tools":[`+definition+`,{"type":"custom","name":"c"}],"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object","title":`+spoken+`,
				"properties":{`+spoken+`:{"type":"number","default":1.50}}}}}}`, 5+2+c.times)
		})
	}
}

func TestNoArguments(t *testing.T) {
	t.Parallel()
	for _, item := range []string{
		`{"type":"function_call","call_id":"1","name":"f"MEMBERS},{"type":"function_call_output","call_id":"1","output":"b"}`,
		`{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"f","output":"b"MEMBERS}`,
		`{"type":"tool_search_call","call_id":"1","execution":"client"MEMBERS},{"type":"tool_search_output","call_id":"1","execution":"client","tools":[]}`,
	} {
		testAPI.NoArguments(t, func(members string) string {
			return `{"model":"m","input":[` + strings.Replace(item, "MEMBERS", members, 1) + `]}`
		}, "arguments")
	}
}
