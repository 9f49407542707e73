package envoy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/e2e/pki"
	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// composedExample is a generated bootstrap with additions for one subject.
type composedExample struct {
	options envoy.Options
	head    string // comment at the beginning, in place of the generated one
	edits   []edit
}

// edit replaces a text that a bootstrap has once.
type edit struct{ old, new string }

// composed are the examples that envoy-config does not print as they are.
var composed = map[string]composedExample{
	"jwt.yaml": {
		options: envoy.Options{
			Listen: "0.0.0.0:10000", Admin: "127.0.0.1:9901",
			ExtProc: "unix:///run/envoy-harmony/filter.sock", Loopback: "unix:///run/envoy-harmony/loopback.sock",
			PrefixHeader: "x-harmony-prefix", SessionHeader: "x-harmony-session",
			Engines: []envoy.Engine{{Name: "vllm", URLs: []string{"http://vllm.default.svc:8000"}}},
		},
		head: `# Clients authenticate with a JSON Web Token as their API key, and a claim of it is the
# tenant, whose responses and conversations no other tenant sees. The filter's
# configuration has
#
#   tenant_header: x-tenant
#
# The rest is what "envoy-harmony envoy-config" prints. docs/operations.md#tenants-by-token
# describes it.
`,
		edits: []edit{
			{`              mutations:
`, `              mutations:
              # Only the token says who the tenant is.
              - remove: x-tenant
`},
			{`          http_filters:
          # Gives a body to GETs of what is stored`, `          http_filters:
          # Before the filter: a request without a valid token is a 401.
          - name: envoy.filters.http.jwt_authn
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
              providers:
                clients:
                  issuer: https://login.example.com
                  audiences: [envoy-harmony]
                  # The issuer's public keys. remote_jwks fetches them from its URL.
                  local_jwks: {filename: /etc/envoy/jwks.json}
                  # The token ends here: engines and tools do not get it.
                  forward: false
                  # A token without the claim is rejected by the filter, with a 401.
                  claim_to_headers:
                  - {claim_name: tenant, header_name: x-tenant}
              rules:
              - match: {prefix: /}
                requires: {provider_name: clients}
          # Gives a body to GETs of what is stored`},
		},
	},
	"api-keys.yaml": {
		options: envoy.Options{
			Listen: "0.0.0.0:10443", Admin: "127.0.0.1:9901",
			ExtProc: "unix:///run/envoy-harmony/filter.sock", Loopback: "unix:///run/envoy-harmony/loopback.sock",
			PrefixHeader: "x-harmony-prefix", SessionHeader: "x-harmony-session",
			Engines: []envoy.Engine{{Name: "vllm", URLs: []string{"http://127.0.0.1:8000"}}},
		},
		head: `# Clients connect by HTTPS and have API keys. The owner of the key is the tenant, whose
# tokens the filter bounds. docs/gateways/recipes.md uses it, with the filter's
# configuration docs/gateways/recipes/filter.yaml.
#
# This file has the keys: only Envoy's user may read it. The rest is what "envoy-harmony
# envoy-config" prints.
`,
		edits: []edit{
			{`port_value: 10443}}
    filter_chains:
    - filters:
`, `port_value: 10443}}
    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2, http/1.1]
            # Envoy reads these files once. examples/tls has files that are renewed.
            tls_certificates:
            - certificate_chain: {filename: /etc/envoy/tls/listener/tls.crt}
              private_key: {filename: /etc/envoy/tls/listener/tls.key}
      filters:
`},
			{`              mutations:
`, `              mutations:
              # Only the key says who the tenant is.
              - remove: x-tenant
`},
			{`              - remove: "x-harmony-session"
`, `              - remove: "x-harmony-session"
          access_log:
          - name: envoy.access_loggers.stderr
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StderrAccessLog
              log_format:
                json_format:
                  time: "%START_TIME%"
                  path: "%PATH(NQ)%"
                  status: "%RESPONSE_CODE%"
                  details: "%RESPONSE_CODE_DETAILS%"
                  request_id: "%REQ(X-REQUEST-ID)%"
                  tenant: "%REQ(X-TENANT)%"
                  # What the filter reports.
                  model: "%DYNAMIC_METADATA(envoy_harmony:model)%"
                  input_tokens: "%DYNAMIC_METADATA(envoy_harmony:input_tokens)%"
                  output_tokens: "%DYNAMIC_METADATA(envoy_harmony:output_tokens)%"
                  cost: "%DYNAMIC_METADATA(envoy_harmony:cost)%"
`},
			{`          http_filters:
          # Gives a body to GETs of what is stored`, `          http_filters:
          # Before the filter: a request without a valid key is a 401.
          - name: envoy.filters.http.api_key_auth
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth
              credentials:
              - {client: acme, key: ACME_KEY}
              - {client: trial, key: TRIAL_KEY}
              # With or without "Bearer ". SDKs for Anthropic's API send x-api-key.
              key_sources: [{header: authorization}, {header: x-api-key}]
              # The key ends here: filter, engines and tools do not get it.
              forwarding: {header: x-tenant, hide_credentials: true}
          # Gives a body to GETs of what is stored`},
		},
	},
	"tls/envoy.yaml": {
		options: envoy.Options{
			Listen: "0.0.0.0:10443", ListenSDS: "/etc/envoy/sds/listener.yaml", Admin: "127.0.0.1:9901",
			ExtProc:      "envoy-harmony.default.svc:9002",
			ExtProcTLS:   &envoy.FilterTLS{CAFile: "CA", CertFile: "CERT", KeyFile: "KEY"},
			Loopback:     "0.0.0.0:10001",
			LoopbackTLS:  &envoy.ListenerTLS{CertFile: "CERT", KeyFile: "KEY", ClientCAFile: "CA"},
			PrefixHeader: "x-harmony-prefix", SessionHeader: "x-harmony-session",
			Engines: []envoy.Engine{{Name: "vllm", URLs: []string{"http://vllm.default.svc:8000"}}},
		},
		head: `# TLS for clients, and mutual TLS between Envoy and a filter on another machine: for
# ext_proc streams, and for the filter's model calls. The filter's configuration has
#
#   listen: 0.0.0.0:9002
#   tls: {cert_file: ..., key_file: ..., client_ca_file: ...}
#   loopback: https://envoy.default.svc:10001
#   loopback_tls: {ca_file: ..., cert_file: ..., key_file: ...}
#
# Certificates are renewed without a restart: Envoy follows the files in
# /etc/envoy/tls, which the other files of this folder name, and the filter its own.
# The rest is what "envoy-harmony envoy-config" prints.
node: {id: envoy, cluster: envoy}

`,
		edits: []edit{
			{`    # Envoy reads these files once. examples/tls has files that are renewed.
    - transport_socket:
`, `    - transport_socket:
`},
			{`            tls_certificates:
            - certificate_chain: {filename: "CERT"}
              private_key: {filename: "KEY"}
            validation_context: {trusted_ca: {filename: "CA"}}
`, `            tls_certificate_sds_secret_configs:
            - {name: loopback, sds_config: {path_config_source: {path: /etc/envoy/sds/loopback.yaml}}}
            # The certificate that the filter presents: of this CA.
            validation_context_sds_secret_config:
              {name: loopback_client_ca, sds_config: {path_config_source: {path: /etc/envoy/sds/loopback-client-ca.yaml}}}
`},
			{`    # Envoy reads these files once. examples/tls has files that are renewed.
`, ``},
			{`          tls_certificates:
          - certificate_chain: {filename: "CERT"}
            private_key: {filename: "KEY"}
          validation_context:
            trusted_ca: {filename: "CA"}
            match_typed_subject_alt_names:
            - {san_type: DNS, matcher: {exact: "envoy-harmony.default.svc"}}
`, `          # The certificate that Envoy presents to the filter.
          tls_certificate_sds_secret_configs:
          - {name: filter_client, sds_config: {path_config_source: {path: /etc/envoy/sds/filter-client.yaml}}}
          # The filter's certificate: of this CA, and for this name.
          combined_validation_context:
            default_validation_context:
              match_typed_subject_alt_names:
              - {san_type: DNS, matcher: {exact: "envoy-harmony.default.svc"}}
            validation_context_sds_secret_config:
              {name: filter_ca, sds_config: {path_config_source: {path: /etc/envoy/sds/filter-ca.yaml}}}
`},
		},
	},
}

