package gateways

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

const page = "https://app.example.com"

// corsDataplane lets in the page, and any port of localhost.
func corsDataplane(t *testing.T, origins ...string) *stack.Dataplane {
	d := stack.Start(t, stack.Options{Limits: func(o *envoy.Options) { o.CORSOrigins = origins }})
	d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("access-control-allow-origin", "*") // as engines do
		_, _ = io.WriteString(w, "upstream "+r.Method)
	})
	return d
}

// preflight asks as a browser does before it sends a request.
func preflight(t *testing.T, d *stack.Dataplane, path, origin string) *http.Response {
	resp := d.Do(t, http.MethodOptions, path, "", http.NoBody, "origin", origin,
		"access-control-request-method", "POST", "access-control-request-headers", "authorization,content-type,x-stainless-lang,anthropic-version")
	text, err := io.ReadAll(resp.Body)
	if err != nil || strings.Contains(string(text), "upstream") {
		t.Logf("the upstream answers: %s, %v", text, err)
	}
	return resp
}

// Envoy answers the preflight requests of pages that are let in. Replies and errors
// carry the headers with which a browser hands them to the page.
func TestCORS(t *testing.T) {
	d := corsDataplane(t, page, "http://localhost:*")
	for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/models", "/v1/files"} {
		for _, origin := range []string{page, "http://localhost:5173"} {
			resp := preflight(t, d, path, origin)
			for name, want := range map[string]string{
				"access-control-allow-origin": origin, "access-control-allow-methods": "GET, POST, DELETE", "access-control-allow-headers": "*, authorization", "access-control-max-age": "7200",
			} {
				if got := resp.Header.Values(name); len(got) != 1 || got[0] != want || resp.StatusCode != http.StatusOK {
					t.Errorf("%s from %s: %s: %s %q, want %q", path, origin, resp.Status, name, got, want)
				}
			}
		}
	}
	ask := func(body string, headers ...string) (*http.Response, string) {
		resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body), headers...)
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp, string(text)
	}
	for name, body := range map[string]string{
		"reply":       `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"NOTHINK\nSAY hi"}]}`,
		"stream":      `{"model":"gpt-oss-20b","stream":true,"messages":[{"role":"user","content":"NOTHINK\nSAY hi"}]}`,
		"error":       `{"model":"gpt-oss-20b","messages":"x"}`,
		"other model": fmt.Sprintf(`{"model":%q}`, stack.OtherModel),
	} {
		resp, text := ask(body, "origin", page)
		if got := resp.Header.Values("access-control-allow-origin"); len(got) != 1 || got[0] != page {
			t.Errorf("%s: %s, allowed origin %q: %s", name, resp.Status, got, text)
		}
		exposed := resp.Header.Get("access-control-expose-headers")
		for _, want := range []string{"x-harmony-ignored", "x-harmony-engine", "x-request-id", "request-id", "retry-after"} {
			if !strings.Contains(", "+exposed+",", ", "+want+",") {
				t.Errorf("%s: %s is not in %q", name, want, exposed)
			}
		}
	}
	// Envoy's own 404: a page with a wrong base URL sees it, and not that it is kept out.
	for _, path := range []string{"/chat/completions", "/v1/v1/chat/completions", "/nothing"} {
		if resp := preflight(t, d, path, page); resp.StatusCode != http.StatusOK || resp.Header.Get("access-control-allow-origin") != page {
			t.Errorf("preflight of %s: %s %v", path, resp.Status, resp.Header)
		}
		resp := d.Do(t, http.MethodPost, path, "application/json", strings.NewReader(`{}`), "origin", page, header.Engine, "engine_vllm")
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusNotFound || resp.Header.Get("access-control-allow-origin") != page {
			t.Errorf("%s: %s %v: %s, %v", path, resp.Status, resp.Header, text, err)
		}
		if e := stack.ReadError(t, string(text)); !strings.HasPrefix(e.Message, "There is no such path or model here. The paths are /v1/chat/completions, ") ||
			!strings.Contains(e.Message, "routing.open_paths") || strings.Contains(e.Message, "cluster_not_found") {
			t.Errorf("%s: %s", path, text)
		}
	}

	// Errors in place of an engine's or the upstream's reply.
	for body, status := range map[string]int{
		`"model":"gpt-oss-20b","stream":true,"messages":[{"role":"user","content":"SIM status=429"}]`:     http.StatusTooManyRequests,
		`"model":"gpt-oss-20b","stream":true,"messages":[{"role":"user","content":"SIM fault=error@0"}]`:  http.StatusBadGateway,
		`"model":"gpt-oss-20b","stream":false,"messages":[{"role":"user","content":"SIM fault=error@0"}]`: http.StatusBadGateway,
	} {
		for origin, want := range map[string][]string{page: {page}, "http://localhost:5173": {"http://localhost:5173"}, page + ".evil.example": nil, "http://localhost:1.evil.example/": nil} {
			resp, text := ask("{"+body+"}", "origin", origin)
			if got := resp.Header.Values("access-control-allow-origin"); resp.StatusCode != status || !slices.Equal(got, want) {
				t.Errorf("%s from %s: %s, allowed origin %q: %s", body, origin, resp.Status, got, text)
			}
			if exposed := resp.Header.Get("access-control-expose-headers"); strings.Contains(exposed, "retry-after") != (want != nil) {
				t.Errorf("%s from %s: exposed %q", body, origin, exposed)
			}
		}
	}

	d.Filter.Stop() // an error of Envoy itself
	if resp, text := ask(`{}`, "origin", page); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("access-control-allow-origin") != page || resp.Header.Get("retry-after") != "1" {
		t.Errorf("Envoy's own error: %s %v: %s", resp.Status, resp.Header, text)
	}
}

