package models

import (
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// TestServes shows that a model is served by an engine that lists it, by one that takes every
// name, and by one of which nothing is known.
func TestServes(t *testing.T) {
	t.Parallel()
	serves := func(d *testDirectory, name string) bool {
		t.Helper()
		m, harmony := d.o.Config.Model(name)
		if !harmony {
			t.Fatalf("%s is not Harmony's", name)
		}
		return d.Serves(t.Context(), &m)
	}

	g := &fakeGateway{answers: map[string]string{
		"a": `{"data":[{"id":"gpt-oss-20b"}]}`, "b": `{"data":[{"id":"gpt-oss-120b"}]}`,
	}}
	d := newTestDirectory(t, g, func(c *config.Config) {
		c.Models = append(c.Models, config.Model{Match: "=gpt-oss-small", UpstreamModel: "gpt-oss-20b"})
	})
	for name, want := range map[string]bool{
		"gpt-oss-20b": true, "gpt-oss-small": true, "gpt-oss-999": false, "GPT-OSS-20B": false,
		"any-gpt-oss-120b": true, // SGLang takes every name
	} {
		if serves(d, name) != want {
			t.Errorf("%s is served: %t", name, !want)
		}
	}

	// An adapter that is loaded later is found, though not before the list is old.
	g.mu.Lock()
	g.answers["a"] = `{"data":[{"id":"gpt-oss-20b"},{"id":"gpt-oss-adapter"}]}`
	g.mu.Unlock()
	d.now = d.now.Add(fresh + time.Second)
	if !serves(d, "gpt-oss-adapter") {
		t.Error("the adapter is not served")
	}

	for why, d := range map[string]*testDirectory{
		"an engine that is down": newTestDirectory(t, &fakeGateway{answers: map[string]string{"a": "down"}}, nil),
		"an empty list":          newTestDirectory(t, &fakeGateway{answers: map[string]string{"a": `{"data":[]}`}}, nil),
		"no listener":            newTestDirectory(t, nil, nil),
	} {
		if !serves(d, "gpt-oss-999") {
			t.Errorf("%s: the model is not served", why)
		}
	}
}
