package models

import (
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// contextLength is the context length of a model by its name.
func (d *testDirectory) contextLength(name string) int {
	m, _ := d.o.Config.Model(name)
	return d.ContextLength(&m)
}

func TestContextLengthOfTheEngineWhereNoneIsConfigured(t *testing.T) {
	t.Parallel()
	g := &fakeGateway{answers: map[string]string{
		"a": `{"object":"list","data":[{"id":"openai/gpt-oss-20b","max_model_len":1000},{"id":"other"}]}`,
		"b": `{"object":"list","data":[{"id":"openai/gpt-oss-20b","max_model_len":3000}]}`,
	}}
	d := newTestDirectory(t, g, nil)
	if n := d.contextLength("openai/gpt-oss-20b"); n != 0 {
		t.Errorf("length %d before the engine is asked", n)
	}
	if err := d.Refresh(t.Context()); err == nil {
		t.Error("an engine that is not there has returned its models")
	}
	if n := d.contextLength("other"); n != 0 {
		t.Errorf("length %d of a model without one", n)
	}
	if n := d.contextLength("openai/gpt-oss-20b"); n != 1000 {
		t.Errorf("length %d", n)
	}
	other := newTestDirectory(t, g, func(c *config.Config) { c.ModelDefaults.Engine = "b" })
	_ = other.Refresh(t.Context()) // as above
	if n := other.contextLength("openai/gpt-oss-20b"); n != 3000 {
		t.Errorf("length %d at another engine", n)
	}
	fixed := newTestDirectory(t, g, func(c *config.Config) { c.ModelDefaults.ContextLength = 2000 })
	_ = fixed.Refresh(t.Context()) // as above
	if n := fixed.contextLength("openai/gpt-oss-20b"); n != 2000 {
		t.Errorf("length %d where 2000 are configured", n)
	}
	if err := newTestDirectory(t, nil, nil).Refresh(t.Context()); err != nil {
		t.Errorf("without a loopback listener: %v", err)
	}
	if n := d.ContextLength(&config.Model{}); n != 0 {
		t.Errorf("length %d without a model", n)
	}
}

func TestLengthsOfAnyList(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "null", `{"id":1}`, `[1,null,{"max_model_len":-1}]`, `[{"id":"x","max_model_len":1e300}]`} {
		var e engineList
		e.keepLengths(gjson.Parse(data))
		if n := e.length("x", func(string) bool { return true }); n != 0 {
			t.Errorf("%s: length %d", data, n)
		}
	}
}

// An engine that serves one model accepts other names for it: they have its context
// length.
func TestContextLengthOfNamesThatTheEngineDoesNotList(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, models string
		length       int
	}{
		{"one model", `{"id":"gpt-oss-20b","max_model_len":1000}`, 1000},
		{"one model that is Harmony's by its configured name only", `{"id":"/models/x","max_model_len":1000}`, 1000},
		{"a Harmony model and others", `{"id":"lora","max_model_len":7},{"id":"gpt-oss-20b","max_model_len":1000}`, 1000},
		{"one model under two names", `{"id":"gpt-oss-20b","max_model_len":1000},{"id":"gpt-oss","max_model_len":1000}`, 1000},
		{"two Harmony models of different lengths", `{"id":"gpt-oss-20b","max_model_len":1000},{"id":"gpt-oss-tiny","max_model_len":200}`, 0},
		{"two Harmony models, one of unknown length", `{"id":"gpt-oss-20b","max_model_len":1000},{"id":"gpt-oss-tiny"}`, 0},
		{"no model", ``, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newTestDirectory(t, &fakeGateway{answers: map[string]string{"a": `{"object":"list","data":[` + c.models + `]}`}}, nil)
			if n := d.contextLength("openai/gpt-oss-20b"); n != 0 {
				t.Errorf("length %d before the engine is asked", n)
			}
			_ = d.Refresh(t.Context()) // the other engines do not answer
			if n := d.contextLength("openai/gpt-oss-20b"); n != c.length {
				t.Errorf("length %d, want %d", n, c.length)
			}
		})
	}
}
