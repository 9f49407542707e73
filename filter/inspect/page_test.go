package inspect

import (
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

// The page has nothing that its policy forbids: what it names comes from its own server, and nothing is inline. The
// policy allows no more than that.
func TestPageObeysItsPolicy(t *testing.T) {
	t.Parallel()
	h := Handler(records{}, "")
	get := func(name string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/inspector/"+name, nil)
		r.Host = "localhost"
		h.ServeHTTP(w, r)
		return w
	}
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	// Each file is served with the type that browsers demand: nosniff is set.
	types := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", "": "text/html"}
	for _, name := range []string{"", "inspector.js", "common.js", "list.js", "exchange.js", "message.js", "inspector.css", "icon.svg"} {
		answer := get(name)
		if got := answer.Header().Get("Content-Type"); answer.Code != 200 || !strings.HasPrefix(got, types[path.Ext(name)]) {
			t.Errorf("%q: %d, %s", name, answer.Code, got)
		}
		if got := answer.Header().Get("Content-Security-Policy"); got != policy {
			t.Errorf("%q: the policy is %s", name, got)
		}
	}

	page := get("").Body.String()
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if answer := get(m[1]); answer.Code != 200 || strings.Contains(m[1], ":") {
			t.Errorf("the page names %q: %d", m[1], answer.Code)
		}
	}
	if m := regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style|\son\w+=|\sstyle=`).FindString(page); m != "" {
		t.Errorf("inline: %q", m)
	}
	for _, name := range []string{"inspector.js", "common.js", "list.js", "exchange.js", "message.js"} {
		if m := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(`).FindString(get(name).Body.String()); m != "" {
			t.Errorf("%s has %s: texts of records are never markup", name, m)
		}
	}
}
