package gateways

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Without a loopback listener Envoy forwards the client's own request to the
// engine. Clients see no difference.
func TestWithoutLoopback(t *testing.T) {
	local, direct := stack.Start(t, stack.Options{}), stack.Start(t, stack.Options{Direct: true})
	for _, model := range stack.HarmonyModels {
		for _, tt := range []struct{ name, content, more string }{
			{"whole", "THINK hm\nSAY hello", ""},
			{"streamed", "THINK hm\nSAY hello", `,"stream":true`},
			{"stop", "SAY one two three", `,"stop":["two"]`},
			{"engine rejects", "SIM status=429", ""},
			{"error in the stream", "NOTHINK\nWORDS 20\nSIM fault=error@10", ""},
		} {
			t.Run(model+"/"+tt.name, func(t *testing.T) {
				want, wantText := local.Chat(t, model, tt.content, tt.more)
				got, text := direct.Chat(t, model, tt.content, tt.more)
				if got.StatusCode != want.StatusCode || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") || texts(text) != texts(wantText) {
					t.Errorf("status %d %v: %s\nwith loopback %d %v: %s", got.StatusCode, got.Header, text, want.StatusCode, want.Header, wantText)
				}
			})
		}
	}

	t.Run("background", func(t *testing.T) {
		resp := direct.Do(t, http.MethodPost, "/v1/responses", "application/json", strings.NewReader(`{"model":"gpt-oss-20b","input":"SAY x","background":true}`))
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
}

// texts returns a reply without ids and times, which differ between replies.
func texts(reply string) string {
	return idsAndTimes.ReplaceAllString(reply, "")
}

var idsAndTimes = regexp.MustCompile(`chatcmpl-[\w-]+|"created":\d+`)
