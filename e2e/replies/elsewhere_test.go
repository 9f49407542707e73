package replies

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// What is not stored here is asked of an upstream only where one is configured for it.
// If it is not there either, the error has the form of the API.
func TestNotStoredAnywhere(t *testing.T) {
	for _, modeOverride := range []bool{false, true} {
		for _, relay := range []bool{false, true} {
			t.Run(fmt.Sprintf("bodies on demand=%t/upstream=%t", modeOverride, relay), func(t *testing.T) {
				d := stack.Start(t, stack.Options{ModeOverride: modeOverride, Config: func(c *config.Config) { c.Responses.RelayUnknown = relay }})
				checkNotStored(t, d, relay)
			})
		}
	}
}

func checkNotStored(t *testing.T, d *stack.Dataplane, relay bool) {
	t.Helper()
	var relayed atomic.Int32
	d.Upstream.Handle(func(w http.ResponseWriter, _ *http.Request) {
		relayed.Add(1)
		w.Header().Set("content-type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<p>theirs</p>")
	})

	for _, tt := range []struct {
		method, path, body string
		always             bool // the upstream is asked
	}{
		{http.MethodGet, "/v1/responses/resp_1", "", false},
		{http.MethodDelete, "/v1/responses/resp_1", "", false},
		{http.MethodPost, "/v1/responses/resp_1/cancel", "{}", false},
		{http.MethodGet, "/v1/conversations/conv_1", "", false},
		{http.MethodPost, "/v1/conversations/conv_1", `{"metadata":{}}`, false},
		{http.MethodGet, "/v1/models/none", "", true},
	} {
		relayed.Store(0)
		resp := d.Do(t, tt.method, tt.path, "application/json", strings.NewReader(tt.body))
		text, err := io.ReadAll(resp.Body)
		if e := stack.ReadError(t, string(text)); err != nil || resp.StatusCode != http.StatusNotFound || e.Type != "not_found_error" || resp.Header.Get("content-type") != "application/json" {
			t.Errorf("%s %s: %s, %v: %s, %v", tt.method, tt.path, resp.Status, resp.Header, text, err)
		}

		if asked := relayed.Load() > 0; asked != (relay || tt.always) {
			t.Errorf("%s %s: the upstream was asked: %t", tt.method, tt.path, asked)
		}
	}

	resp := d.Do(t, http.MethodGet, "/v1/models/none", "", http.NoBody, "anthropic-version", "2023-06-01", "x-request-id", "abc")
	text, err := io.ReadAll(resp.Body)
	if want := `{"type":"error","error":{"type":"not_found_error","message":"There is no model of this name. GET /v1/models lists the models.","details":{"error_code":"model_not_found"}},"request_id":"abc"}`; string(text) != want || resp.StatusCode != http.StatusNotFound || err != nil {
		t.Errorf("in Anthropic's form: %s: %s, %v", resp.Status, text, err)
	}
}

// The list of models has Anthropic's form for its clients.
func TestModelsForAnthropic(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Aliases = []config.Alias{{Name: "claude-sonnet-4-5", Model: stack.SGLangModel}}
	}})
	d.Upstream.Handle(http.NotFound)

	get := func(path string, headers ...string) gjson.Result {
		t.Helper()
		resp := d.Do(t, http.MethodGet, path, "", http.NoBody, headers...)
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %s, %v", path, resp.Status, text, err)
		}
		return gjson.ParseBytes(text)
	}

	seen := map[string]bool{}
	path := "/v1/models?limit=2"
	for {
		page := get(path, "anthropic-version", "2023-06-01", "x-api-key", "k")
		page.Get("data").ForEach(func(_, m gjson.Result) bool {
			seen[m.Get("id").Str] = m.Get("type").Str == "model" && m.Get("max_input_tokens").Int() > 0
			return true
		})
		if !page.Get("has_more").Bool() {
			break
		}
		path = "/v1/models?limit=2&after_id=" + page.Get("last_id").Str
	}

	if !seen[stack.SGLangModel] || !seen["claude-sonnet-4-5"] {
		t.Errorf("models %v", seen)
	}

	if got := get("/v1/models/claude-sonnet-4-5", "anthropic-version", "2023-06-01"); got.Get("display_name").Str != "claude-sonnet-4-5" {
		t.Errorf("%s", got)
	}
	if got := get("/v1/models"); got.Get("object").Str != "list" {
		t.Errorf("without the header: %s", got)
	}
}
