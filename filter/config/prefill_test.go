package config

import (
	"strings"
	"testing"
)

func TestPrefillErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string // "": none
	}{
		"good":             {func(*Config) {}, ""},
		"kind":             {func(c *Config) { c.Engines[0].Kind = "llamacpp" }, "engines[0].prefill: llamacpp takes no prefill endpoints; those that do are sglang, sglang-grpc, vllm, vllm-generate, vllm-grpc"},
		"URL":              {func(c *Config) { c.Engines[0].Prefill[1].URL = "p1:30000" }, "engines[0].prefill[1].url:"},
		"port":             {func(c *Config) { c.Engines[0].Prefill[1].BootstrapPort = 70000 }, "engines[0].prefill[1].bootstrap_port: 70000 is no port"},
		"port of vLLM":     {func(c *Config) { c.Engines[0].Kind, c.Engines[0].Prefill[1].BootstrapPort = "vllm", 8998 }, "is for SGLang only"},
		"an engine's name": {func(c *Config) { c.Engines = append(c.Engines, Engine{Name: "main-prefill", Kind: "vllm"}) }, "engines: main-prefill is the name of the prefill endpoints of main"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Defaults()
			cfg.Loopback = "unix:///run/l"
			cfg.Engines = []Engine{{Name: "main", Kind: "sglang", URLs: []string{"http://d:1"}, Prefill: []Prefill{{URL: "http://p0"}, {URL: "http://[::1]:30000"}}}}
			c.change(cfg)
			err := cfg.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
