package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The keys that a running process cannot change are in the tables of
// docs/configuration.md, and no others.
func TestReloadDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Reload\n")
	section, _, _ = strings.Cut(section, "\n## ")
	always, inRun, found := strings.Cut(section, "`run` also refuses")
	if !found {
		t.Fatal("the section Reload has no second table")
	}
	for kind, text := range map[string]string{reloadRestart: always, reloadEnvoy: inRun} {
		var documented, fixed []string
		for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(text, -1) {
			for key := range strings.SplitSeq(row[1], ", ") {
				documented = append(documented, strings.Trim(key, "`"))
			}
		}
		for _, k := range configKeys() {
			if k.reload == kind {
				fixed = append(fixed, k.path)
			}
		}
		slices.Sort(documented)
		slices.Sort(fixed)
		if diff := cmp.Diff(fixed, documented); diff != "" {
			t.Errorf("keys that are fixed, %s (-code +docs/configuration.md):\n%s", kind, diff)
		}
	}
	for _, k := range configKeys() {
		if !slices.Contains([]string{"", reloadRestart, reloadEnvoy}, k.reload) {
			t.Errorf("%s has the tag reload:%q", k.path, k.reload)
		}
	}
}

// Every key is compared, and named if it is fixed.
func TestCheckReload(t *testing.T) {
	for _, k := range configKeys() {
		was, is := testConfig(t, ""), testConfig(t, "")
		field := reflect.ValueOf(is).Elem().FieldByIndex(k.index)
		switch field.Kind() {
		case reflect.Bool:
			field.SetBool(!field.Bool())
		case reflect.Int, reflect.Int64:
			field.SetInt(field.Int() + 1)
		case reflect.String:
			field.SetString(field.String() + "x")
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 2, 2))
		case reflect.Struct: // a duration
			field.Field(0).SetInt(field.Field(0).Int() + 1)
		default:
			t.Fatalf("%s has the kind %s", k.path, field.Kind())
		}
		if got := was.Changed(is); !slices.Equal(got, []string{k.path}) {
			t.Errorf("%s was changed: Changed returns %q", k.path, got)
		}
		for _, ownEnvoy := range []bool{false, true} {
			err := was.CheckReload(is, ownEnvoy)
			refused := err != nil && err.Error() == k.path+": cannot be changed while the process runs: restart it, or undo the change"
			if want := k.reload == reloadRestart || ownEnvoy && k.reload == reloadEnvoy; refused != want || err != nil && !refused {
				t.Errorf("%s, Envoy's configuration made from it: %t: error %v", k.path, ownEnvoy, err)
			}
		}
	}
	if err := testConfig(t, "").CheckReload(testConfig(t, ""), true); err != nil {
		t.Error(err)
	}
	for _, ownEnvoy := range []bool{false, true} {
		for _, next := range []string{"", "tenant_header: x-ten"} {
			err := testConfig(t, "tenant_header: x-tenant").CheckReload(testConfig(t, next), ownEnvoy)
			if err == nil || !strings.Contains(err.Error(), "tenant_header: cannot be removed or renamed while the process runs") {
				t.Errorf("the tenants become those of %q: %v", next, err)
			}
		}
	}
	err := testConfig(t, "").CheckReload(testConfig(t, "listen: 127.0.0.1:1\nstore_url: sqlite:/a\ndate: none"), false)
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two keys: error %v", err)
	}
}

// A file that lacks a line of the one before, or its end, loses what stood there: a key, also
// one of an element of a list. The reload is refused, or it names the key.
func TestWhatALineLessRemovesIsNamed(t *testing.T) {
	const whole = `engines: [{name: vllm, kind: vllm, urls: ["http://10.0.0.1:8000"]}]
tenant_header: x-tenant-id
key_header: authorization
token_budgets:
- name: day
  per: [tenant]
  window: 24h
  tokens: 100000
  on_exhausted: end
  reserve_tokens: 1024
  on_store_failure: closed
- name: day
  per: [tenant]
  window: 24h
  tenant: acme
  tokens: 5
  weights:
    cached: 10
reasoning_budgets:
- match: gpt-oss-20b
  tenant: acme
  tokens: 100
tools:
  max_turns: 3
  allowed_hosts: [mcp.example.com]
  servers:
  - label: files
    url: https://files.internal/mcp
    headers:
      x-key: k
    request_headers: [x-user]
    allowed_tools: [read]
    require_approval: always
record:
  percent: 1
  tenants: [acme]
limits:
  max_tools: 7
`
	before := testConfig(t, whole)
	lines := strings.SplitAfter(whole, "\n")
	compared := 0
	compare := func(what, text string) {
		next, err := Parse("config.yaml", []byte(text))
		if err != nil || before.CheckReload(next, false) != nil || len(before.Changed(next)) == 0 {
			return
		}
		compared++
		if removed := before.Removed(next, Defaults()); len(removed) == 0 {
			t.Errorf("%s: no key is named, and changed are %q", what, before.Changed(next))
		}
	}

	for i, line := range lines[:len(lines)-1] {
		compare(fmt.Sprintf("without the line %q", line), strings.Join(slices.Concat(lines[:i], lines[i+1:]), ""))
		compare(fmt.Sprintf("with nothing from the line %q on", line), strings.Join(lines[:i], ""))
	}
	if compared < 25 {
		t.Errorf("only %d files were compared: this shows nothing", compared)
	}

	next := testConfig(t, strings.Replace(whole, "  tokens: 100000\n", "", 1))
	if got := before.Removed(next, Defaults()); !slices.Equal(got, []string{"token_budgets[day].tokens"}) {
		t.Errorf("named are %q", got)
	}
}

