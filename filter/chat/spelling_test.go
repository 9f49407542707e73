package chat

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestSpellings shows that the prompt does not depend on how a library writes JSON, wherever
// the model sees some.
func TestSpellings(t *testing.T) {
	t.Parallel()
	const spoken = `"` + apitest.Spoken + `"`
	arguments := apitest.Quote(`{` + spoken + `:[` + spoken + `,1.50]}`)
	conversation := `"messages":[{"role":"system","content":` + spoken + `},{"role":"user","content":[{"type":"text","text":` + spoken + `}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":` + arguments + `}},
		{"id":"2","type":"function","function":{"name":"f","arguments":{` + spoken + `:[` + spoken + `,1.50,{"b":2,"a":1}]}}}]},
		{"role":"tool","tool_call_id":"1","content":` + spoken + `},{"role":"tool","tool_call_id":"2","content":` + apitest.Quote(`{"a":`+spoken+`}`) + `}],
		"tools":[{"type":"function","function":{"name":"f","description":` + spoken + `,"parameters":{"type":"object","properties":{
		` + spoken + `:{"description":` + spoken + `,"default":` + spoken + `},"e":{"enum":[` + spoken + `,1.50]},"x":{"type":"string","examples":[` + spoken + `]},
		"c":{"const":{` + spoken + `:[]}}}}}}]`
	schema := `{"type":"object","title":` + spoken + `,"properties":{` + spoken + `:{"type":"number","default":1.50}}}`
	const inAll = 2 + 2 + 1 + 5 // the two calls, the second result, the tool

	for name, format := range map[string]string{
		"response_format":    `"response_format":{"type":"json_schema","json_schema":{"name":"n","description":` + spoken + `,"schema":` + schema + `}}`,
		"guided_json":        `"guided_json":` + schema,
		"text":               `"guided_json":` + apitest.Quote(schema),
		"structured_outputs": `"structured_outputs":{"json":` + schema + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testAPI.Spellings(t, `{"model":"m",`+conversation+`,`+format+`}`, inAll+2)
		})
	}
}

func TestNoArguments(t *testing.T) {
	t.Parallel()
	testAPI.NoArguments(t, func(members string) string {
		return `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"1","type":"function",
			"function":{"name":"f"` + members + `}}]},{"role":"tool","tool_call_id":"1","content":"b"}]}`
	}, "arguments")
}
