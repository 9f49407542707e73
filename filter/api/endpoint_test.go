package api

import (
	"net/http"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	endpoints := []Endpoint{
		{Method: http.MethodPost, Pattern: "/v1/responses"},
		{Method: http.MethodPost, Pattern: "/v1/responses/input_tokens"},
		{Method: http.MethodGet, Pattern: "/v1/responses/{id}"},
		{Method: http.MethodGet, Pattern: "/v1/conversations/{id}/items/{item}"},
		{Method: http.MethodGet, Pattern: "/v1/models"},
		{Method: http.MethodGet, Pattern: "/v1/models/{id...}"},
	}
	for _, c := range []struct {
		method, path, pattern string
		ids                   [2]string
	}{
		{"POST", "/v1/responses", "/v1/responses", [2]string{}},
		{"POST", "/v1/responses/input_tokens", "/v1/responses/input_tokens", [2]string{}},
		{"GET", "/v1/responses/resp_1", "/v1/responses/{id}", [2]string{"resp_1"}},
		{"GET", "/v1/responses/", "", [2]string{}},
		{"GET", "/v1/responses/resp_1/other", "", [2]string{}},
		{"DELETE", "/v1/responses/resp_1", "", [2]string{}},
		{"GET", "/v1/conversations/c/items/i", "/v1/conversations/{id}/items/{item}", [2]string{"c", "i"}},
		{"GET", "/v1/conversations//items/i", "", [2]string{}},
		{"GET", "/v1/models", "/v1/models", [2]string{}},
		{"GET", "/v1/models/", "/v1/models/{id...}", [2]string{}},
		{"GET", "/v1/models/openai/gpt-oss-20b", "/v1/models/{id...}", [2]string{"openai/gpt-oss-20b"}},
		{"GET", "/v1/modelsx", "", [2]string{}},
		{"GET", "", "", [2]string{}},
	} {
		e, ids := Match(endpoints, c.method, c.path)
		pattern := ""
		if e != nil {
			pattern = e.Pattern
		}
		if pattern != c.pattern || e != nil && ids != c.ids {
			t.Errorf("%s %s: pattern %q with %q, want %q with %q", c.method, c.path, pattern, ids, c.pattern, c.ids)
		}
	}
}

// An endpoint that needs a header is found only with it, and the next one without.
func TestMatchWith(t *testing.T) {
	t.Parallel()
	endpoints := []Endpoint{{API: "with", Method: http.MethodGet, Pattern: "/p", Header: "x-version"}, {API: "without", Method: http.MethodGet, Pattern: "/p"}}
	for _, sent := range []string{"x-version", "x-other"} {
		e, _ := MatchWith(endpoints, http.MethodGet, "/p", func(name string) bool { return name == sent })
		if want := map[bool]string{true: "with", false: "without"}[sent == "x-version"]; e.API != want {
			t.Errorf("the header %s: %s", sent, e.API)
		}
	}
	if e, _ := Match(endpoints, http.MethodGet, "/p"); e.API != "without" {
		t.Errorf("no header: %s", e.API)
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	err := apierror.Invalid("model", "Name it.")
	openAI := string(err.JSON())
	for _, c := range []struct {
		name     string
		endpoint *Endpoint
		want     string
	}{
		{"no endpoint", nil, openAI},
		{"an endpoint without a form of its own", &Endpoint{}, openAI},
		{"an endpoint with one", &Endpoint{Errors: (*apierror.Error).Anthropic}, `{"type":"error","error":{"type":"invalid_request_error","message":"model: Name it."},"request_id":"id"}`},
	} {
		if status, got := c.endpoint.Error(err, "id"); status != 400 || string(got) != c.want {
			t.Errorf("%s: %d %s", c.name, status, got)
		}
	}
}
