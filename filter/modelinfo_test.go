package filter

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestContextLengthIsTheEnginesWhereNoneIsConfigured(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"object":"list","data":[{"id":"openai/gpt-oss-20b","max_model_len":100},{"id":"other"}]}`))
	}))
	defer engine.Close()
	s := newScript(t, nil)
	if err := s.x.s.ReadModels(t.Context(), engine.URL+"/v1/models"); err != nil {
		t.Fatal(err)
	}
	if n := s.x.s.models.length("other"); n != 0 {
		t.Errorf("length %d of a model that told none", n)
	}
	s.post()
	s.body(ask(`,"max_tokens":null`), true)
	if n := s.x.run.call.Engine().MaxTokens + len(s.x.run.call.Engine().Prompt); n != 100 {
		t.Errorf("prompt and output have %d tokens", n)
	}

	fixed := newScript(t, func(c *Config) { c.ModelDefaults.ContextLength = 200 })
	fixed.x.s.models.lengths.Store(s.x.s.models.lengths.Load())
	fixed.post()
	fixed.body(ask(""), true)
	if n := fixed.x.run.call.Engine().MaxTokens + len(fixed.x.run.call.Engine().Prompt); n != 200 {
		t.Errorf("prompt and output have %d tokens where 200 are configured", n)
	}
}

func TestModelListMayBeAnything(t *testing.T) {
	for _, body := range []string{"", "null", "[]", `{"data":{"id":1}}`, `{"data":[1,null,{"max_model_len":-1}]}`} {
		if lengths := readModels([]byte(body)); len(lengths) != 0 {
			t.Errorf("%s: %v", body, lengths)
		}
	}
}
