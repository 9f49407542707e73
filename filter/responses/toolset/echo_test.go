package toolset

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// TestRepeatedTools shows that a response repeats every tool as it was sent, without
// secrets.
func TestRepeatedTools(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		`{ "type": "computer_use_preview", "display_width": 1, "environment": "browser" }`:                                                  `{"type":"computer_use_preview","display_width":1,"environment":"browser"}`,
		`{"type":"function","name":"f","allowed_callers":["direct"],"strict":false}`:                                                        `{"type":"function","name":"f","allowed_callers":["direct"],"strict":false,"description":null,"parameters":null}`,
		`{"type":"custom","name":"c","format":{"type":"text"}}`:                                                                             `{"type":"custom","name":"c","format":{"type":"text"}}`,
		`{"type":"mcp","server_label":"docs","authorization":"secret","allowed_tools":["search"]}`:                                          `{"type":"mcp","server_label":"docs","allowed_tools":["search"]}`,
		`{"type":"namespace","name":"n","description":"","tools":[{"type":"function","name":"f"},{"type":"x","headers":{"a":"secret"}}]}`:   `{"type":"namespace","name":"n","description":"","tools":[{"type":"function","name":"f","description":null,"parameters":null,"strict":null},{"type":"x"}]}`,
		`{"type":"x","container":{"network_policy":{"domain_secrets":[{"value":"secret"}],"a":[1]},"server_url":"https://h:1/secret?k=s"}}`: `{"type":"x","container":{"network_policy":{"a":[1]},"server_url":"https://h:1/<redacted>"}}`,
	} {
		if got := string(item.AppendTool(nil, gjson.Parse(sent), appendFunction)); got != want {
			t.Errorf("%s is repeated as\n%s, want\n%s", sent, got, want)
		}
	}
}
