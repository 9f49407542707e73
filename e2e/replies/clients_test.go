package replies

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// TestReasoningEventsByKey shows that two clients of one gateway get the names of events that each
// knows, over both transports.
func TestReasoningEventsByKey(t *testing.T) {
	s := startSockets(t, "--config", openReasoning(t))

	const body = `"model":"gpt-oss-20b","input":"THINK why.\nSAY hello."`
	for key, want := range map[string]string{"open": "response.reasoning.delta", "openai": "response.reasoning_text.delta"} {
		resp := s.d.Do(t, http.MethodPost, "/v1/responses", "application/json", strings.NewReader(`{"stream":true,`+body+`}`), "Authorization", "Bearer "+key)
		if reply := stack.ReadText(t, resp); resp.StatusCode != http.StatusOK || !strings.Contains(reply, "event: "+want+"\n") {
			t.Errorf("%s: %d, no %s in %s", key, resp.StatusCode, want, reply)
		}

		c := s.connect(t, "Authorization", "Bearer "+key)
		c.send(t, `{"type":"response.create",`+body+`}`)
		if kinds := c.kinds(t); !strings.Contains(kinds, want+" ") {
			t.Errorf("%s: no %s in %s", key, want, kinds)
		}
	}
}

// kinds reads the events of a response to its end, and returns their types.
func (c socket) kinds(t *testing.T) string {
	t.Helper()
	var kinds strings.Builder
	for {
		_, text, err := c.Read(t.Context())
		if err != nil {
			t.Fatalf("after %s: %v", &kinds, err)
		}
		kind := gjson.GetBytes(text, "type").Str
		kinds.WriteString(kind + " ")
		if kind == "response.completed" || kind == "response.failed" || kind == "error" {
			return kinds.String()
		}
	}
}

// TestUnservedModel shows that a model that the engine does not serve is unknown at every path.
func TestUnservedModel(t *testing.T) {
	s := startSockets(t)
	const chat = `"messages":[{"role":"user","content":"Hi"}]`
	// The filter asks the engine through an Envoy that may not be there yet, and again ten seconds
	// later.
	stack.Eventually(t, "the engine's list of models", func() bool {
		status, _ := s.d.Post(t, "/v1/chat/completions/render", `{"model":"gpt-oss-999",`+chat+`}`)
		return status == http.StatusNotFound
	})

	for _, tt := range []struct{ path, members string }{
		{"/v1/chat/completions", chat},
		{"/v1/chat/completions/render", chat},
		{"/v1/responses", `"input":"Hi"`},
		{"/v1/responses/render", `"input":"Hi"`},
		{"/v1/responses/input_tokens", `"input":"Hi"`},
		{"/v1/messages", `"max_tokens":9,` + chat},
		{"/v1/messages/render", `"max_tokens":9,` + chat},
		{"/v1/messages/count_tokens", chat},
		{"/tokenize", `"prompt":"Hi"`},
	} {
		status, r := s.d.Post(t, tt.path, `{"model":"gpt-oss-999",`+tt.members+`}`)
		if status != http.StatusNotFound || !strings.Contains(r.Get("error.message").Str, `The engine does not serve the model "gpt-oss-999".`) {
			t.Errorf("%s of an unserved model: %d, %s", tt.path, status, r.Raw)
		}
		if status, r := s.d.Post(t, tt.path, `{"model":"gpt-oss-20b",`+tt.members+`}`); status != http.StatusOK {
			t.Errorf("%s of a served model: %d, %s", tt.path, status, r.Raw)
		}
	}
}
