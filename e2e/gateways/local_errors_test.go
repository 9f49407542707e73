package gateways

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// readAnthropicError checks the form of an error of Anthropic's API, and returns its
// type.
func readAnthropicError(t *testing.T, text, id string) string {
	t.Helper()
	e := gjson.Parse(text)
	if !gjson.Valid(text) || e.Get("type").Str != "error" || e.Get("error.message").Str == "" || e.Get("request_id").Str != id || len(e.Map()) != 3 {
		t.Errorf("not an error of Anthropic's API: %s", text)
	}
	return e.Get("error.type").Str
}

// failing are the ways in which Envoy itself answers in place of filter and engine.
// Their routes are those of paths that the filter does not handle, below /v1/messages
// and /v1/chat/completions.
var failing = []struct {
	name, route string
	status      int // for OpenAI's clients
	openAI      string
	anthropic   string
}{
	{"no healthy upstream", `route: {cluster: nowhere}`, 503, "server_error", "overloaded_error"},
	{"timeout", `route: {cluster: silent, timeout: 0.05s}`, 504, "server_error", "timeout_error"},
	{"broken", `direct_response: {status: 500}`, 500, "server_error", "api_error"},
	{"rate limited", `direct_response: {status: 429}`, 429, "rate_limit_error", "rate_limit_error"},
	{"too large", `direct_response: {status: 413, body: {inline_string: "Payload Too Large"}}`, 413, "invalid_request_error", "request_too_large"},
	{"no route", `direct_response: {status: 404}`, 404, "invalid_request_error", "not_found_error"},
	{"forbidden", `direct_response: {status: 403, body: {inline_string: "RBAC: access denied"}}`, 403, "invalid_request_error", "permission_error"},
	{"no credentials", `direct_response: {status: 401, body: {inline_string: "Jwt is missing"}}`, 401, "invalid_request_error", "authentication_error"},
	{"bad request", `direct_response: {status: 400}`, 400, "invalid_request_error", "invalid_request_error"},
}

// failingRoutes edits a bootstrap: /v1/messages/fail-0 and so on fail.
func failingRoutes(silent string) func(string) string {
	return func(bootstrap string) string {
		const disabled = `{envoy.filters.http.ext_proc: {"@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute, disabled: true}}`
		var routes strings.Builder
		for i, f := range failing {
			for _, path := range []string{"/v1/messages", "/v1/chat/completions", "/v1/models"} {
				fmt.Fprintf(&routes, "              - {match: {path: %s/fail-%d}, %s, typed_per_filter_config: %s}\n", path, i, f.route, disabled)
			}
		}
		const first, clusters = "              # Paths of the APIs that the filter implements.\n", "  clusters:\n"
		host, port, _ := strings.Cut(strings.TrimPrefix(silent, "http://"), ":")
		return strings.NewReplacer(first, routes.String()+first, clusters, clusters+"  - {name: nowhere, type: STATIC}\n"+
			"  - {name: silent, type: STATIC, load_assignment: {cluster_name: silent, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: "+host+", port_value: "+port+"}}}}]}]}}\n").Replace(bootstrap)
	}
}

// Envoy's own errors have the form of the API that was asked.
func TestEnvoysOwnErrors(t *testing.T) {
	silent, release := &stack.Upstream{}, make(chan struct{})
	silent.Handle(func(http.ResponseWriter, *http.Request) { <-release })
	address := stack.ServeUpstream(t, silent)
	t.Cleanup(func() { close(release) }) // before the server is closed

	d := stack.Start(t, stack.Options{Bootstrap: failingRoutes(address)})
	ask := func(path string, headers ...string) (*http.Response, string) {
		resp := d.Do(t, http.MethodPost, path, "application/json", strings.NewReader("{}"), append([]string{"x-request-id", "abc"}, headers...)...)
		return resp, stack.ReadText(t, resp)
	}

	for i, f := range failing {
		t.Run(f.name, func(t *testing.T) {
			resp, text := ask(fmt.Sprintf("/v1/chat/completions/fail-%d", i))
			if e := stack.ReadError(t, text); resp.StatusCode != f.status || e.Type != f.openAI {
				t.Errorf("OpenAI: %s: %s", resp.Status, text)
			}

			want := f.status
			if want == http.StatusServiceUnavailable {
				want = 529
			}

			for path, headers := range map[string][]string{"/v1/messages": nil, "/v1/models": {"anthropic-version", "2023-06-01"}} {
				resp, text := ask(fmt.Sprintf("%s/fail-%d", path, i), headers...)
				if kind := readAnthropicError(t, text, "abc"); kind != f.anthropic || resp.StatusCode != want || resp.Header.Get("request-id") != "abc" || resp.Header.Get("content-type") != "application/json" {
					t.Errorf("Anthropic: %s, %v: %s", resp.Status, resp.Header, text)
				}
			}
		})
	}
}

// Without the filter, and without an engine for other models, clients of Anthropic's
// API get its errors too.
func TestAnthropicErrorsWithoutFilter(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	d.Filter.Stop()
	resp := d.Do(t, http.MethodPost, "/v1/messages", "application/json", strings.NewReader(`{"model":"gpt-oss-20b"}`), "x-request-id", "abc")
	text, err := io.ReadAll(resp.Body)
	if kind := readAnthropicError(t, string(text), "abc"); kind != "overloaded_error" || resp.StatusCode != 529 || err != nil {
		t.Errorf("%s: %s, %v", resp.Status, text, err)
	}
}

// Claude Code asks for more paths than those of the API. Nothing behind them hangs or
// resets: an upstream answers, else they are a 404.
func TestOtherPathsOfClaudeCode(t *testing.T) {
	log := &stack.LogFile{Quiet: true}
	for name, o := range map[string]stack.Options{
		"an upstream": {},
		"none": {SimURL: stack.StartSim(t, log), Limits: func(o *envoy.Options) { o.Upstream = "" }, Config: func(c *config.Config) {
			c.Engines, c.Models = []config.Engine{{Kind: "vllm-grpc", URLs: c.Engines[0].URLs}}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := stack.Start(t, o)
			d.Upstream.Handle(http.NotFound)

			for _, tt := range []struct{ method, path, body string }{
				{http.MethodHead, "/api/hello", ""},
				{http.MethodGet, "/api/hello", ""},
				{http.MethodHead, "/", ""},
				{http.MethodPost, "/api/event_logging/batch", `{"events":[` + strings.Repeat(`{"event_type":"x"},`, 10_000) + `{}]}`},
				{http.MethodGet, "/v1/messages", ""},
				{http.MethodHead, "/v1/messages", ""},
			} {
				resp := d.Do(t, tt.method, tt.path, "application/json", strings.NewReader(tt.body), "anthropic-version", "2023-06-01", "x-request-id", "abc")
				text, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != http.StatusNotFound {
					t.Errorf("%s %s: %s, %v", tt.method, tt.path, resp.Status, err)
				}

				if name == "none" && tt.method != http.MethodHead && readAnthropicError(t, string(text), "abc") != "not_found_error" {
					t.Errorf("%s %s: %s", tt.method, tt.path, text)
				}
			}
		})
	}
}
