package envoy_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/echo/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/tcp/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

var update = flag.Bool("update", false, "write the example files")

// examples are the example files. Together they cover every branch of the template.
var examples = map[string]envoy.Options{
	"sidecar.yaml": {
		Listen:        "0.0.0.0:10000",
		Admin:         "127.0.0.1:9901",
		ExtProc:       "unix:///run/envoy-harmony/filter.sock",
		Loopback:      "unix:///run/envoy-harmony/loopback.sock",
		PrefixHeader:  "x-harmony-prefix",
		SessionHeader: "x-harmony-session",
		Engines: []envoy.Engine{
			{Name: "vllm", URLs: []string{"http://vllm-0.vllm:8000", "http://vllm-1.vllm:8000"}},
		},
	},
	"remote-engines.yaml": {
		Listen:  "[::]:10000",
		Admin:   "[::1]:9901",
		ExtProc: "envoy-harmony.default.svc:9002",
		ExtProcTLS: &envoy.FilterTLS{
			CAFile:   "/etc/envoy/filter/ca.crt",
			CertFile: "/etc/envoy/filter/tls.crt",
			KeyFile:  "/etc/envoy/filter/tls.key",
		},
		Loopback: "0.0.0.0:10001",
		LoopbackTLS: &envoy.ListenerTLS{
			CertFile:     "/etc/envoy/loopback/tls.crt",
			KeyFile:      "/etc/envoy/loopback/tls.key",
			ClientCAFile: "/etc/envoy/loopback/ca.crt",
		},
		Engines: []envoy.Engine{
			{Name: "sglang", URLs: []string{"https://sglang.example.com", "https://10.0.0.7:8443"}, HealthPath: "/health"},
			{Name: "vllm", URLs: []string{"http://[fd00::1]:8000"}},
		},
		PrefixHeader:      "x-harmony-prefix",
		SessionHeader:     "x-harmony-session",
		Balance:           envoy.BalanceLeastRequest,
		Upstream:          "http://models.example.com",
		StreamIdleTimeout: 90 * time.Minute,
		RetryBufferBytes:  4 << 20,
		CAFile:            "/etc/ssl/certs/ca-certificates.crt",
		AccessLog:         true,
	},
	"grpc-engines.yaml": {
		Listen:        "0.0.0.0:10000",
		Admin:         "127.0.0.1:9901",
		ExtProc:       "unix:///run/envoy-harmony/filter.sock",
		Loopback:      "unix:///run/envoy-harmony/loopback.sock",
		SessionHeader: "x-harmony-session",
		Balance:       envoy.BalanceSession,
		Engines: []envoy.Engine{
			{Name: "vllm-grpc", URLs: []string{"http://vllm-0.vllm:50051"}, GRPC: true},
			{Name: "sglang-grpc", URLs: []string{"https://sglang.example.com"}, GRPC: true},
		},
		CAFile: "/etc/ssl/certs/ca-certificates.crt",
	},
	"prefill-decode.yaml": {
		Listen:        "0.0.0.0:10000",
		Admin:         "127.0.0.1:9901",
		ExtProc:       "unix:///run/envoy-harmony/filter.sock",
		Loopback:      "unix:///run/envoy-harmony/loopback.sock",
		PrefixHeader:  "x-harmony-prefix",
		SessionHeader: "x-harmony-session",
		Engines: []envoy.Engine{
			{
				Name: "sglang", URLs: []string{"http://decode-0.sglang:30000", "http://decode-1.sglang:30000"},
				Prefill: []string{"http://prefill-0.sglang:30000", "http://prefill-1.sglang:30000"}, PinPrefill: true,
			},
			{
				Name: "vllm", URLs: []string{"http://decode-0.vllm:8000", "http://decode-1.vllm:8000"},
				Prefill: []string{"http://prefill-0.vllm:8000", "http://prefill-1.vllm:8000"},
			},
		},
	},
	"mode-override.yaml": {
		Listen:       "0.0.0.0:10000",
		Admin:        "127.0.0.1:9901",
		ExtProc:      "unix:///run/envoy-harmony/filter.sock",
		Loopback:     "unix:///run/envoy-harmony/loopback.sock",
		PrefixHeader: "x-harmony-prefix",
		ModeOverride: true,
		Engines:      []envoy.Engine{{Name: "vllm", URLs: []string{"http://vllm.default.svc:8000"}}},
		Upstream:     "http://models.example.com",
	},
	"rate-limit.yaml": {
		Listen:           "0.0.0.0:10000",
		Admin:            "127.0.0.1:9901",
		ExtProc:          "unix:///run/envoy-harmony/filter.sock",
		Loopback:         "unix:///run/envoy-harmony/loopback.sock",
		PrefixHeader:     "x-harmony-prefix",
		TenantHeader:     "x-tenant",
		RateLimitService: "http://ratelimit.default.svc:8081",
		Engines:          []envoy.Engine{{Name: "vllm", URLs: []string{"http://vllm.default.svc:8000"}}},
		AccessLog:        true,
	},
	"rate-limit-local.yaml": {
		Listen:                "0.0.0.0:10000",
		Admin:                 "127.0.0.1:9901",
		ExtProc:               "unix:///run/envoy-harmony/filter.sock",
		Loopback:              "unix:///run/envoy-harmony/loopback.sock",
		PrefixHeader:          "x-harmony-prefix",
		TenantHeader:          "x-tenant",
		PromptTokensPerMinute: 100_000,
		Engines:               []envoy.Engine{{Name: "vllm", URLs: []string{"http://vllm.default.svc:8000"}}},
	},
	"rate-limit-local-direct.yaml": {
		Listen:                "0.0.0.0:10000",
		Admin:                 "127.0.0.1:9901",
		ExtProc:               "unix:///run/envoy-harmony/filter.sock",
		TenantHeader:          "x-tenant",
		PromptTokensPerMinute: 100_000,
		Engines:               []envoy.Engine{{Name: "vllm", URLs: []string{"http://vllm.default.svc:8000"}}},
	},
	"endpoint-picker.yaml": {
		Listen:       "0.0.0.0:10000",
		Admin:        "127.0.0.1:9901",
		ExtProc:      "unix:///run/envoy-harmony/filter.sock",
		Loopback:     "unix:///run/envoy-harmony/loopback.sock",
		PrefixHeader: "x-harmony-prefix",
		Engines: []envoy.Engine{
			{Name: "vllm", URLs: []string{"http://vllm.default.svc:8000"}, EndpointPicker: "http://vllm-epp.default.svc:9002"},
			{Name: "large", URLs: []string{"http://large.default.svc:8000"}, EndpointPicker: "https://large-epp.default.svc:9002"},
		},
		CAFile: "/etc/ssl/certs/ca-certificates.crt",
	},
	"endpoint-picker-direct.yaml": {
		Listen:  "0.0.0.0:10000",
		Admin:   "127.0.0.1:9901",
		ExtProc: "unix:///run/envoy-harmony/filter.sock",
		Engines: []envoy.Engine{
			{Name: "vllm", URLs: []string{"http://vllm.default.svc:8000"}, EndpointPicker: "http://vllm-epp.default.svc:9002"},
		},
	},
}

