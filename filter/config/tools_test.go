package config

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

func TestTools(t *testing.T) {
	t.Setenv("TEST_TOKEN", "s3cret")
	c := testConfig(t, `
tools:
  allowed_hosts: [mcp.example.com, "*.example.org:8443", "http://localhost:3000"]
  allowed_networks: [10.1.2.3/16, "fd00::/8"]
  call_timeout: 5s
  servers:
  - {label: remote, url: "https://a/mcp?x=1", headers: {authorization: "Bearer ${TEST_TOKEN}", X-Plain: $5}}
  - {label: open, url: "https://b", request_headers: [x-user, authorization]}
  - {label: closed, url: "https://b", request_headers: []}
  - {label: local, command: ['true', -x], env: {TOKEN: "${TEST_TOKEN}"}, require_approval: always, allowed_tools: [a]}
  web_search: remote
  code_interpreter: local
`)
	o, err := c.Tools.Options(func(name string) (string, bool) { return "s3cret", name == "TEST_TOKEN" })
	if err != nil {
		t.Fatal(err)
	}
	want := []tools.Server{
		{Label: "remote", URL: "https://a/mcp?x=1", Header: http.Header{"Authorization": {"Bearer s3cret"}, "X-Plain": {"$5"}}, Trusted: true, RequestHeaders: []string{"Authorization"}, Expects: []string{"find", "open", "search"}},
		{Label: "open", URL: "https://b", Trusted: true, RequestHeaders: []string{"X-User", "Authorization"}},
		{Label: "closed", URL: "https://b", Trusted: true},
		{Label: "local", Command: []string{"true", "-x"}, Env: map[string]string{"TOKEN": "s3cret"}, Trusted: true, AllowedTools: []string{"a"}, Approval: true, Expects: []string{"python"}},
	}
	if diff := cmp.Diff(want, o.Servers); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	if got := fmt.Sprint(o.AllowedNetworks, len(o.AllowedHosts), o.CallTimeout, o.ListTimeout, o.MaxListed); got != "[10.1.0.0/16 fd00::/8] 3 5s 10s 256" {
		t.Error(got)
	}
	if remote, local := c.Tools.Servers[0].RequireApproval, c.Tools.Servers[3].RequireApproval; remote != ApprovalNever || local != ApprovalAlways {
		t.Errorf("approval: remote %s, local %s", remote, local)
	}
	if d := Defaults().Tools; d.IdleTimeout.Duration != 5*time.Minute || d.MaxTurns != 32 || d.MaxSessions != 1000 || d.MaxProcesses != 32 || d.MaxMessageBytes != 8<<20 || d.MaxInflightBytes != 64<<20 || d.MaxResultBytes != 262144 {
		t.Errorf("defaults: %+v", d)
	}
}

