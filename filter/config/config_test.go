package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// testConfig is a valid configuration with the YAML of more over it.
func testConfig(t *testing.T, more string) *Config {
	t.Helper()
	c := Defaults()
	c.Engines = []Engine{{Kind: "vllm"}}
	if err := readYAML([]byte(more), c, ""); err != nil {
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
			Engine: "sglang", Effort: "low", EffortUpdates: turn.EffortExact, Identity: turn.DefaultIdentity,
			KnowledgeCutoff: turn.DefaultKnowledgeCutoff, ContextLength: 0, ToolArguments: turn.ArgumentsRepair, ToolStrictness: turn.StrictnessNone,
			History: turn.HistoryExact,
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

// An alias has the settings of its model, and the name that the model has at the
// engine.
func TestConfigAliases(t *testing.T) {
	c := testConfig(t, `
engines: [{kind: sglang}, {name: big, kind: vllm}]
models: [{match: 120b, engine: big, context_length: 4096}, {match: =gpt-oss-fast, upstream_model: gpt-oss-20b, effort: low}]
aliases:
- {name: claude-haiku-4-5, model: gpt-oss-fast}
- {name: claude-*, model: openai/gpt-oss-120b}
- {name: Gpt-5*, model: gpt-oss-20b}
`)
	for _, tt := range []struct {
		name, upstream, engine, effort string
		length                         int
		harmony                        bool
	}{
		{"claude-haiku-4-5", "gpt-oss-20b", "sglang", "low", 0, true},
		{"Claude-Sonnet-4-5", "openai/gpt-oss-120b", "big", "medium", 4096, true},
		{"claude-", "openai/gpt-oss-120b", "big", "medium", 4096, true},
		{"claude", "claude", "sglang", "medium", 0, false},
		{"gpt-5.1-codex", "gpt-oss-20b", "sglang", "medium", 0, true},
		{"claude-gpt-oss", "claude-gpt-oss", "sglang", "medium", 0, true}, // Harmony's by its own name
		{"my-gpt-5", "my-gpt-5", "sglang", "medium", 0, false},
	} {
		m, harmony := c.Model(tt.name)
		if m.UpstreamModel != tt.upstream || m.Engine != tt.engine || m.Effort != tt.effort || m.ContextLength != tt.length || harmony != tt.harmony {
			t.Errorf("%s: %+v, Harmony's: %t", tt.name, m, harmony)
		}
	}
	if names := c.AliasNames(); !slices.Equal(names, []string{"claude-haiku-4-5"}) {
		t.Errorf("whole names: %q", names)
	}
	for name, want := range map[string]bool{"claude-x": true, "gpt-oss-20b": false, "llama": false} {
		if c.IsAlias(name) != want {
			t.Errorf("%s is an alias: %t", name, !want)
		}
	}
	rolled := testConfig(t, "aliases: [{name: claude, model: gpt-oss-120b}]\nrollout: [{match: 120b, percent: 5}]")
	if rolled.RolloutOf("claude", "") == nil || rolled.RolloutOf("gpt-oss-20b", "") != nil {
		t.Error("the rollout is not that of the alias's model")
	}
}

func TestParse(t *testing.T) {
	text := "limits: {header_hold: 1500ms, max_tools: 3}\nengines: [{kind: vllm, urls: [\"http://a:1\", \"https://b\"]}]\n"
	c, err := Parse("config.yaml", []byte(text))
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
		{"duplicate key", "date: utc\ndate: none", `the key "date" is there twice`},
		{"no duration", "limits: {header_hold: 2}", "limits.header_hold: want a number with its unit, such as 2s, found 2"},
		{"duration without unit", "tools: {call_timeout: '30'}", "tools.call_timeout: want a number with its unit, such as 2s, found text"},
		{"wrong type", "limits: {max_tools: many}", "limits.max_tools: want a whole number, found text"},
		{"no whole number", "limits: {max_tools: 1.5}", "limits.max_tools: want a whole number, found 1.5"},
		{"large number", "limits: {max_body_bytes: 1e30}", "limits.max_body_bytes: want a whole number of bytes, or one with KiB, MiB or GiB such as 32MiB, found 1e+30"},
		{"no bool", "allow_override: on and off", "allow_override: want true or false, found text"},
		{"number as text", "model_defaults: {upstream_model: 1.10}", "model_defaults.upstream_model: want text in quotes, found 1.1"},
		{"list as text", "harmony_models: gpt-oss", "harmony_models: want a list, found text"},
		{"mapping in a list", "engines: [{kind: vllm, urls: [http://a, {b: c}]}]", "engines[0].urls[1]: want text in quotes, found a mapping"},
		{"list as text in a list", "tools: {servers: [{label: a, url: http://a}, {label: b, command: ls -l}]}", "tools.servers[1].command: want a list, found text"},
		{"number in a mapping", "tools: {servers: [{label: a, command: [ls], env: {PORT: 80}}]}", "tools.servers[0].env.PORT: want text in quotes, found 80"},
		{"all at once", "date: 1\nlimits: {max_tools: x, nope: 1}", "date: want text in quotes, found 1\nlimits.max_tools: want a whole number, found text\nunknown key limits.nope"},
		{"not a mapping", "- 1", "the configuration: want a mapping, found a list"},
		{"no models", "harmony_models: []", "harmony_models: name at least one"},
		{"empty model", `harmony_models: ["="]`, "harmony_models[0]: must not be empty"},
		{"no engines", "engines: []", "engines: name at least one engine"},
		{"kind", "engines: [{kind: v1}]", "engines[0].kind: must be one of"},
		{"same name", "engines: [{kind: vllm}, {kind: vllm}]", `engines[1].name: "vllm" is used twice`},
		{"bad name", "engines: [{kind: vllm, name: a b}]", "engines[0].name"},
		{"scheme", "engines: [{kind: vllm, urls: [grpc://a]}]", "engines[0].urls[0]: \"grpc://a\": the scheme must be http or https"},
		{"path", "engines: [{kind: vllm, urls: [http://a/v1]}]", "write scheme, host and port only"},
		{"health path of gRPC", "engines: [{kind: vllm-grpc, health_path: /health}]", "engines[0].health_path: is for HTTP engines"},
		{"health path", "engines: [{kind: vllm, health_path: health}]", "engines[0].health_path: \"health\" is no path"},
		{"hints", "engines: [{kind: vllm, kv_hints: keep}]", `engines[0].kv_hints: must be one of none, retain, not "keep"`},
		{"hints of a kind without", "engines: [{kind: sglang, kv_hints: retain}]", "engines[0].kv_hints: sglang takes no hints; those that do are vllm, vllm-generate"},
		{"picker", "engines: [{kind: vllm, endpoint_picker: 'epp:9002'}]", "engines[0].endpoint_picker: \"epp:9002\": the scheme must be"},
		{"unknown engine", "models: [{match: a, engine: nope}]", `models[0].engine: there is no engine "nope"; engines are: vllm`},
		{"no match", "models: [{effort: low}]", "models[0].match"},
		{"same match", "models: [{match: 120B}, {match: 20b}, {match: 120b}]", `models[2].match: "120b" is never reached: models[0], "120B", takes all`},
		{"wider match before", "models: [{match: gpt-oss}, {match: =gpt-oss-120b}]", `models[1].match: "=gpt-oss-120b" is never reached: models[0], "gpt-oss", takes all`},
		{"same exact match", "models: [{match: =gpt-oss}, {match: =GPT-oss}]", `models[1].match: "=GPT-oss" is never reached`},
		{"match of a foreign model", "models: [{match: =llama}]", `models[0].match: "=llama" is never reached: harmony_models has no such model`},
		{"match of foreign models", "harmony_models: [=gpt-oss-20b]\nmodels: [{match: 120b}]", `models[0].match: "120b" is never reached: harmony_models`},
		{"alias without a name", "aliases: [{model: gpt-oss-20b}]", "aliases[0].name: write the name that requests have"},
		{"alias with two patterns", "aliases: [{name: 'a*b*', model: gpt-oss-20b}]", `aliases[0].name: "a*b*": only the last character can be a *`},
		{"alias without a model", "aliases: [{name: a}]", "aliases[0].model: write the name of the model"},
		{"alias of a foreign model", "aliases: [{name: a, model: llama}]", `aliases[0].model: harmony_models has no model "llama"`},
		{"alias of an alias", "aliases: [{name: a, model: gpt-oss-20b}, {name: b, model: a}]", `aliases[1].model: harmony_models has no model "a"`},
		{"same alias", "aliases: [{name: a, model: gpt-oss-20b}, {name: A, model: gpt-oss-120b}]", `aliases[1].name: "A" is never reached: aliases[0], "a", takes all`},
		{"wider alias before", "aliases: [{name: a*, model: gpt-oss-20b}, {name: a-b*, model: gpt-oss-120b}]", `aliases[1].name: "a-b*" is never reached`},
		{"effort", "model_defaults: {effort: huge}", "model_defaults.effort: must be one of low, medium, high"},
		{"effort updates", "models: [{match: gpt-oss, effort_updates: late}]", "models[0].effort_updates: must be one of exact, keep_prefix"},
		{"context", `model_defaults: {context_length: -1}`, "model_defaults.context_length: must not be negative"},
		{"malformed", "on_malformed: ignore", "on_malformed: must be one of repair, fail"},
		{"images", "images: show", "images: must be one of"},
		{"date", "date: today", "date: must be utc, none or a date"},
		{"reasoning", "reasoning_fields: all", "reasoning_fields: must be one of"},
		{"tenant", "tenant_header: X Tenant", "tenant_header"},
		{"key", "key_header: Authorization", "key_header"},
		{"prefix header", "routing: {prefix_header: X Prefix}", "routing.prefix_header"},
		{"one header twice", "routing: {prefix_header: x-a, session_header: x-a}", "a header of their own"},
		{"session from", "routing: {session_from: [session_id, X-Session]}", `routing.session_from[1]: "X-Session" is no lower-case header name`},
		{"selection text", "routing: {selection_text_bytes: 5000}", "routing.selection_text_bytes: must be from 0 to 4096"},
		{"selection header", "routing: {selection_header: x-a}", "set routing.selection_text_bytes"},
		{"limit", "limits: {max_body_bytes: 0}", "limits.max_body_bytes: must be at least 1"},
		{"conversations", "limits: {max_conversation_bytes: 0}", "limits.max_conversation_bytes: must be at least 1"},
		{"budget", "limits: {max_inflight_bytes: 10}", "limits.max_inflight_bytes: must be at least 134217728"},
		{"kept reasoning", "limits: {kept_reasoning_ttl: 0s}", "limits.kept_reasoning_ttl: must be at least 1ms, not 0s"},
		{"stored responses", "responses: {store_bytes: -1}", "responses.store_bytes: must be at least 0, not -1"},
		{"age of responses", "responses: {store_ttl: -1h}", "responses.store_ttl: must be at least 1ms, not -1h0m0s"},
		{"seal key", "responses: {seal_keys: [AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=, '?']}", "responses.seal_keys[1]: write 32 random bytes in base64, as openssl rand -base64 32 prints them"},
		{"short seal key", "responses: {seal_keys: [AAEC]}", "responses.seal_keys[0]: write 32 random bytes"},
		{"timeout", "limits: {idle_timeout: 0s}", "limits.idle_timeout: must be at least 1ms"},
		{"level", "log: {level: loud}", "log.level: must be error"},
		{"format", "log: {format: xml}", "log.format: must be one of auto, json, text"},
		{"listen", "listen: unix://relative", "listen: \"unix://relative\": write an absolute path"},
		{"listen without port", "listen: here", "write host:port or unix:///path"},
		{"TLS without certificate", "tls: {client_ca_file: /ca}", "tls.cert_file: is missing: set it to the file of the certificate"},
		{"TLS without key", "tls: {cert_file: /c}", "tls.key_file: is missing: set it to the file"},
		{"TLS on a socket", "listen: unix:///s\ntls: {cert_file: /c, key_file: /k}", "tls: listen is a Unix socket, which only this machine can reach"},
		{"loopback open to everybody", "loopback: https://0.0.0.0:1", "loopback: \"https://0.0.0.0:1\": write one address and a port"},
		{"loopback's path", "loopback: https://envoy:1/v1", "loopback: \"https://envoy:1/v1\": write one address and a port"},
		{"loopback without port", "loopback: https://envoy", "loopback: \"https://envoy\": write one address and a port"},
		{"CA of a loopback without TLS", "loopback: envoy:1\nloopback_tls: {ca_file: /c}", "loopback_tls: loopback is without TLS: write loopback as https://host:port"},
		{"certificate without loopback", "loopback_tls: {cert_file: /c, key_file: /k}", "loopback_tls: loopback is without TLS"},
		{"loopback's key missing", "loopback: https://envoy:1\nloopback_tls: {cert_file: /c}", "loopback_tls.key_file: is missing"},
		{"loopback's certificate missing", "loopback: https://envoy:1\nloopback_tls: {key_file: /k}", "loopback_tls.cert_file: is missing"},
		{"age of connections", "max_connection_age: -1s", "max_connection_age: must be at least 0s"},
		{"admin", "admin: here", "admin: \"here\": write host:port"},
		{"delay", "drain_delay: -1s", "drain_delay: must be at least 0s"},
		{"coalescing", "loopback_coalescing: 21ms", "loopback_coalescing: must be at most 20ms, not 21ms"},
		{"negative coalescing", "loopback_coalescing: -1ms", "loopback_coalescing: must be at least 0s"},
		{"rollout without share", "rollout: [{match: gpt-oss}]", "rollout[0].percent: write the share"},
		{"rollout above all", "rollout: [{percent: 101}]", "rollout[0].percent: must be from 0 to 100, not 101"},
		{"rollout below nothing", "rollout: [{percent: -1}]", "rollout[0].percent: must be from 0 to 100, not -1"},
		{"rollout in parts", "rollout: [{percent: 0.5}]", "rollout[0].percent: want a whole number, found 0.5"},
		{"rollout of a tenant", "rollout: [{tenant: a, percent: 5}]", "rollout[0].tenant: tenant_header is not set"},
		{"rollout of no model", "rollout: [{match: '=', percent: 5}]", "rollout[0].match: write a part"},
		{"rollout of a foreign model", "rollout: [{match: =llama, percent: 5}]", `rollout[0].match: "=llama" is never reached: harmony_models`},
		{"rollout after all", "rollout: [{percent: 5}, {match: gpt-oss, percent: 6}]", "rollout[1].match: the entry is never reached: rollout[0] takes all"},
		{"rollout after a wider one", "tenant_header: x-t\nrollout: [{match: 120b, percent: 5}, {match: =gpt-oss-120b, tenant: a, percent: 6}]", "rollout[1].match: the entry is never reached: rollout[0] takes all"},
		{"budget without a name", "token_budgets: [{tokens: 1, window: 1m}]", `token_budgets[0].name: "": write a name`},
		{"budget without a window", "token_budgets: [{name: a, tokens: 1}]", "token_budgets[0].window: must be whole seconds from 1s to 8784h0m0s, such as 1m or 24h, not 0s"},
		{"budget with a broken window", "token_budgets: [{name: a, tokens: 1, window: 1500ms}]", "token_budgets[0].window: must be whole seconds"},
		{"budget below nothing", "token_budgets: [{name: a, tokens: -1, window: 1m}]", "token_budgets[0].tokens: must be from 0 to 1000000000000, not -1"},
		{"budget per anything", "token_budgets: [{name: a, per: [ip], window: 1m}]", "token_budgets[0].per[0]: must be one of tenant, key, model"},
		{"budget per tenant without tenants", "token_budgets: [{name: a, per: [tenant], window: 1m}]", "token_budgets[0].per: there are no tenants"},
		{"budgets of one name", "token_budgets: [{name: a, window: 1m}, {name: b, window: 1h}, {name: a, window: 1h}]", `token_budgets[2]: entries of the same name, "a", need the same per and window`},
		{"budget's weight", "token_budgets: [{name: a, window: 1m, weights: {cached: -1}}]", "token_budgets[0].weights.cached: must be from 0 to 100000 percent, not -1"},
		{"budget that ends without steps", "token_budgets: [{name: a, window: 1m, on_exhausted: end}]", "token_budgets[0].reserve_tokens: on_exhausted end reserves output in steps"},
		{"budget's end", "token_budgets: [{name: a, window: 1m, on_exhausted: stop}]", "token_budgets[0].on_exhausted: must be one of refuse, end"},
		{"budget's store", "token_budgets: [{name: a, window: 1m, on_store_failure: ignore}]", "token_budgets[0].on_store_failure: must be one of open, closed"},
		{"price", `models: [{match: 20b, prices: {input: "1,5"}}]`, `models[0].prices.input: "1,5" is no price`},
		{"price as a number", "model_defaults: {prices: {output: 0.5}}", "model_defaults.prices.output: want text in quotes, found 0.5"},
		{"store", "store_url: ftp://x", "store_url: the URL of the store has an unknown scheme"},
		{"reload", "reload_interval: -1s", "reload_interval: must be at least 0s"},
		{"drain", "drain_timeout: -1s", "drain_timeout: must be at least 0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Defaults()
			c.Engines = []Engine{{Kind: "vllm"}}
			err := readYAML([]byte(tt.yaml), c, "")
			if err == nil {
				err = c.Validate()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// Entries that look alike and can all be reached are taken.
func TestConfigReachable(t *testing.T) {
	for _, more := range []string{
		"models: [{match: gpt-oss-120b}, {match: gpt-oss}]",
		"models: [{match: =gpt-oss}, {match: gpt-oss}]",
		"models: [{match: 120b}, {match: 20b-x}]",
		"harmony_models: [=gpt-oss-120b]\nmodels: [{match: 120b}, {match: =llama, effort: low}]\nallow_override: true",
		"harmony_models: [=gpt-oss-120b]\nmodels: [{match: =GPT-oss-120b}, {match: oss}]",
		"aliases: [{name: a, model: gpt-oss-20b}, {name: a*, model: gpt-oss-120b}, {name: '*', model: gpt-oss-120b}]",
	} {
		testConfig(t, more)
	}
}

// A key without a value counts as unset, and a date is text.
func TestConfigUnset(t *testing.T) {
	c := testConfig(t, "harmony_models:\nlimits: {idle_timeout: }\ntools:\ndate: 2025-06-28\nresponses: {store_bytes: 1e9}")
	want := testConfig(t, "")
	want.Date, want.Responses.StoreBytes = "2025-06-28", 1e9
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestApplyEnv(t *testing.T) {
	c := Defaults()
	unknown, err := c.ApplyEnv([]string{
		"ENVOY_HARMONY_TOOL_X=1",
		"ENVOY_HARMONY_ENGINES_0_KIND=vllm",
		"ENVOY_HARMONY_UNKNOWN=", // unset
		"ENABLE_HARMONY_FOR_MODELS= a, =b ,,",
		"ENVOY_HARMONY_LIMITS_HEADER_HOLD=5s",
		"ENVOY_HARMONY_LOG_LEVEL=off", // a word that YAML would take for a bool
		"ENVOY_HARMONY_ENGINES=[{kind: vllm, name: e}]",
		"ENVOY_HARMONY_STORE_URL=redis://h/?a=b",
		"ENVOY_HARMONY_ALLOW_OVERRIDE=true",
		"ENVOY_HARMONY_DATE=",
		// Kubernetes adds these for the Services envoy-harmony and envoy-harmony-metrics.
		"ENVOY_HARMONY_SERVICE_HOST=10.0.0.1", "ENVOY_HARMONY_SERVICE_PORT=9002", "ENVOY_HARMONY_SERVICE_PORT_GRPC=9002",
		"ENVOY_HARMONY_PORT=tcp://10.0.0.1:9002", "ENVOY_HARMONY_PORT_9002_TCP=tcp://10.0.0.1:9002", "ENVOY_HARMONY_PORT_9002_TCP_ADDR=10.0.0.1",
		"ENVOY_HARMONY_METRICS_SERVICE_HOST=10.0.0.2", "ENVOY_HARMONY_METRICS_PORT_9003_TCP_PROTO=tcp",
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ENVOY_HARMONY_ENGINES_0_KIND", "ENVOY_HARMONY_TOOL_X"}, unknown); diff != "" {
		t.Errorf("unknown variables (-want +got):\n%s", diff)
	}
	want := Defaults()
	want.HarmonyModels = []string{"a", "=b"}
	want.Limits.HeaderHold = Duration{5 * time.Second}
	want.Log.Level = "off"
	want.Engines = []Engine{{Kind: "vllm", Name: "e"}}
	want.StoreURL = "redis://h/?a=b"
	want.AllowOverride = true
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}

	_, err = c.ApplyEnv([]string{"ENVOY_HARMONY_ENGINES=[{kind: vllm, urls: 3}]"})
	if want := "environment variable ENVOY_HARMONY_ENGINES: engines[0].urls: want a list, found 3"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestSetWithoutValue(t *testing.T) {
	if err := Defaults().Set("limits.max_tools", ""); err == nil || !strings.Contains(err.Error(), "limits.max_tools: the value is missing") {
		t.Errorf("error %v", err)
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
	if err := readYAML(text, got, ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// Every key stands in docs/configuration.md, between backquotes.
func TestConfigDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := slices.Concat(
		settableKeys(reflect.TypeFor[Config](), ""),
		settableKeys(reflect.TypeFor[Model](), "models[]."),
		settableKeys(reflect.TypeFor[Engine](), "engines[]."),
		settableKeys(reflect.TypeFor[ToolServer](), "tools.servers[]."),
		settableKeys(reflect.TypeFor[Rollout](), "rollout[]."),
		settableKeys(reflect.TypeFor[ReasoningEvents](), "responses.reasoning_events_for[]."),
		settableKeys(reflect.TypeFor[Alias](), "aliases[]."),
	)
	for _, key := range keys {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/configuration.md has no `%s`: add it to the row of the list's other keys, or a row of its own", key)
		}
	}
	if len(keys) < 30 {
		t.Errorf("only %d keys found", len(keys))
	}
}
