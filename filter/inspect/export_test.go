package inspect

import (
	"os/exec"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

func TestCurl(t *testing.T) {
	t.Parallel()
	r := &record.Record{Request: record.Request{
		Method: "POST", Path: "/v1/responses?a=b&c=d", Header: map[string]string{"x-tenant": "it's", "host": "old", "x-request-id": "r"},
		Body: record.NewText([]byte(`{"input":"it's $HOME \"x\"","stream":true}`)),
	}}
	const want = `curl -sS -N 'http://h:1/v1/responses?a=b&c=d' -H 'x-tenant: it'\''s' -H 'content-type: application/json' --data-binary '{"input":"it'\''s $HOME \"x\"","stream":true}'`
	got := Curl(r, "http://h:1/")
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	// A shell reads the body as it was.
	shown, err := exec.CommandContext(t.Context(), "sh", "-c", `curl() { for w; do last=$w; done; printf %s "$last"; }; `+got).Output()
	if err != nil || string(shown) != r.Request.Body.String() {
		t.Errorf("%s, %v", shown, err)
	}
	gone := &record.Record{Request: record.Request{Method: "DELETE", Path: "/v1/responses/r"}}
	if got := Curl(gone, "http://h:1"); got != `curl -sS -X DELETE 'http://h:1/v1/responses/r'` {
		t.Errorf("%s", got)
	}
}
