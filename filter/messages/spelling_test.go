package messages

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestSpellings shows that the prompt does not depend on how a library writes JSON, wherever
// the model sees some.
func TestSpellings(t *testing.T) {
	t.Parallel()
	const spoken = `"` + apitest.Spoken + `"`
	const inAll = 2 + 2 + 1 + 2 + 5 // the two calls, the second result, the examples, the tool
	testAPI(t).Spellings(t, `{"model":"m","max_tokens":9,"system":`+spoken+`,"messages":[{"role":"user","content":`+spoken+`},
		{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{`+spoken+`:[`+spoken+`,1.50,{"b":2,"a":1}]}},
		{"type":"server_tool_use","id":"srvtoolu_1","name":"g","input":{`+spoken+`:`+spoken+`}},
		{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":`+apitest.Quote(`{"a":`+spoken+`}`)+`}]}],
		"tools":[{"name":"f","description":`+spoken+`,"input_schema":{"type":"object","properties":{
		`+spoken+`:{"description":`+spoken+`,"default":`+spoken+`},"e":{"enum":[`+spoken+`,1.50]},"x":{"type":"string","examples":[`+spoken+`]},
		"c":{"const":{`+spoken+`:[]}}}},"input_examples":[{`+spoken+`:1.50},{"a":`+spoken+`}]}],
		"output_config":{"format":{"type":"json_schema","schema":{"type":"object","title":`+spoken+`,"properties":{`+spoken+`:{"type":"number","default":1.50}}}}}}`,
		inAll+2)
}

func TestNoArguments(t *testing.T) {
	t.Parallel()
	testAPI(t).NoArguments(t, func(members string) string {
		return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[
			{"type":"tool_use","id":"1","name":"f"` + members + `}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"b"}]}]}`
	}, "input")
}
