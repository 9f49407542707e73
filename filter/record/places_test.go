package record_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// kept is what may be kept of each member.
var kept = keeper.Members()

// secretValues are values with credentials, as objects that clients and the software in front
// of them send along have them: under the names that every list has, as headers, and as URLs.
func secretValues(secret string) []string {
	address := fmt.Sprintf(`"https://u:%s@h.test/p?k=%s#%s"`, secret, secret, secret)
	object := fmt.Sprintf(
		`{"authorization":"%[1]s","Api_Key":{"a":"%[1]s"},"headers":{"a":"%[1]s","b":["%[1]s"]},"Headers":[{"value":"%[1]s"}],`+
			`"url":%[2]s,"server_url":[%[2]s],"image_url":{"url":%[2]s},"file_url":{"url":[%[2]s]},"source":%[2]s,"image":[%[2]s],`+
			`"document":{"url":%[2]s},"input_audio":{"url":%[2]s},"file":{"file_data":%[2]s}}`, secret, address)
	return []string{
		object, "[" + object + "]", "[[" + object + "]]", `{"content":` + object + "}", `{"content":[` + object + "]}",
		`{"type":"x","summary":{"metadata":` + object + "}}",
	}
}

// keepsWhole reports whether what a member has is the arguments of a call, a schema, or JSON
// of a tool.
func keepsWhole(name, in string) bool {
	return kept[name] == jsontext.KeepWhole || record.KeptAt(name, in) == jsontext.KeepWhole
}

// In each member of each place that is kept, whatever its kind, credentials are not.
func TestNoPlaceKeepsASecret(t *testing.T) {
	t.Parallel()
	const secret = "planted-4711"
	values := secretValues(secret)
	tried := 0
	for in := range kept {
		for name := range kept {
			// Members of the same kind are read alike: one stands for those that may be kept as they are.
			if alike := kept[name] == jsontext.KeepMembers && name != "name"; alike || keepsWhole(in, "") || keepsWhole(name, in) {
				continue
			}
			value := values[tried%len(values)]
			body := fmt.Sprintf(`{%q:{%q:%s},"tools":[{%q:%s}]}`, in, name, value, name, value)
			tried++
			if keepsWhole(name, "tools") {
				continue
			}
			if got := keeper.Body([]byte(body)).String(); strings.Contains(got, secret) {
				t.Fatalf("%s becomes %s", body, got)
			}
		}
	}
	if tried < 8_000 {
		t.Errorf("only %d places", tried)
	}

	// All forms of each member, in the request, in a list, and in a conversation.
	for name := range kept {
		for _, in := range []string{"", "input", "items", "messages", "content", "tools", "mcp_servers", "environment", "error"} {
			if keepsWhole(name, in) || keepsWhole(name, "") {
				continue
			}
			for _, value := range values {
				body := fmt.Sprintf(`{%q:[{%q:%s}],%q:%s}`, in, name, value, name, value)
				if got := keeper.Body([]byte(body)).String(); strings.Contains(got, secret) {
					t.Fatalf("%s becomes %s", body, got)
				}
			}
		}
	}
}

// A URL in any member for one, however it is nested, has neither user nor query.
func TestNoURLKeepsASecret(t *testing.T) {
	t.Parallel()
	const secret = "planted-4711"
	const page = `{"type":"search_result","source":"https://h/?a=b","url":"https://h/?a=b"}`
	for name, kind := range kept {
		if kind != jsontext.KeepAddress && kind != jsontext.KeepServer && kind != jsontext.KeepLink {
			continue
		}
		for _, text := range []string{
			"https://h/p?k=%s", "https://u:%s@h/p", "HTTPS://h/p#%s", "//h/p?k=%s", " https://h/?%s", "https:%s", "ftp://u:%s@h/", `https://h\\@?%s`,
		} {
			address := `"` + fmt.Sprintf(text, secret) + `"`
			for _, form := range []string{"%s", "[%s]", `{"url":%s}`, `{"url":[%s]}`, `[{"url":%s}]`, `{"source":{"url":%s}}`} {
				value := fmt.Sprintf(form, address)
				for _, in := range []string{"input", "content", "messages", "tools", "mcp_servers", "output", "source", "tool_configuration"} {
					body := fmt.Sprintf(`{%q:[{%q:%s,"n":1}],%q:%s}`, in, name, value, name, value)
					if got := keeper.Body([]byte(body)).String(); strings.Contains(got, secret) {
						t.Fatalf("%s becomes %s", body, got)
					}
				}
			}
		}
	}

	// The model has seen the address of a page: a replay needs it.
	if got := keeper.Body([]byte(`{"content":[` + page + `]}`)).String(); !strings.Contains(got, page) {
		t.Errorf("%s", got)
	}
	// A server's path may be a credential, wherever it stands among the tools.
	for _, body := range []string{
		`{"tools":[{"url":"https://h/planted"}]}`, `{"mcp_servers":[{"tool_configuration":{"url":"https://h/planted"}}]}`,
		`{"tools":[{"environment":{"skills":[{"source":{"url":"https://h/planted"}}]}}]}`, `{"tools":[{"server_url":{"url":["https://h/planted"]}}]}`,
	} {
		if got := keeper.Body([]byte(body)).String(); strings.Contains(got, "planted") {
			t.Errorf("%s becomes %s", body, got)
		}
	}
}
