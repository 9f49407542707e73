package filter

import (
	"testing"

	"github.com/tidwall/gjson"
)

// window is how many tokens prompt and output of a request for a model may have
// together.
func (s *script) window(model string) int {
	m, _ := s.x.s.cfg.Model(model)
	return s.x.s.contextLength(&m)
}

func TestContextLengthIsTheEnginesWhereNoneIsConfigured(t *testing.T) {
	l := &listing{t: t, asked: map[string]int{}, answers: map[string]string{
		"a": `{"object":"list","data":[{"id":"openai/gpt-oss-20b","max_model_len":1000},{"id":"other"}]}`,
		"b": `{"object":"list","data":[{"id":"openai/gpt-oss-20b","max_model_len":3000}]}`,
	}}
	s := l.script(nil)
	if err := s.x.s.ReadModels(t.Context()); err == nil {
		t.Error("an engine that is not there has told its models")
	}
	if n := s.x.s.lists["a"].length("other"); n != 0 {
		t.Errorf("length %d of a model that told none", n)
	}
	if n := s.window("openai/gpt-oss-20b"); n != 1000 {
		t.Errorf("prompt and output have %d tokens", n)
	}
	other := l.script(func(c *Config) { c.ModelDefaults.Engine = "b" })
	_ = other.x.s.ReadModels(t.Context()) // as above
	if n := other.window("openai/gpt-oss-20b"); n != 3000 {
		t.Errorf("prompt and output have %d tokens at another engine", n)
	}
	fixed := l.script(func(c *Config) { c.ModelDefaults.ContextLength = 2000 })
	_ = fixed.x.s.ReadModels(t.Context()) // as above
	if n := fixed.window("openai/gpt-oss-20b"); n != 2000 {
		t.Errorf("prompt and output have %d tokens where 2000 are configured", n)
	}
	alone := newScript(t, nil)
	if err := alone.x.s.ReadModels(t.Context()); err != nil {
		t.Errorf("without a loopback listener: %v", err)
	}
}

func TestModelListMayBeAnything(t *testing.T) {
	for _, data := range []string{"", "null", `{"id":1}`, `[1,null,{"max_model_len":-1}]`, `[{"id":"x","max_model_len":1e300}]`} {
		var l engineList
		l.keep(gjson.Parse(data))
		if lengths := *l.lengths.Load(); len(lengths) != 0 {
			t.Errorf("%s: %v", data, lengths)
		}
	}
}
