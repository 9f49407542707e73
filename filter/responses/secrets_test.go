package responses

import (
	"strings"
	"testing"
)

// TestSecretsOfToolsAreKeptNowhere sends tools with secrets in every place that can
// have tools. No reply, and no list of the stored items, has one of them.
func TestSecretsOfToolsAreKeptNowhere(t *testing.T) {
	t.Parallel()
	const server = `{"type":"mcp","server_label":"x","server_url":"https://me:s3cret@mcp.test/s3cret?key=s3cret#s3cret","authorization":"s3cret","\u0041uthorization":"s3cret","headers":{"X-Key":"s3cret"},"HEADERS":{"a":"s3cret"},"more":[{"Server_URL":"https://mcp.test/s3cret","headers":"s3cret"}]}`
	const shell = `{"type":"shell","environment":{"type":"container_auto","network_policy":{"domain_secrets":[{"value":"s3cret"}],"Domain_Secrets":"s3cret","allowed_domains":["kept.test"]}}}`
	const function = `{"type":"function","name":"f","parameters":{"type":"object","properties":{"headers":{"type":"string"},"authorization":{"type":"string"}}}}`
	const search = `{"type":"tool_search_call","id":"tsc_1","call_id":"c","arguments":{}},`
	for name, members := range map[string]string{
		"the request's own":               `,"input":"hi","tools":[` + shell + `,` + function + `]`,
		"additional_tools":                `,"input":[{"type":"additional_tools","tools":[` + shell + `,` + function + `]},{"role":"user","content":"hi"}]`,
		"additional_tools, escaped":       `,"input":[{"type":"additional_tools","\u0074ools":[` + shell + `,` + function + `]},{"role":"user","content":"hi"}]`,
		"found by a search":               `,"input":[{"role":"user","content":"hi"},` + search + `{"type":"tool_search_output","call_id":"c","tools":[` + server + `,` + shell + `,` + function + `]}]`,
		"found by a search, in namespace": `,"input":[{"role":"user","content":"hi"},` + search + `{"type":"tool_search_output","call_id":"c","tools":[{"type":"namespace","name":"n","authorization":"s3cret","tools":[` + server + `,` + shell + `,` + function + `]}]}]`,
	} {
		s := newServer()
		made := s.create(t, members, said)
		path := "/v1/responses/" + made.Get("id").Str
		stored, err := s.do("GET", path)
		if err != nil {
			t.Fatal(err)
		}
		items, err := s.do("GET", path+"/input_items")
		if err != nil {
			t.Fatal(err)
		}
		for where, text := range map[string]string{"the response": made.Raw, "the stored response": stored, "the input items": items} {
			if strings.Contains(text, "s3cret") {
				t.Errorf("%s: %s has a secret: %s", name, where, text)
			}
		}
		if all := stored + items; !strings.Contains(all, `"headers":{"type":"string"},"authorization":{"type":"string"}`) || !strings.Contains(all, "kept.test") {
			t.Errorf("%s: the tools themselves are gone: %s", name, all)
		}
	}
}
