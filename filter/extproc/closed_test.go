package extproc

import (
	"net/http"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/chat"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// What has no endpoint below the filter's paths does not reach the upstream.
func TestPathsBelowTheFilterAreClosed(t *testing.T) {
	t.Parallel()
	const unknown, passes = `immediate 404 There is no such path. Check the URL.`, "request headers"
	tenants := func(w *wiring) { w.cfg.TenantHeader = "x-tenant" }
	relaying := func(w *wiring) { tenants(w); w.cfg.Responses.RelayUnknown = true }
	rolling := func(w *wiring) { all := 100; w.cfg.Rollout = []config.Rollout{{Percent: &all}} }
	opening := func(paths ...string) func(w *wiring) {
		return func(w *wiring) { w.cfg.Routing.OpenPaths = paths }
	}
	for _, c := range []struct {
		name, method, path string
		wire               func(*wiring)
		want               string
	}{
		{"below chat", "POST", "/v1/chat/completions/batch", nil, unknown},
		{"below chat, badly encoded", "POST", "/v1/chat/completions/%zz", nil, unknown},
		{"below chat, with a slash", "GET", "/v1/chat/completions/x/", nil, unknown},
		{"below responses", "GET", "/v1/responses/resp_1/secrets", nil, unknown},
		{"below responses, deep", "POST", "/v1/responses/resp_1/a/b/c", nil, unknown},
		{"below conversations", "POST", "/v1/conversations/conv_1/dump", nil, unknown},
		{"with a query", "GET", "/v1/responses/resp_1/secrets?x=/v1/embeddings", nil, unknown},
		{"other method of chat", "GET", "/v1/chat/completions", nil, "immediate 405 The path has no method GET. Send POST."},
		{"other method of a response", "PATCH", "/v1/responses/resp_1", nil, "immediate 405 The path has no method PATCH. Send GET or DELETE."},
		{"HEAD, which is GET", "HEAD", "/v1/responses/resp_1", nil, `immediate 404 The response "resp_1" is not stored`},
		{"HEAD without GET", "HEAD", "/v1/chat/completions", nil, "immediate 405 The path has no method HEAD. Send POST."},
		{"beside", "GET", "/v1/responsesx", nil, passes},
		{"above", "GET", "/v1", nil, passes},
		{"opened with all", "POST", "/v1/chat/completions/batch", opening("/*"), passes},
		{"opened with the API", "POST", "/v1/chat/completions/batch", opening("/x", "/v1/*"), passes},
		{"opened elsewhere", "POST", "/v1/chat/completions/batch", opening("/v1/batch"), unknown},
		{"the upstream has the same API", "GET", "/v1/responses/resp_1/new", rolling, passes},
		{"the same, without a tenant", "GET", "/v1/responses/resp_1/new", relaying, "immediate 401 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			script(t, c.wire, func(s *scripted) {
				s.request(true, ":method="+c.method, ":path="+c.path)
				s.expectLike(c.want)
			})
		})
	}
}

// The clients of Messages get Anthropic's form.
func TestClosedPathsHaveTheFormOfTheirAPI(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, path, kind string }{
		{"POST", "/v1/messages/batches", "not_found_error"},
		{"GET", "/v1/messages", "invalid_request_error"},
	} {
		script(t, nil, func(s *scripted) {
			s.request(true, ":method="+c.method, ":path="+c.path)
			if _, body := s.answered(); !strings.HasPrefix(body, `{"type":"error","error":{"type":"`+c.kind+`"`) {
				t.Errorf("%s %s: %s", c.method, c.path, body)
			}
		})
	}
}

// A 405 lists the methods of the path.
func TestMethodsAreListed(t *testing.T) {
	t.Parallel()
	script(t, nil, func(s *scripted) {
		s.request(true, ":method=PUT", ":path=/v1/conversations/conv_1")
		if status, _ := s.answered(); status != http.StatusMethodNotAllowed {
			t.Errorf("status %d", status)
		}
		allow := ""
		for _, h := range s.immediate.GetHeaders().GetSetHeaders() {
			if h.GetHeader().GetKey() == "allow" {
				allow = string(h.GetHeader().GetRawValue())
			}
		}
		if allow != "GET, POST, DELETE, HEAD" {
			t.Errorf("allow %q", allow)
		}
	})
}

// No path of an endpoint can be opened past the filter, nor one below, except that of
// plain completions.
func TestServedPathsCannotBeOpened(t *testing.T) {
	t.Parallel()
	script(t, func(w *wiring) { w.endpoints = chat.CompletionsEndpoints(false) }, func(s *scripted) {
		for _, e := range s.o.Endpoints {
			base, _, _ := strings.Cut(e.Pattern, "/{")
			for _, entry := range []string{base, base + "/*", base + "/x"} {
				cfg := config.Defaults()
				cfg.Engines = []config.Engine{{Kind: "vllm", URLs: []string{"http://127.0.0.1:1"}}}
				cfg.Routing.OpenPaths = []string{entry}
				if err := cfg.Validate(); (err == nil) != strings.HasPrefix(entry, chat.CompletionsPath) {
					t.Errorf("%s: %v", entry, err)
				}
			}
		}
	})
}
