package record

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

func TestBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, want string }{
		{"no JSON", `{"tools":[`, `{"tools":[`},
		{"nothing", `{"input":"authorization","tools":[{"type":"function","name":"f","parameters":{"headers":{"a":"b"},"authorization":"x"}}]}`, `{"input":"authorization","tools":[{"type":"function","name":"f","parameters":{"headers":{"a":"b"},"authorization":"x"}}]}`},
		{"Responses", `{"tools": [ {"authorization" : "s1", "type":"mcp","headers":{"A":"s2","B": "s3" }}, {"type":"mcp"}],"input":"x"}`, `{"tools": [ {"authorization" : "[hidden]", "type":"mcp","headers":{"A":"[hidden]","B": "[hidden]" }}, {"type":"mcp"}],"input":"x"}`},
		{"escapes", `{"tools":[{"type":"mcp","authorization":"s\"1","x":1}]}`, `{"tools":[{"type":"mcp","authorization":"[hidden]","x":1}]}`},
		{"twice", `{"tools":[{"type":"mcp","authorization":"s1"}],"tools":[{"type":"mcp","authorization":"s2"}]}`, `{"tools":[{"type":"mcp","authorization":"[hidden]"}],"tools":[{"type":"mcp","authorization":"[hidden]"}]}`},
		{"items", `{"input":["x",{"type":"additional_tools","tools":[{"type":"mcp","authorization":"s1"}]}]}`, `{"input":["x",{"type":"additional_tools","tools":[{"type":"mcp","authorization":"[hidden]"}]}]}`},
		{"Messages", `{"mcp_servers":[{"type":"url","authorization_token":"s1"},7]}`, `{"mcp_servers":[{"type":"url","authorization_token":"[hidden]"},7]}`},
		{"a request to derender", `{"responses_request":{"tools":[{"type":"mcp","authorization":"s1"}]},"stream":false}`, `{"responses_request":{"tools":[{"type":"mcp","authorization":"[hidden]"}]},"stream":false}`},
	} {
		body := []byte(c.body)
		got := Body(body)
		if got.String() != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
		clear(body)
		if got.String() != c.want {
			t.Errorf("%s: the record has the request's memory", c.name)
		}
	}
}

func TestHeaderAndPath(t *testing.T) {
	t.Parallel()
	got := Header(http.Header{"Authorization": {"s"}, "X-Api-Key": {"s"}, "Cookie": {"s"}, "X-Session-Id": {"s"}, "X-Goog-Iap-Jwt-Assertion": {"s"}, "Cf-Access-Jwt-Assertion": {"s"}, "X-Jwt-Payload": {"s"}, "X-Forwarded-Client-Cert": {"s"}, "X-Original-Cookie": {"s"}, "Accept": {"a", "b"}})
	if diff := cmp.Diff(map[string]string{"accept": "a, b"}, got); diff != "" {
		t.Error(diff)
	}
	if got := Path("/v1/responses", "stream=true&api%5Fkey=s&token=s&bad%=s"); got != "/v1/responses?stream=true&api%5Fkey=%5Bhidden%5D&token=%5Bhidden%5D&bad%=%5Bhidden%5D" {
		t.Error(got)
	}
}

// FuzzBody has the secrets of any valid body hidden, and nothing else changed.
func FuzzBody(f *testing.F) {
	f.Add(`{"tools":[{"type":"mcp","authorization":"s","headers":{"a":"b"}}],"input":[{"tools":[]}]}`)
	f.Add(`{"mcp_servers":[{"authorization_token":"s"}],"x_request":{}}`)
	f.Fuzz(func(t *testing.T, body string) {
		got := Body([]byte(body)).String()
		if !gjson.Valid(body) {
			return
		}
		if !gjson.Valid(got) {
			t.Errorf("%s became %s", body, got)
		}
		if again := Body([]byte(got)).String(); again != got {
			t.Errorf("%s became %s", got, again)
		}
	})
}
