//go:build clients

package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// numbered is the request id of a response over WebSocket, in the filter's log.
var numbered = regexp.MustCompile(`msg=request .*request_id=[0-9a-f]{8}-[0-9a-f-]{27}-[0-9]+ `)

// Codex with supports_websockets speaks WebSocket: it has its prompt prepared, and goes on with
// previous_response_id and what is new. No request comes over HTTP.
func TestCodexWebSocket(t *testing.T) {
	d := &codexPlane{Dataplane: stack.Start(t, stack.Options{WebSocket: true})}
	d.base = d.URL + "/v1"
	c := newCodex(t, d, codexes[0], "envoy")
	path := filepath.Join(c.home, "config.toml")
	config, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	withSockets := strings.Replace(string(config), "wire_api =", "supports_websockets = true\nwire_api =", 1)
	if err := os.WriteFile(path, []byte(withSockets), 0o600); err != nil {
		t.Fatal(err)
	}

	c.wantAnswer("It said hi.", fmt.Sprintf("NOTHINK\n%s\nSAY It said hi.", c.shell("echo hi")))

	// Requests over a connection have the id of its upgrade, with a number.
	requests := c.requests()
	if over := len(numbered.FindAllString(d.Logs.String(), -1)); over != len(requests) {
		t.Errorf("%d of %d requests came over WebSocket", over, len(requests))
	}
	if len(requests) < 3 {
		t.Errorf("%d model calls: the prompt was not prepared, or the tool not called", len(requests))
	}
}
