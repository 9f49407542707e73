package replies

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// message sends a request of the Messages API with one message of the user, and returns
// the reply.
func message(t *testing.T, d *stack.Dataplane, path, model, text, more string, header ...string) (*http.Response, string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"max_tokens":1000,"messages":[{"role":"user","content":%q}]%s}`, model, text, more)
	resp := d.Do(t, http.MethodPost, path, "application/json", strings.NewReader(body), header...)
	return resp, stack.ReadText(t, resp)
}

// A message, its stream and its count, through Envoy and each engine.
func TestMessages(t *testing.T) {
	d := stack.Start(t, stack.Options{})
	for _, model := range stack.HarmonyModels {
		const text, thinking = "THINK a plan\nSAY yes", `,"thinking":{"type":"adaptive"}`
		resp, whole := message(t, d, "/v1/messages", model, text, thinking)
		content := gjson.Get(whole, "content")
		if resp.StatusCode != http.StatusOK || content.Get("0.thinking").Str != "a plan" || content.Get("0.signature").Str == "" || content.Get("1.text").Str != "yes" || gjson.Get(whole, "stop_reason").Str != "end_turn" {
			t.Errorf("%s: %s: %s", model, resp.Status, whole)
		}
		resp, stream := message(t, d, "/v1/messages?beta=true", model, text, thinking+`,"stream":true`)
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(stream, "event: message_start\n") || !strings.HasSuffix(stream, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n") {
			t.Errorf("%s: %s: %s", model, resp.Status, stream)
		}
		resp, counted := message(t, d, "/v1/messages/count_tokens", model, text, thinking)
		usage := gjson.Get(whole, "usage")
		if want := usage.Get("input_tokens").Int() + usage.Get("cache_read_input_tokens").Int(); resp.StatusCode != http.StatusOK || gjson.Get(counted, "input_tokens").Int() != want {
			t.Errorf("%s: %s: %s, want %d", model, resp.Status, counted, want)
		}
	}
}

// Envoy sends errors with the statuses of Anthropic's API.
func TestMessagesErrors(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Limits.MaxBodyBytes = 1 << 20 }})
	for _, tt := range []struct {
		name, more, behavior string
		status               int
		kind                 string
	}{
		{"a field", `,"temperature":"hot"`, "", 400, "invalid_request_error"},
		{"a large body", `,"user":"` + strings.Repeat("x", 2<<20) + `"`, "", 413, "request_too_large"},
		{"the engine's limit", "", "status=429 retry-after=7", 429, "rate_limit_error"},
		{"no engine", "", "status=503 body=empty", 529, "overloaded_error"},
		{"the engine's failure", "", "status=500 body=detail", 502, "api_error"},
	} {
		for _, stream := range []bool{false, true} {
			resp, text := message(t, d, "/v1/messages", stack.HarmonyModels[0], stack.Secret, fmt.Sprintf(`,"stream":%v%s`, stream, tt.more), "x-engine-sim", tt.behavior)
			if resp.StatusCode != tt.status || gjson.Get(text, "type").Str != "error" || gjson.Get(text, "error.type").Str != tt.kind || strings.Contains(text, stack.Secret) {
				t.Errorf("%s, stream %v: %s: %s", tt.name, stream, resp.Status, text)
			}

			if want := map[int]string{429: "7", 529: "1"}[tt.status]; resp.Header.Get("Retry-After") != want {
				t.Errorf("%s, stream %v: retry-after %q", tt.name, stream, resp.Header.Get("Retry-After"))
			}
		}
	}
}
