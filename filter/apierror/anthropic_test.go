package apierror

import (
	"net/http"
	"testing"
)

func TestAnthropic(t *testing.T) {
	t.Parallel()
	long := New(http.StatusBadRequest, "context_length_exceeded", "messages", "It is too long.")
	long.Overflow = &Overflow{Tokens: 140000, Max: 131072}
	for _, c := range []struct {
		name   string
		err    *Error
		status int
		want   string
	}{
		{"a field", Invalid("max_tokens", "Send one."), 400, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: Send one."},"request_id":"r"}`},
		{"a prompt that is too long", long, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 140000 tokens > 131072 maximum","details":{"error_code":"context_length_exceeded"}},"request_id":"r"}`},
		{"no tenant", New(401, "tenant_missing", "", "x"), 401, `{"type":"error","error":{"type":"authentication_error","message":"x","details":{"error_code":"tenant_missing"}},"request_id":"r"}`},
		{"no money", New(402, "", "", "x"), 402, `{"type":"error","error":{"type":"billing_error","message":"x"},"request_id":"r"}`},
		{"not allowed", New(403, "", "", "x"), 403, `{"type":"error","error":{"type":"permission_error","message":"x"},"request_id":"r"}`},
		{"not found", New(404, "", "", "x"), 404, `{"type":"error","error":{"type":"not_found_error","message":"x"},"request_id":"r"}`},
		{"a slow body", New(408, "request_timeout", "", "x"), 408, `{"type":"error","error":{"type":"invalid_request_error","message":"x","details":{"error_code":"request_timeout"}},"request_id":"r"}`},
		{"a large body", New(413, "request_too_large", "", "x"), 413, `{"type":"error","error":{"type":"request_too_large","message":"x","details":{"error_code":"request_too_large"}},"request_id":"r"}`},
		{"too many requests", New(429, "", "", "x"), 429, `{"type":"error","error":{"type":"rate_limit_error","message":"x"},"request_id":"r"}`},
		{"our fault", New(500, "", "", "x"), 500, `{"type":"error","error":{"type":"api_error","message":"x"},"request_id":"r"}`},
		{"the engine's fault", New(502, "", "", "x"), 502, `{"type":"error","error":{"type":"api_error","message":"x"},"request_id":"r"}`},
		{"no engine configured", New(503, "engine_missing", "model", "x"), 503, `{"type":"error","error":{"type":"api_error","message":"x","details":{"error_code":"engine_missing"}},"request_id":"r"}`},
		{"overload", New(503, "overloaded", "", "x"), 529, `{"type":"error","error":{"type":"overloaded_error","message":"x","details":{"error_code":"overloaded"}},"request_id":"r"}`},
		{"no engine at the moment", New(503, "", "", "x"), 529, `{"type":"error","error":{"type":"overloaded_error","message":"x"},"request_id":"r"}`},
		{"an engine that is late", New(504, "engine_timeout", "", "x"), 504, `{"type":"error","error":{"type":"timeout_error","message":"x","details":{"error_code":"engine_timeout"}},"request_id":"r"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if status, got := c.err.Anthropic("r"); status != c.status || string(got) != c.want {
				t.Errorf("%d %s, want %d %s", status, got, c.status, c.want)
			}
		})
	}
}