func TestExamples(t *testing.T) {
	for name, options := range examples {
		t.Run(name, func(t *testing.T) {
			got, err := envoy.Bootstrap(options)
			if err != nil {
				t.Fatal(err)
			}
			checkTypes(t, got)
			path := filepath.Join("examples", name)
			if *update {
				if err := os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the example is outdated: run go test ./envoy -run Examples -update (-want +got):\n%s", diff)
			}
		})
	}
}

// checkTypes checks that a bootstrap is a valid protobuf message.
func checkTypes(t *testing.T, text []byte) {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	var b bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(asJSON, &b); err != nil {
		t.Fatal(err)
	}
	if err := b.ValidateAll(); err != nil {
		t.Fatal(err)
	}
}

func TestBootstrapErrors(t *testing.T) {
	good := func() envoy.Options {
		return envoy.Options{
			Listen: "127.0.0.1:0", ExtProc: "unix:///s",
			Engines: []envoy.Engine{{Name: "e", URLs: []string{"http://a:1"}}},
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*envoy.Options)
		want   string
	}{
		{"listen", func(o *envoy.Options) { o.Listen = "here" }, `listen: "here": write host:port`},
		{"admin", func(o *envoy.Options) { o.Admin = "h:99999" }, `admin: "99999" is not a port`},
		{"filter", func(o *envoy.Options) { o.ExtProc = "unix://s" }, "filter: \"unix://s\": write an absolute path"},
		{"TLS on a socket", func(o *envoy.Options) { o.ExtProcTLS = &envoy.FilterTLS{CAFile: "ca"} }, "filter: TLS needs an address host:port"},
		{"TLS without CA", func(o *envoy.Options) { o.ExtProc, o.ExtProcTLS = "a:1", &envoy.FilterTLS{} }, "filter: TLS needs a CA file"},
		{"TLS without key", func(o *envoy.Options) { o.ExtProc, o.ExtProcTLS = "a:1", &envoy.FilterTLS{CAFile: "ca", CertFile: "c"} }, "filter: a certificate and its key"},
		{"loopback with TLS on a socket", func(o *envoy.Options) { o.Loopback, o.LoopbackTLS = "unix:///l", &envoy.ListenerTLS{} }, "loopback: TLS needs an address host:port"},
		{"loopback without key", func(o *envoy.Options) {
			o.Loopback, o.LoopbackTLS = "127.0.0.1:1", &envoy.ListenerTLS{CertFile: "c"}
		}, "loopback: TLS needs a certificate and its key"},
		{"no engine", func(o *envoy.Options) { o.Engines = nil }, "there is no engine"},
		{"no URL", func(o *envoy.Options) { o.Engines[0].URLs = nil }, "engine e: it has no URL"},
		{"scheme", func(o *envoy.Options) { o.Engines[0].URLs[0] = "ftp://a" }, "the scheme must be http or https"},
		{"host", func(o *envoy.Options) { o.Upstream = "http://:80" }, "upstream: \"http://:80\": the host is missing"},
		{"balance", func(o *envoy.Options) { o.Balance = "random" }, "balance: must be prefix, session or least-request"},
		{"no header", func(o *envoy.Options) { o.Balance = envoy.BalanceSession }, "set routing.session_header"},
		{"prefill without loopback", func(o *envoy.Options) { o.Engines[0].Prefill = []string{"http://p:1"} }, "engine e: prefill endpoints are reached through the loopback listener: set loopback"},
		{"prefill URL", func(o *envoy.Options) { o.Loopback, o.Engines[0].Prefill = "unix:///l", []string{"p:1"} }, "engine e: prefill:"},
		{"picker", func(o *envoy.Options) { o.Engines[0].EndpointPicker = "epp:9002" }, "engine e: endpoint picker: \"epp:9002\": the scheme must be"},
		{"rate limit without tenants", func(o *envoy.Options) { o.PromptTokensPerMinute = 1 }, "rate limit: it needs a header that names the tenant"},
		{"rate limit", func(o *envoy.Options) { o.PromptTokensPerMinute = -1 }, "rate limit: the prompt tokens per minute must be from 0 to"},
		{"rate limit service", func(o *envoy.Options) { o.TenantHeader, o.RateLimitService = "x-tenant", "ratelimit:8081" }, "rate limit: \"ratelimit:8081\": the scheme must be"},
		{"mixed", func(o *envoy.Options) { o.Engines[0].URLs = []string{"http://a", "https://b"} }, "configure two engines"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := good()
			tt.change(&o)
			_, err := envoy.Bootstrap(o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// Special characters in a name or an address do not change the structure of the
// YAML.
func TestBootstrapQuotes(t *testing.T) {
	text, err := envoy.Bootstrap(envoy.Options{
		Listen: "127.0.0.1:0", ExtProc: "unix:///tmp/a b'\"}\n#: \u2028",
		Engines: []envoy.Engine{{Name: "a: {b}\n\"c\"", URLs: []string{"http://h"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	checkTypes(t, text)
}

// OneCall limits the connections of its engine, and of no other, to one request.
func TestOneCall(t *testing.T) {
	got, err := envoy.Bootstrap(envoy.Options{
		Listen: "127.0.0.1:0", ExtProc: "127.0.0.1:50051",
		Engines: []envoy.Engine{
			{Name: "closes", URLs: []string{"http://127.0.0.1:8080"}, OneCall: true},
			{Name: "keeps", URLs: []string{"http://127.0.0.1:8000"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	checkTypes(t, got)
	_, closes, _ := strings.Cut(string(got), `- name: "engine_closes"`)
	closes, keeps, _ := strings.Cut(closes, `- name: "engine_keeps"`)
	const once = "max_requests_per_connection: 1"
	if !strings.Contains(closes, once) || strings.Contains(keeps, once) {
		t.Errorf("%q must be only in the cluster of the first engine:\n%s", once, got)
	}
}

// An Envoy with an id shares no port, also with gRPC engines alone, and answers probes.
func TestInstance(t *testing.T) {
	for _, gRPC := range []bool{false, true} {
		got, err := envoy.Bootstrap(envoy.Options{
			Listen: "127.0.0.1:0", ExtProc: "127.0.0.1:50051", Loopback: "127.0.0.1:50052", Instance: "id-of-this",
			Engines: []envoy.Engine{{Name: "e", URLs: []string{"http://127.0.0.1:8080"}, GRPC: gRPC}},
		})
		if err != nil {
			t.Fatal(err)
		}
		checkTypes(t, got)
		if n := strings.Count(string(got), "enable_reuse_port: false"); n != 2 {
			t.Errorf("%d of 2 listeners have their port alone:\n%s", n, got)
		}
		if n := strings.Count(string(got), `"id-of-this"`); n != 2 {
			t.Errorf("the probe's route names the id %d times, not in request and reply", n)
		}
	}
}