func TestRolloutOf(t *testing.T) {
	c := testConfig(t, `
tenant_header: x-tenant
rollout:
- {match: =gpt-oss-120b, tenant: acme, percent: 100}
- {match: 120b, percent: 5}
- {tenant: acme, percent: 50}
`)
	for _, tt := range []struct {
		model, tenant string
		want          int // -1: none
	}{
		{"gpt-oss-120b", "acme", 100},
		{"GPT-oss-120B", "acme", 100},
		{"gpt-oss-120b", "other", 5},
		{"gpt-oss-120b-x", "acme", 5},
		{"gpt-oss-20b", "acme", 50},
		{"gpt-oss-20b", "other", -1},
		{"gpt-oss-20b", "", -1},
	} {
		got := -1
		if r := c.RolloutOf(tt.model, tt.tenant); r != nil {
			got = *r.Percent
		}
		if got != tt.want {
			t.Errorf("%s, %s: %d, want %d", tt.model, tt.tenant, got, tt.want)
		}
	}
}

// What is printed has no secrets, and can be read again.
func TestYAMLHidesSecrets(t *testing.T) {
	const key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	t.Setenv("TEST_TOKEN", "s3cret")
	c := testConfig(t, `
store_url: postgres://user:s3cret@host:5432/db?sslmode=disable&sslpassword=s3cret
responses: {seal_keys: [`+key+`]}
tools:
  servers:
  - {label: a, url: "https://a/mcp?token=s3cret", headers: {Authorization: "Bearer s3cret ${TEST_TOKEN}"}}
  - {label: b, command: [run], env: {KEY: s3cret}}
`)
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "s3cret") || strings.Contains(string(text), key) {
		t.Errorf("a secret is shown:\n%s", text)
	}
	for _, want := range []string{
		"store_url: postgres://user:hidden@host:5432/db?sslmode=disable&sslpassword=hidden",
		"- '[hidden] sha256:905f28de'", "url: https://a/mcp?hidden", "Authorization: '[hidden] ${TEST_TOKEN}'", "KEY: '[hidden]'",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("there is no %s:\n%s", want, text)
		}
	}
	for raw, want := range map[string]string{"redis:user:s3cret@host": "redis:" + hidden, "sqlite:data.db": "sqlite:data.db", "sqlite:/data.db": "sqlite:/data.db"} {
		if got := hideSecrets(raw, false); got != want {
			t.Errorf("%s is shown as %s, want %s", raw, got, want)
		}
	}
	if c.Tools.Servers[1].Env["KEY"] != "s3cret" || c.Responses.SealKeys[0] != key {
		t.Error("the configuration itself has changed")
	}
	if _, err := Parse("printed", text); err != nil {
		t.Error(err)
	}
}

// The hash depends on every value that is shown.
func TestHash(t *testing.T) {
	hash := func(more string) uint64 {
		h, err := testConfig(t, more).Hash()
		if err != nil || h == 0 || h >= 1<<48 {
			t.Fatalf("%d, %v", h, err)
		}
		return h
	}
	if hash("") != hash("date: utc") {
		t.Error("two equal configurations have two hashes")
	}
	for _, more := range []string{"date: none", "responses: {seal_keys: [AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=]}", "rollout: [{percent: 5}]"} {
		if hash("") == hash(more) {
			t.Errorf("%s has the same hash", more)
		}
	}
	if hash("rollout: [{percent: 5}]") == hash("rollout: [{percent: 6}]") {
		t.Error("two percentages have the same hash")
	}
}
