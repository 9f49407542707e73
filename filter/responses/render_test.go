package responses

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

func (s *server) render(t *testing.T, members string) (gjson.Result, *apierror.Error) {
	t.Helper()
	b, err := s.serve("POST", RenderPath, []byte(`{"model":"gpt-oss-20b"`+members+`}`), s.rc)
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
	members := `,"input":"two \"<|end|>\"","previous_response_id":` + apitest.Quote(first.Get("id").Str) + `,"stream":true,"user":"u","top_p":0.5,"seed":7` + weatherTool
	got, err := s.render(t, members)
	if err != nil {
		t.Fatal(err)
	}
	request, err := s.decode([]byte(`{"model":"gpt-oss-20b"`+members+`}`), s.rc)
	if err != nil {
		t.Fatal(err)
	}
	apitest.Rendered(t, got.Raw, request.Engine().Prompt)
	for path, want := range map[string]string{
		"object": "response.render", "model": "gpt-oss-20b", "context_length": "131072", "ignored": `["user"]`, "stop": "[]", "cache_salt": "", "priority": "",
		"sampling_params.stop_token_ids": "[200002,200012]", "sampling_params.temperature": "1", "sampling_params.top_p": "0.5", "sampling_params.seed": "7",
	} {
		if got := got.Get(path).String(); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if got, want := got.Get("sampling_params.max_tokens").Int(), int64(request.Engine().MaxTokens); got != want {
		t.Errorf("max_tokens is %d, want %d", got, want)
	}
	other := *s.rc
	other.Tenant = "b"
	s.rc = &other
	if _, err := s.render(t, members); err == nil || err.Status != 400 {
		t.Errorf("another tenant's response: %v", err)
	}
}

// TestRenderLong shows prompts that the context has no room for.
func TestRenderLong(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.rc.Model.ContextLength = 100
	got, err := s.render(t, `,"max_output_tokens":50,"input":`+apitest.Quote(strings.Repeat("long ", 500)))
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Get("token_count").Int(); n < 500 || got.Get("token_ids.#").Int() != n || got.Get("sampling_params.max_tokens").Exists() || got.Get("context_length").Int() != 100 {
		t.Errorf("rendered: %.200s", got.Raw)
	}
	if diff := cmp.Diff(strings.Count(got.Get("text").Str, "long "), 500); diff != "" {
		t.Error(diff)
	}
	if _, err := s.render(t, `,"input":`+apitest.Quote(strings.Repeat("a b ", 1<<19))); err == nil || !strings.Contains(err.Message, "are not shown") {
		t.Errorf("a prompt beyond all bounds: %v", err)
	}
	if _, err := s.serve("POST", RenderPath, []byte(`{"input":"x"}`), s.rc); err == nil || err.Param != "model" {
		t.Errorf("no model: %v", err)
	}
}