// compose makes the text of an example.
func (c composedExample) compose(t *testing.T) string {
	t.Helper()
	generated, err := envoy.Bootstrap(c.options)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(generated), "\nadmin:\n")
	text = c.head + "admin:\n" + text
	for _, e := range c.edits {
		if strings.Count(text, e.old) != 1 {
			t.Fatalf("the bootstrap has this %d times, not once:\n%s", strings.Count(text, e.old), e.old)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return text
}

func TestComposedExamples(t *testing.T) {
	for name, c := range composed {
		t.Run(name, func(t *testing.T) {
			got := c.compose(t)
			checkTypes(t, []byte(got))
			path := filepath.Join("examples", name)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the example is outdated: run go test ./envoy -run Examples -update (-want +got):\n%s", diff)
			}
		})
	}
}

// Envoy accepts the composed examples, with the files that they name.
func TestValidateComposed(t *testing.T) {
	binary := find(t)
	ca := pki.NewCA(t, "test")
	pair := ca.Leaf(t, "envoy")
	dir := t.TempDir()
	for _, folder := range []string{"listener", "filter", "loopback"} {
		path := filepath.Join(dir, "tls", folder)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		pki.Write(t, path, map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": ca.PEM})
	}
	pki.Write(t, dir, map[string][]byte{"jwks.json": []byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`)})
	sds, err := filepath.Glob("examples/tls/[^e]*.yaml")
	if err != nil || len(sds) != 5 {
		t.Fatalf("SDS files: %v, %v", sds, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sds"), 0o700); err != nil {
		t.Fatal(err)
	}
	move := strings.NewReplacer("/etc/envoy/", dir+"/")
	for _, path := range sds {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pki.Write(t, filepath.Join(dir, "sds"), map[string][]byte{filepath.Base(path): []byte(move.Replace(string(text)))})
	}
	for name, c := range composed {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "envoy.yaml")
			if err := os.WriteFile(path, []byte(move.Replace(c.compose(t))), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), binary, "--mode", "validate", "--log-level", "error", "-c", path).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
