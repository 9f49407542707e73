package chat

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/tidwall/gjson"
)

// TestRender shows that what is rendered of every golden request is what the
// engine would be asked.
func TestRender(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/request.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		body := with(t, read(t, file), "stream", true)
		rendered, apiErr := Render(context.Background(), []byte(body), newScope())
		if apiErr != nil {
			t.Fatalf("%s: %v", file, apiErr)
		}
		got, call := gjson.ParseBytes(rendered), mustDecode(t, body)
		ids, err := json.Marshal(call.Engine().Prompt)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(rendered) || got.Get("token_ids").Raw != string(ids) || got.Get("token_count").Int() != int64(len(call.Engine().Prompt)) {
			t.Errorf("%s: token_ids are %s, want %s", file, got.Get("token_ids").Raw, ids)
		}
		if got, want := got.Get("text").Str, spell(t, call.Engine().Prompt); got != want {
			t.Errorf("%s: text is %q, want %q", file, got, want)
		}
	}
}

func TestRenderParameters(t *testing.T) {
	t.Parallel()
	scope := newScope()
	scope.Model.ContextLength = 10
	rendered, err := Render(context.Background(), []byte(`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"Hi"}],"stop":["a\"b","c"],"stop_token_ids":[7,200002],
		"logit_bias":{"5":1},"min_p":0.25,"n":2,"max_tokens":9,"min_tokens":3,"cache_salt":"s\n","priority":0,"user":"u","metadata":{}}`), scope)
	if err != nil {
		t.Fatal(err)
	}
	got := gjson.GetManyBytes(rendered, "object", "context_length", "stop", "sampling_params", "cache_salt", "priority", "ignored")
	want := []string{
		"chat.completion.render", "10", `["a\"b","c"]`,
		`{"temperature":1,"top_p":1,"top_k":-1,"min_p":0.25,"frequency_penalty":0,"presence_penalty":0,"repetition_penalty":1,"n":2,"stop_token_ids":[200002,200012,7],"skip_special_tokens":false,"logit_bias":{"5":1},"min_tokens":0}`,
		"s\n", "0", `["user","metadata"]`,
	}
	for i := range want {
		if got[i].String() != want[i] {
			t.Errorf("got %s, want %s", got[i], want[i])
		}
	}
	if _, err := Render(context.Background(), []byte(`{"messages":[]}`), scope); err == nil || err.Param != "model" {
		t.Errorf("no model: %v", err)
	}
}
