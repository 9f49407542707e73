package chat

import (
	"context"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

// TestRender shows that the rendered prompt of every golden request is the prompt of
// its model call.
func TestRender(t *testing.T) {
	t.Parallel()
	for _, file := range apitest.GoldenRequests(t) {
		body := apitest.With(t, apitest.ReadFile(t, file), "stream", true)
		rendered, err := Render(context.Background(), []byte(body), apitest.NewContext())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		apitest.Rendered(t, string(rendered), mustDecode(t, body).Engine().Prompt)
	}
}

func TestRenderParameters(t *testing.T) {
	t.Parallel()
	rc := apitest.NewContext()
	rc.Model.ContextLength = 10
	rendered, err := Render(context.Background(), []byte(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"}],"stop":["a\"b","c"],"stop_token_ids":[7,200002],
		"logit_bias":{"5":1},"min_p":0.25,"n":2,"max_tokens":9,"min_tokens":3,"cache_salt":"s\n","priority":0,"user":"u","metadata":{},"stream":true}`), rc)
	if err != nil {
		t.Fatal(err)
	}
	got := gjson.GetManyBytes(rendered, "request_id", "stream", "reasoning_ended", "object", "context_length", "stop", "sampling_params", "cache_salt", "priority", "ignored")
	want := []string{
		"chatcmpl-req-1-5feceb66", "true", "true", "chat.completion.render", "10", `["a\"b","c"]`,
		`{"temperature":1,"top_p":1,"top_k":-1,"min_p":0.25,"frequency_penalty":0,"presence_penalty":0,"repetition_penalty":1,"n":2,"stop_token_ids":[200002,200012,7],"skip_special_tokens":false,"logit_bias":{"5":1},"min_tokens":0}`,
		"s\n", "0", `["user","metadata"]`,
	}
	for i := range want {
		if got[i].String() != want[i] {
			t.Errorf("got %s, want %s", got[i], want[i])
		}
	}
	if _, err := Render(context.Background(), []byte(`{"messages":[]}`), rc); err == nil || err.Param != "model" {
		t.Errorf("no model: %v", err)
	}
}