// Other pages are not let in, and none is without the setting.
func TestCORSOfOthers(t *testing.T) {
	for name, d := range map[string]*stack.Dataplane{"others": corsDataplane(t, page), "off": corsDataplane(t)} {
		d.Upstream.Handle(http.NotFound)
		for _, origin := range []string{"https://evil.example", page + ".evil.example", "null"} {
			if resp := preflight(t, d, "/v1/chat/completions", origin); resp.Header.Get("access-control-allow-origin") != "" || resp.StatusCode == http.StatusOK {
				t.Errorf("%s: preflight from %s: %s %v", name, origin, resp.Status, resp.Header)
			}
			if resp, text := d.Chat(t, stack.SGLangModel, "NOTHINK\nSAY hi", "", "origin", origin); resp.Header.Get("access-control-allow-origin") != "" {
				t.Errorf("%s: reply for %s: %v: %s", name, origin, resp.Header, text)
			}
		}
	}
	every := corsDataplane(t, "*")
	if resp := preflight(t, every, "/v1/messages", "https://any.example"); resp.Header.Get("access-control-allow-origin") == "" {
		t.Errorf("every page: %s %v", resp.Status, resp.Header)
	}
}

// Without an engine that speaks HTTP and without an upstream, the filter's routes lead
// nowhere else. Browsers see its errors all the same.
func TestCORSWithoutUpstream(t *testing.T) {
	d := stack.Start(t, stack.Options{
		Config: func(c *config.Config) {
			c.Engines = []config.Engine{{Kind: "vllm-grpc", URLs: c.Engines[0].URLs}}
			c.Models, c.Responses.RelayUnknown = nil, false
		},
		Limits: func(o *envoy.Options) { o.CORSOrigins, o.Upstream = []string{page}, "" },
	})
	for body, status := range map[string]int{
		`{"model":"gpt-oss-20b","messages":"x"}`:      http.StatusBadRequest,
		fmt.Sprintf(`{"model":%q}`, stack.OtherModel): http.StatusNotFound,
	} {
		if resp := preflight(t, d, "/v1/chat/completions", page); resp.StatusCode != http.StatusOK {
			t.Errorf("preflight: %s %v", resp.Status, resp.Header)
		}
		resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body), "origin", page)
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || resp.Header.Get("access-control-allow-origin") != page {
			t.Errorf("%s: %s %v: %s, %v", body, resp.Status, resp.Header, text, err)
		}
	}
}
