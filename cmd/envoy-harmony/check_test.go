package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check runs the command on the text of a file.
func check(t *testing.T, text string, env map[string]string, flags ...string) (exit int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return execute(t, env, append([]string{"check", "--config", file}, flags...)...)
}

// What is in effect is printed with its origin, without secrets, and can be checked
// again.
func TestCheck(t *testing.T) {
	const text = `
engines: [{kind: vllm}]
store_url: redis://user:s3cret@h:6379
limits: {header_hold: 5s, keep_alive: 7s}
`
	env := map[string]string{"ENVOY_HARMONY_LIMITS_KEEP_ALIVE": "8s", "ENVOY_HARMONY_TYPO": "1"}
	exit, stdout, stderr := check(t, text, env, "--set", "date=none", "--listen", "127.0.0.1:99")
	if exit != 0 || strings.Contains(stdout+stderr, "s3cret") {
		t.Fatalf("exit status %d\n%s\n%s", exit, stdout, stderr)
	}
	for _, want := range []string{
		"# harmony_config_hash ", "# engines: set by the file\n", "# limits.header_hold: set by the file\n", "# limits.keep_alive: set by the environment\n", "# date: set by a flag\n", "# listen: set by a flag\n",
		"\nadmin: 127.0.0.1:9003\n", "  name: vllm\n", "header_hold: 5s", "keep_alive: 8s", "store_url: redis://user:hidden@h:6379", "\ndate: none\n", "listen: 127.0.0.1:99",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("there is no %q in\n%s", want, stdout)
		}
	}
	for _, want := range []string{"ENVOY_HARMONY_TYPO has no effect", "loopback is not set (run makes its own)"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("there is no warning %q in\n%s", want, stderr)
		}
	}
	if exit, again, stderr := check(t, stdout, nil); exit != 0 {
		t.Errorf("what is printed has errors: %s\n%s", stderr, again)
	}
}

// The environment of OpenTelemetry, with which serve would not start, is checked too.
func TestCheckOpenTelemetry(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	exit, stdout, stderr := check(t, "engines: [{kind: vllm}]", nil)
	if exit != 1 || stdout != "" || !strings.Contains(stderr, `OTEL_TRACES_EXPORTER is "zipkin"`) || !strings.Contains(stderr, `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json"`) {
		t.Errorf("exit status %d\n%s\n%s", exit, stdout, stderr)
	}
}

// All errors are reported at once, and nothing is printed.
func TestCheckErrors(t *testing.T) {
	const text = `
engines: [{kind: sglang, prefill: [{url: "http://p:1"}]}]
date: today
nope: 1
limits: {max_tools: many}
rollout: [{match: gpt-oss}]
responses: {seal_keys: [abc]}
tools: {servers: [{label: a, url: "https://a", headers: {X: "${UNSET_VARIABLE}"}}]}
`
	exit, stdout, stderr := check(t, text, map[string]string{"ENVOY_HARMONY_DRAIN_DELAY": "5"}, "--set", "store_url=ftp://x", "--set", "typo=1", "--listen", "here")
	if exit != 1 || stdout != "" {
		t.Errorf("exit status %d, %s", exit, stdout)
	}
	for _, want := range []string{
		"unknown key nope", "limits.max_tools: want a whole number", "ENVOY_HARMONY_DRAIN_DELAY: drain_delay: want a number with its unit", "flag: unknown key typo",
		"date: must be utc", "rollout[0].percent", "responses.seal_keys[0]", "tools.servers[0].headers.X: the environment variable UNSET_VARIABLE", "store_url: the URL of the store", "listen: \"here\"",
		"engine sglang has prefill endpoints",
	} {
		if n := strings.Count(stderr, want); n != 1 {
			t.Errorf("%q is reported %d times in\n%s", want, n, stderr)
		}
	}
	for text, want := range map[string]string{
		"engines: [": "line 1: a value is missing behind a bracket",
		"a: 1\na: 2": `line 2: the key "a" is there twice`,
	} {
		if exit, _, stderr := check(t, text, nil); exit != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit status %d, %s", text, exit, stderr)
		}
	}
}

// An error names the line of its key, if the file has set the key.
func TestCheckLines(t *testing.T) {
	const text = `# a comment
engines:
  - kind: vllm
    url: http://a:1
lissten: 127.0.0.1:9002
limits:
  max_tools: many
date: today
harmony_models: [gpt-oss, "="]
aliases: &none
  - {name: a}
  - name: b
    model: other
`
	exit, _, stderr := check(t, text, nil, "--set", "drain_delay=-1s", "--set", "store_url=ftp://x")
	if exit != 1 {
		t.Errorf("exit status %d", exit)
	}
	for _, want := range []string{
		".yaml, line 4: unknown key engines[0].url; did you mean urls?",
		".yaml, line 5: unknown key lissten; did you mean listen?",
		".yaml, line 7: limits.max_tools: want a whole number, found text",
		".yaml, line 8: date: must be",
		".yaml, line 9: harmony_models[1]: must not be empty",
		".yaml, line 11: aliases[0].model: write the name",
		".yaml, line 13: aliases[1].model: harmony_models has no model",
		"\nconfiguration: store_url: ",
	} {
		if n := strings.Count(stderr, want); n != 1 {
			t.Errorf("%q is reported %d times in\n%s", want, n, stderr)
		}
	}
}

// Budgets that refuse ordinary requests are warned of.
func TestCheckWarnsOfBudgets(t *testing.T) {
	exit, _, stderr := check(t, "engines: [{kind: vllm}]\ntoken_budgets: [{name: minute, tokens: 1000, window: 1m}]", nil)
	if exit != 0 || !strings.Contains(stderr, "token_budgets[0] (minute)") || !strings.Contains(stderr, "warning") {
		t.Errorf("exit status %d\n%s", exit, stderr)
	}
}

// Counts that end with the process are warned of.
func TestCheckWarnsOfForgottenCounts(t *testing.T) {
	const warning = "what token_budgets have counted is forgotten at a restart"
	const budget = "\ntoken_budgets: [{name: day, tokens: 1000000, window: 24h}]"
	for text, want := range map[string]bool{
		"": false,
		"\ntoken_budgets: [{name: day, tokens: 0, window: 24h}]": false,
		budget:                            true,
		"\nstore_url: 'memory:'" + budget: true,
		"\nstore_url: sqlite:/tmp/counts" + budget: false,
	} {
		exit, _, stderr := check(t, "engines: [{kind: vllm}]"+text, nil)
		if exit != 0 || strings.Contains(stderr, warning) != want {
			t.Errorf("%q: exit status %d, want the warning: %v\n%s", text, exit, want, stderr)
		}
	}
}
