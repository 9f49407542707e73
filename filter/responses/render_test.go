package responses

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

func (s *server) render(t *testing.T, members string) (gjson.Result, *apierror.Error) {
	t.Helper()
	if !Serves("POST", RenderPath) {
		t.Fatal("not served")
	}
	b, err := s.Serve(t.Context(), "POST", RenderPath, "", []byte(`{"model":"gpt-oss-20b"`+members+`}`), s.scope)
	if err == nil && !json.Valid(b) {
		t.Fatalf("not JSON: %s", b)
	}
	return gjson.ParseBytes(b), err
}

// TestRender shows that what is rendered is what the engine would be asked, of a
// chain too.
func TestRender(t *testing.T) {
	t.Parallel()
	s := newServer()
	first := s.create(t, `,"input":"one"`, said)
	members := `,"input":"two \"<|end|>\"","previous_response_id":` + quote(first.Get("id").Str) + `,"stream":true,"user":"u","top_p":0.5,"seed":7` + weatherTool
	got, err := s.render(t, members)
	if err != nil {
		t.Fatal(err)
	}
	call, err := s.Decode(t.Context(), []byte(`{"model":"gpt-oss-20b"`+members+`}`), s.scope)
	if err != nil {
		t.Fatal(err)
	}
	ids, jsonErr := json.Marshal(call.Engine().Prompt)
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	if got.Get("token_ids").Raw != string(ids) || got.Get("token_count").Int() != int64(len(call.Engine().Prompt)) {
		t.Errorf("token_ids are %s, want %s", got.Get("token_ids").Raw, ids)
	}
	if want := spell(t, call.Engine().Prompt); got.Get("text").Str != want {
		t.Errorf("text is %q, want %q", got.Get("text").Str, want)
	}
	for path, want := range map[string]string{
		"object": "response.render", "model": "gpt-oss-20b", "context_length": "131072", "ignored": `["user"]`, "stop": "[]", "cache_salt": "", "priority": "",
		"sampling_params.stop_token_ids": "[200002,200012]", "sampling_params.temperature": "1", "sampling_params.top_p": "0.5", "sampling_params.seed": "7",
	} {
		if got := got.Get(path).String(); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if got, want := got.Get("sampling_params.max_tokens").Int(), int64(call.Engine().MaxTokens); got != want {
		t.Errorf("max_tokens is %d, want %d", got, want)
	}
	other := *s.scope
	other.Tenant = "b"
	s.scope = &other
	if _, err := s.render(t, members); err == nil || err.Status != 404 {
		t.Errorf("another tenant's response: %v", err)
	}
}

// TestRenderLong shows prompts that the context has no room for.
func TestRenderLong(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.scope.Model.ContextLength = 100
	got, err := s.render(t, `,"max_output_tokens":50,"input":`+quote(strings.Repeat("long ", 500)))
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Get("token_count").Int(); n < 500 || got.Get("token_ids.#").Int() != n || got.Get("sampling_params.max_tokens").Exists() || got.Get("context_length").Int() != 100 {
		t.Errorf("rendered: %.200s", got.Raw)
	}
	if diff := cmp.Diff(strings.Count(got.Get("text").Str, "long "), 500); diff != "" {
		t.Error(diff)
	}
	if _, err := s.render(t, `,"input":`+quote(strings.Repeat("a b ", 1<<19))); err == nil || !strings.Contains(err.Message, "are not shown") {
		t.Errorf("a prompt beyond all bounds: %v", err)
	}
	if _, err := s.Serve(t.Context(), "POST", RenderPath, "", []byte(`{"input":"x"}`), s.scope); err == nil || err.Param != "model" {
		t.Errorf("no model: %v", err)
	}
}
