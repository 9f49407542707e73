package gateways

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// finalReply sends what it is given, no more, and returns the reply behind 100 Continue,
// which Envoy sends before any filter.
func finalReply(t *testing.T, d *stack.Dataplane, sent string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(stack.Patience))
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(conn); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("%.80q: the reply is not HTTP: %v", sent, err)
		}
		if resp.StatusCode != http.StatusContinue {
			return resp
		}
	}
}

// A body whose length says that it is more than twice too large is refused before it comes: no byte
// of it is sent here. Where there may be an upstream for other models, the first bytes have to say that
// it is not for one of them.
func TestDeclaredLength(t *testing.T) {
	const length = "host: x\r\ncontent-type: application/json\r\ncontent-length: 4000000\r\n"
	limited := func(upstream bool) func(*config.Config) {
		return func(c *config.Config) { c.Limits.MaxBodyBytes, c.Responses.RelayUnknown = 1<<20, upstream }
	}

	for name, o := range map[string]stack.Options{
		"alone":            {OwnEnvoy: true, Config: limited(false), Limits: func(o *envoy.Options) { o.Upstream = "" }},
		"bodies on demand": {OwnEnvoy: true, Config: limited(false), ModeOverride: true},
		"an upstream":      {OwnEnvoy: true, Config: limited(true)},
		"another's Envoy":  {Config: limited(false)},
	} {
		t.Run(name, func(t *testing.T) {
			d := stack.Start(t, o)
			for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/v1/conversations"} {
				for _, more := range []string{"", "expect: 100-continue\r\n", "content-encoding: gzip\r\n"} {
					sent := "POST " + path + " HTTP/1.1\r\n" + length + more + "\r\n"
					if (name == "an upstream" || name == "another's Envoy") && path != "/v1/conversations" && !strings.Contains(more, "gzip") {
						sent += `{"model":"gpt-oss-20b","messages":[`
					}

					resp := finalReply(t, d, sent)
					if text := stack.ReadText(t, resp); resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "larger than") {
						t.Errorf("%s %q: %s: %s", path, more, resp.Status, text)
					}
				}
			}
		})
	}
}

// HEAD is answered as GET, without a body.
func TestHead(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Upstream.Handle(http.NotFound)
	resp := d.Do(t, http.MethodPost, "/v1/responses", "application/json", strings.NewReader(`{"model":"gpt-oss-20b","input":"NOTHINK\nSAY hello"}`))
	id := stack.ReadText(t, resp)
	if _, id, _ = strings.Cut(id, `"id":"`); id != "" {
		id, _, _ = strings.Cut(id, `"`)
	}
	for _, path := range []string{"/v1/models", "/v1/models/gpt-oss-20b", "/v1/responses/" + id, "/v1/responses/" + id + "?stream=true", "/v1/responses/" + id + "/input_items"} {
		resp := d.Do(t, http.MethodHead, path, "", http.NoBody)
		if text := stack.ReadText(t, resp); resp.StatusCode != http.StatusOK || text != "" || resp.Header.Get("content-type") != "application/json" {
			t.Errorf("%s: %s %v: %s", path, resp.Status, resp.Header, text)
		}
	}
	if resp := d.Do(t, http.MethodHead, "/v1/responses/resp_unknown", "", http.NoBody); resp.StatusCode != http.StatusNotFound {
		t.Errorf("what is not stored: %s", resp.Status)
	}
}
