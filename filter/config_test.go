package filter

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// testConfig is a valid configuration with the YAML of more over it.
func testConfig(t *testing.T, more string) *Config {
	t.Helper()
	c := Defaults()
	c.Engines = []Engine{{Kind: "vllm"}}
	if err := c.parse([]byte(more)); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigModel(t *testing.T) {
	c := testConfig(t, `
harmony_models: [gpt-oss, =Exact]
model_defaults: {effort: low}
engines: [{kind: sglang}, {name: big, kind: vllm}]
models:
- {match: 120B, engine: big, upstream_model: served, context_length: 4096}
- {match: gpt-oss, effort: high, identity: You are a test.}
`)
	want := func(m Model) Model {
		return m.over(Model{
			Engine: "sglang", Effort: "low", Identity: identity,
			KnowledgeCutoff: knowledgeCutoff, ContextLength: 0,
		})
	}
	for _, tt := range []struct {
		name    string
		want    Model
		harmony bool
	}{
		{"openai/GPT-OSS-20b", want(Model{Match: "gpt-oss", Effort: "high", Identity: "You are a test.", UpstreamModel: "openai/GPT-OSS-20b"}), true},
		{"gpt-oss-120b", want(Model{Match: "120B", Engine: "big", UpstreamModel: "served", ContextLength: 4096}), true},
		{"exact", want(Model{UpstreamModel: "exact"}), true},
		{"exact-2", want(Model{UpstreamModel: "exact-2"}), false},
		{"llama", want(Model{UpstreamModel: "llama"}), false},
		{"", want(Model{}), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, harmony := c.Model(tt.name)
			if harmony != tt.harmony {
				t.Errorf("Harmony's: %v, want %v", harmony, tt.harmony)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "limits: {header_hold: 1500ms, max_tools: 3}\nengines: [{kind: vllm, urls: [\"http://a:1\", \"https://b\"]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.Limits.HeaderHold = Duration{1500 * time.Millisecond}
	want.Limits.MaxTools = 3
	want.Engines = []Engine{{Name: "vllm", Kind: "vllm", URLs: []string{"http://a:1", "https://b"}}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// What a user gets wrong is named with its path.
func TestConfigErrors(t *testing.T) {
	for _, tt := range []struct{ name, yaml, want string }{
		{"unknown key", "limits: {max_body: 1}", "unknown key limits.max_body"},
		{"unknown key in a list", "engines: [{kind: vllm, url: x}]", "unknown key engines[0].url"},
		{"duplicate key", "date: utc\ndate: none", `key "date" already set`},
		{"no duration", "limits: {header_hold: 2}", "write a number with its unit"},
		{"wrong type", "limits: {max_tools: many}", "limits.max_tools: want a whole number, found string"},
		{"list as text", "harmony_models: gpt-oss", "harmony_models: want a list, found string"},
		{"not a mapping", "- 1", "want a mapping, found array"},
		{"no models", "harmony_models: []", "harmony_models: name at least one"},
		{"empty model", `harmony_models: ["="]`, "harmony_models[0]: must not be empty"},
		{"no engines", "engines: []", "engines: name at least one engine"},
		{"kind", "engines: [{kind: v1}]", "engines[0].kind: must be one of"},
		{"same name", "engines: [{kind: vllm}, {kind: vllm}]", `engines[1].name: "vllm" stands twice`},
		{"bad name", "engines: [{kind: vllm, name: a b}]", "engines[0].name"},
		{"scheme", "engines: [{kind: vllm, urls: [grpc://a]}]", "engines[0].urls[0]: \"grpc://a\": the scheme must be http or https"},
		{"path", "engines: [{kind: vllm, urls: [http://a/v1]}]", "write scheme, host and port only"},
		{"picker", "engines: [{kind: vllm, endpoint_picker: 'epp:9002'}]", "engines[0].endpoint_picker: \"epp:9002\": the scheme must be"},
		{"unknown engine", "models: [{match: a, engine: nope}]", `models[0].engine: there is no engine "nope"; engines are: vllm`},
		{"no match", "models: [{effort: low}]", "models[0].match"},
		{"effort", "model_defaults: {effort: huge}", "model_defaults.effort: must be one of low, medium, high"},
		{"context", `model_defaults: {context_length: -1}`, "model_defaults.context_length: must not be negative"},
		{"malformed", "on_malformed: ignore", "on_malformed: must be one of repair, fail"},
		{"images", "images: show", "images: must be one of"},
		{"date", "date: today", "date: must be utc, none or a date"},
		{"reasoning", "reasoning_fields: all", "reasoning_fields: must be one of"},
		{"tenant", "tenant_header: X Tenant", "tenant_header"},
		{"prefix header", "routing: {prefix_header: X Prefix}", "routing.prefix_header"},
		{"one header twice", "routing: {prefix_header: x-a, session_header: x-a}", "a header of their own"},
		{"selection text", "routing: {selection_text_bytes: 5000}", "routing.selection_text_bytes: must be from 0 to 4096"},
		{"selection header", "routing: {selection_header: x-a}", "set routing.selection_text_bytes"},
		{"limit", "limits: {max_body_bytes: 0}", "limits.max_body_bytes: must be at least 1"},
		{"budget", "limits: {max_inflight_bytes: 10}", "limits.max_inflight_bytes: must be at least 33554432"},
		{"timeout", "limits: {idle_timeout: 0s}", "limits.idle_timeout: must be at least 1ms"},
		{"level", "log: {level: loud}", "log.level: must be error"},
		{"format", "log: {format: xml}", "log.format: must be one of json, text"},
		{"listen", "listen: unix://relative", "listen: \"unix://relative\": write an absolute path"},
		{"listen without port", "listen: here", "write host:port or unix:///path"},
		{"admin", "admin: here", "admin: \"here\": write host:port"},
		{"delay", "drain_delay: -1s", "drain_delay: must be at least 0s"},
		{"drain", "drain_timeout: -1s", "drain_timeout: must be at least 0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Defaults()
			c.Engines = []Engine{{Kind: "vllm"}}
			err := c.parse([]byte(tt.yaml))
			if err == nil {
				err = c.Validate()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestApplyEnv(t *testing.T) {
	env := map[string]string{
		"ENABLE_HARMONY_FOR_MODELS":        " a, =b ,,",
		"ENVOY_HARMONY_LIMITS_HEADER_HOLD": "5s",
		"ENVOY_HARMONY_LOG_LEVEL":          "off", // a word that YAML would take for a bool
		"ENVOY_HARMONY_ENGINES":            "[{kind: vllm, name: e}]",
		"ENVOY_HARMONY_ALLOW_OVERRIDE":     "true",
		"ENVOY_HARMONY_DATE":               "",
	}
	c := Defaults()
	if err := c.ApplyEnv(func(key string) string { return env[key] }); err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.HarmonyModels = []string{"a", "=b"}
	want.Limits.HeaderHold = Duration{5 * time.Second}
	want.Log.Level = "off"
	want.Engines = []Engine{{Kind: "vllm", Name: "e"}}
	want.AllowOverride = true
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}

	err := c.ApplyEnv(func(key string) string {
		return map[string]string{"ENVOY_HARMONY_LIMITS_MAX_TOOLS": "x"}[key]
	})
	if err == nil || !strings.Contains(err.Error(), "ENVOY_HARMONY_LIMITS_MAX_TOOLS") {
		t.Errorf("error %v does not name the variable", err)
	}
}

func TestSetUnknownKey(t *testing.T) {
	for _, key := range []string{"", "nope", "limits.nope", "date.x", "limits."} {
		if err := Defaults().Set(key, "1"); err == nil || !strings.Contains(err.Error(), "unknown key") {
			t.Errorf("Set(%q): error %v", key, err)
		}
	}
}

// What is printed can be read again.
func TestConfigRoundTrip(t *testing.T) {
	want := testConfig(t, "limits: {keep_alive: 1m}")
	text, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := &Config{}
	if err := got.parse(text); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// Every key stands in docs/configuration.md, between backquotes.
func TestConfigDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := slices.Concat(
		settableKeys(reflect.TypeFor[Config](), ""),
		settableKeys(reflect.TypeFor[Model](), "models[]."),
		settableKeys(reflect.TypeFor[Engine](), "engines[]."),
		settableKeys(reflect.TypeFor[ToolServer](), "tools.servers[]."),
	)
	for _, key := range keys {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/configuration.md has no `%s`", key)
		}
	}
	if len(keys) < 30 {
		t.Errorf("only %d keys found", len(keys))
	}
}
