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
	if n := d.engines["a"].length("other"); n != 0 {
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
		if lengths := *e.lengths.Load(); len(lengths) != 0 {
			t.Errorf("%s: %v", data, lengths)
		}
	}
}