func TestToolsErrors(t *testing.T) {
	for _, tt := range []struct{ yaml, want string }{
		{"allowed_hosts: [a/b]", "tools.allowed_hosts[0]"},
		{"allowed_hosts: [a.com, '*']", "tools.allowed_hosts[1]"},
		{"allowed_networks: [10.0.0.1]", "tools.allowed_networks[0]"},
		{"allowed_networks: ['::ffff:10.0.0.0/104']", "tools.allowed_networks[0]"},
		{"list_timeout: 0s", "tools.list_timeout: must be at least 1ms"},
		{"call_timeout: -1s", "tools.call_timeout"},
		{"idle_timeout: 0s", "tools.idle_timeout"},
		{"max_sessions: 0", "tools.max_sessions: must be at least 1"},
		{"max_processes: 0", "tools.max_processes: must be at least 1"},
		{"max_listed: 0", "tools.max_listed"},
		{"max_message_bytes: 1000", "tools.max_message_bytes: must be at least 65536"},
		{"max_inflight_bytes: 1000000", "tools.max_inflight_bytes: must be at least 8388608"},
		{"max_result_bytes: 10", "tools.max_result_bytes: must be at least 1024"},
		{"max_turns: 0", "tools.max_turns"},
		{"web_search: nope", `tools.web_search: there is no server "nope"`},
		{"image_generation: nope", "tools.image_generation"},
		{"server: []", "unknown key tools.server"},
		{"servers: [{label: a, uri: x}]", "unknown key tools.servers[0].uri"},
		{"servers: [{url: 'https://a'}]", "tools.servers[0].label"},
		{"servers: [{label: 'a b', url: 'https://a'}]", "tools.servers[0].label"},
		{"servers: [{label: functions, url: 'https://a'}]", `tools.servers[0].label: "functions" is the namespace of clients' functions`},
		{"servers: [{label: a, url: 'https://a'}, {label: a, url: 'https://b'}]", `tools.servers[1].label: "a" is used twice`},
		{"servers: [{label: a}]", "tools.servers[0].url"},
		{"servers: [{label: a, url: 'ftp://a'}]", "tools.servers[0].url: write it as https"},
		{"servers: [{label: a, url: 'https://u:p@a'}]", "tools.servers[0].url: must not have a user"},
		{"servers: [{label: a, url: 'https://a', command: [x]}]", "tools.servers[0].command"},
		{"servers: [{label: a, command: ['']}]", "tools.servers[0].command"},
		{"servers: [{label: a, command: [./x]}]", "an absolute path"},
		{"servers: [{label: a, command: [x], transport: sse}]", "tools.servers[0].transport"},
		{"servers: [{label: a, url: 'https://a', transport: stdio}]", "tools.servers[0].transport"},
		{"servers: [{label: a, url: 'https://a', transport: ws}]", "tools.servers[0].transport: must be one of http, sse, stdio"},
		{"servers: [{label: a, url: 'https://a', env: {A: b}}]", "tools.servers[0].env"},
		{"servers: [{label: a, command: [x], env: {'A=': b}}]", "tools.servers[0].env"},
		{"servers: [{label: a, command: [x], headers: {A: b}}]", "tools.servers[0].headers"},
		{"servers: [{label: a, command: [x], request_headers: [A]}]", "tools.servers[0].request_headers: a process gets no headers"},
		{"servers: [{label: a, url: 'https://a', request_headers: ['a b']}]", `tools.servers[0].request_headers: "a b" is not a valid HTTP header name`},
		{"servers: [{label: a, url: 'https://a', request_headers: [host]}]", `tools.servers[0].request_headers: the header "host"`},
		{"servers: [{label: a, url: 'https://a', headers: {Host: b}}]", `tools.servers[0].headers: the header "Host"`},
		{"servers: [{label: a, url: 'https://a', headers: {X: '${UNSET_VARIABLE}'}}]", "tools.servers[0].headers.X: the environment variable UNSET_VARIABLE is not set"},
		{"servers: [{label: a, url: 'https://a', headers: {X: 'a ${B'}}]", "tools.servers[0].headers.X: write the name"},
		{"servers: [{label: a, url: 'https://a', headers: {X: '${}'}}]", "tools.servers[0].headers.X: write the name"},
		{"servers: [{label: a, command: [x], env: {A: '${UNSET_VARIABLE}'}}]", "tools.servers[0].env.A"},
		{"servers: [{label: a, url: 'https://a', headers: [x]}]", "want a mapping"},
		{"servers: [{label: a, url: 'https://a', require_approval: maybe}]", "tools.servers[0].require_approval: must be one of always, never"},
		{"servers: [{label: a, url: 'https://a', allowed_tools: ['']}]", "tools.servers[0].allowed_tools"},
	} {
		c := Defaults()
		c.Engines = []Engine{{Kind: "vllm"}}
		err := readYAML([]byte("tools: {"+tt.yaml+"}"), c, "")
		if err == nil {
			err = c.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.yaml, err, tt.want)
		}
	}
}
