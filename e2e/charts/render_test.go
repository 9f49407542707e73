//go:build charts

package charts

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const release = "harmony"

// tool is the path of a tool that "make test-charts" provides.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../.bin/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if path, err = exec.LookPath(name); err != nil {
		t.Fatalf("%s is missing: run make test-charts", name)
	}
	return path
}

// run runs a command and returns its standard output, and its standard error.
func run(t *testing.T, name string, args ...string) (stdout []byte, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.Bytes(), errs.String(), err
}

// image are the values that every installation has to set.
const image = "image.repository=registry.example.com/envoy-harmony,image.tag=1.2.3"

// helm runs Helm with a file of values and the image.
func helm(t *testing.T, values, command string, args ...string) (stdout []byte, stderr string, err error) {
	t.Helper()
	return run(t, tool(t, "helm"), append([]string{command, "--values", values, "--set", image}, args...)...)
}

// template renders the chart with a file of values.
func template(t *testing.T, values string, args ...string) (text []byte, stderr string, err error) {
	t.Helper()
	return helm(t, values, "template", append([]string{release, chart, "--namespace", "models"}, args...)...)
}

// render renders the chart with values in YAML, which must be correct.
func render(t *testing.T, values string) []byte {
	t.Helper()
	text, stderr, err := template(t, write(t, values))
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	return text
}

// write writes values to a file and returns its path.
func write(t *testing.T, values string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// objects parses rendered objects.
func objects(t *testing.T, text []byte) (all []object) {
	t.Helper()
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		o := object{}
		if err := yaml.Unmarshal(part, &o); err != nil {
			t.Fatalf("%v:\n%s", err, part)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	return all
}

// find returns the object of a kind and a name.
func find(t *testing.T, all []object, kind, name string) object {
	t.Helper()
	i := slices.IndexFunc(all, func(o object) bool { return o["kind"] == kind && at(o, "metadata.name") == name })
	if i < 0 {
		t.Fatalf("there is no %s %s", kind, name)
	}
	return all[i]
}

// cases are the folders of testdata with values.
func cases(t *testing.T) (dirs []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*/values.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	for _, file := range files {
		dirs = append(dirs, filepath.Dir(file))
	}
	return dirs
}

func TestLint(t *testing.T) {
	for _, dir := range cases(t) {
		if out, stderr, err := helm(t, dir+"/values.yaml", "lint", "--strict", chart); err != nil {
			t.Errorf("%s: %v\n%s%s", dir, err, out, stderr)
		}
	}
}

// TestRenders compares what the chart makes of the cases with golden files, and
// validates it.
func TestRenders(t *testing.T) {
	for _, dir := range cases(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			text, stderr, err := template(t, dir+"/values.yaml")
			if err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			golden(t, dir+"/rendered.yaml", text)
			checkConfig(t, objects(t, text))
		})
	}
	t.Run("kubectl-validate", func(t *testing.T) {
		files, err := filepath.Glob("testdata/*/rendered.yaml")
		if err != nil {
			t.Fatal(err)
		}
		args := append([]string{"--version", "1.30", "--local-crds", crds(t)}, files...)
		if out, stderr, err := run(t, tool(t, "kubectl-validate"), args...); err != nil {
			t.Errorf("%v\n%s%s", err, out, stderr)
		}
	})
}

// crds is the folder of the custom resource definitions, which run.sh downloads.
func crds(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CHARTS_CRDS")
	if dir == "" {
		dir = "../../.bin/crds"
	}
	if files, err := filepath.Glob(dir + "/*.yaml"); err != nil || len(files) == 0 {
		t.Fatalf("%s has no CRDs: run make test-charts", dir)
	}
	return dir
}

// checkConfig requires that the program accepts the rendered configuration with the
// rendered environment, and that no ConfigMap has a secret.
func checkConfig(t *testing.T, all []object) {
	t.Helper()
	for _, o := range all {
		if text, _ := json.Marshal(o); o["kind"] == "ConfigMap" && bytes.Contains(text, []byte("secret-")) {
			t.Errorf("the ConfigMap %s has a secret", at(o, "metadata.name"))
		}
		for _, v := range variables(o) {
			t.Setenv(v, "value")
		}
	}

	name := release + "-envoy-harmony"
	if slices.ContainsFunc(all, func(o object) bool { return at(o, "metadata.name") == "harmony" }) {
		name = "harmony"
	}

	text := at(find(t, all, "ConfigMap", name), "data").(object)["config.yaml"].(string)
	c, err := config.Parse("config.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// variables are the names of the environment variables in an object.
func variables(node any) (names []string) {
	switch node := node.(type) {
	case object:
		if env, ok := node["env"].([]any); ok {
			for _, v := range env {
				names = append(names, v.(object)["name"].(string))
			}
		}
		for _, child := range node {
			names = append(names, variables(child)...)
		}
	case []any:
		for _, child := range node {
			names = append(names, variables(child)...)
		}
	}
	return names
}

// The grace period follows from the drain.
func TestGracePeriod(t *testing.T) {
	for _, tt := range []struct {
		delay, timeout string
		want           float64
	}{
		{"10s", "2m", 170},
		{"0s", "30s", 70},
		{"1.5s", "1h1m1s", 3703},
		{"500ms", "500ms", 42},
	} {
		all := objects(t, render(t, "engines: [{kind: vllm}]\nconfig: {drain_delay: "+tt.delay+", drain_timeout: "+tt.timeout+"}\n"))
		d := find(t, all, "Deployment", "harmony-envoy-harmony")
		if got := at(d, "spec.template.spec.terminationGracePeriodSeconds"); got != tt.want {
			t.Errorf("%s and %s: %v s, want %v", tt.delay, tt.timeout, got, tt.want)
		}
	}
}

// Pods restart if something changes that the filter cannot take over, and only then.
func TestRestartChecksum(t *testing.T) {
	checksum := func(values string) any {
		d := find(t, objects(t, render(t, values)), "Deployment", "harmony-envoy-harmony")
		return at(d, "spec.template.metadata.annotations").(object)["envoy-harmony/restart-checksum"]
	}

	const vllm, sglang = "engines: [{kind: vllm, service: {name: a, port: 1}}]\n", "engines: [{kind: sglang, service: {name: a, port: 1}}]\n"
	for _, tt := range []struct {
		name, before, after string
		restart             bool
	}{
		{"engine", vllm, sglang, false},
		{"limit", vllm, vllm + "config: {limits: {max_tools: 3}}", false},
		{"port", vllm, vllm + "service: {port: 9102}", true},
		{"share of records", vllm, vllm + "config: {record: {percent: 1}}", false},
		{"folder of records", vllm, vllm + "records: {enabled: true}", true},
		{"page of records", vllm, vllm + "inspector: {enabled: true, existingSecret: s}", true},
		{"secret of the chart", vllm, vllm + "store: {url: 'redis://a'}", true},
		{"engine of Envoy", "mode: sidecar\n" + vllm, "mode: sidecar\n" + sglang, true},
		{"effort beside Envoy", "mode: sidecar\n" + vllm, "mode: sidecar\n" + vllm + "config: {model_defaults: {effort: low}}", false},
	} {
		if got := checksum(tt.before) != checksum(tt.after); got != tt.restart {
			t.Errorf("%s: restart %v, want %v", tt.name, got, tt.restart)
		}
	}
}

// The patch for other pods is one that Kubernetes accepts: merged into a Deployment, it
// leaves Envoy as it is and adds the filter.
func TestPatch(t *testing.T) {
	all := objects(t, readFile(t, "testdata/sidecar-patch/rendered.yaml"))
	patch := object{}
	if err := yaml.UnmarshalStrict([]byte(at(find(t, all, "ConfigMap", "harmony-envoy-harmony-patch"), "data").(object)["patch.yaml"].(string)), &patch); err != nil {
		t.Fatal(err)
	}

	pod := at(patch, "spec.template.spec").(object)
	filter := pod["initContainers"].([]any)[0].(object)
	envoy := pod["containers"].([]any)[0].(object)

	deployment := object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "proxy"},
		"spec": object{
			"selector": object{"matchLabels": object{"a": "b"}},
			"template": object{"metadata": object{"labels": object{"a": "b"}}, "spec": pod},
		},
	}

	envoy["image"] = "envoy"
	text, err := yaml.Marshal(deployment)
	if err != nil {
		t.Fatal(err)
	}
	if out, stderr, err := run(t, tool(t, "kubectl-validate"), "--version", "1.30", write(t, string(text))); err != nil {
		t.Errorf("%v\n%s%s", err, out, stderr)
	}

	if filter["restartPolicy"] != "Always" || envoy["name"] != "proxy" {
		t.Errorf("the filter is no sidecar container, or Envoy's container is not named: %v, %v", filter["restartPolicy"], envoy["name"])
	}

	if diff := cmp.Diff(mountPath(filter, "envoy-harmony-sockets"), mountPath(envoy, "envoy-harmony-sockets")); diff != "" {
		t.Errorf("filter and Envoy do not share the folder of the sockets:\n%s", diff)
	}
}

// In a cluster with IPv6 only, Envoy listens at its address.
func TestIPv6(t *testing.T) {
	all := objects(t, render(t, engine+"mode: sidecar\nsidecar: {envoy: {address: '::'}}\n"))
	bootstrap := at(find(t, all, "Deployment", "harmony-envoy-harmony"), "spec.template.spec.initContainers").([]any)[0].(object)
	if args := bootstrap["args"].([]any); !slices.Contains(args, any("--listen=[::]:10000")) {
		t.Errorf("arguments %v", args)
	}
}

func mountPath(container object, volume string) any {
	for _, m := range container["volumeMounts"].([]any) {
		if m.(object)["name"] == volume {
			return m.(object)["mountPath"]
		}
	}
	return nil
}

// The notes have the three commands that prove that the installation works.
func TestNotes(t *testing.T) {
	for values, want := range map[string][]string{
		engine + looped + "websocket: {enabled: true}": {"only the gateway may\nreach it. Set networkPolicy.enabled"},
		"engines: [{kind: vllm}]": {
			"rollout status deployment/harmony-envoy-harmony", "ask --url URL-OF-YOUR-GATEWAY/v1", "grep harmony_requests_total",
			"There is no loopback listener",
		},
		engine + "mode: sidecar\nsidecar: {envoy: {tls: {existingSecret: s}}}": {"Clients use https://harmony-envoy-harmony.models:443/v1, by a name that the certificate has.", "ask --url https://NAME-IN-THE-CERTIFICATE/v1"},
		engine + "inspector: {enabled: true, existingSecret: page}": {
			"Its token is in the Secret page.", "kubectl -n models port-forward deployment/harmony-envoy-harmony 9003", "http://127.0.0.1:9003/inspector/",
			"Nothing is recorded: set config.record.percent or config.record.header.",
		},
		engine + "records: {enabled: true}\nconfig: {record: {header: x-record, content: true}}": {"Records have the texts of prompts, replies and tools"},
		"mode: sidecar\nengines: [{kind: vllm, service: {name: a, port: 1}}]":                    {"rollout status", "helm test -n models harmony --logs", "app.kubernetes.io/component=filter", "/pods/POD:9003/proxy/metrics"},
		string(readFile(t, "testdata/sidecar-patch/values.yaml")):                                {"kubectl -n models patch deployment ENVOY", "envoy-harmony envoy-config"},
	} {
		out, stderr, err := helm(t, write(t, values), "install", release, chart, "--dry-run=client", "--namespace", "models")
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}

		_, notes, _ := strings.Cut(string(out), "\nNOTES:\n")
		for _, text := range want {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: the notes do not have %q:\n%s", values, text, notes)
			}
		}
	}
}

// The question of helm test is for a host that the route takes.
func TestQuestionHost(t *testing.T) {
	const gateway = "engines: [{kind: vllm, service: {name: a, port: 1}}]\ngateway: {provider: envoyGateway, name: public, create: true"
	for values, want := range map[string]string{
		gateway + "}": "",
		gateway + ", hostnames: [api.example.com, b]}":                               "--header=Host=api.example.com",
		gateway + ", hostnames: ['*.example.com']}":                                  "--header=Host=test.example.com",
		gateway + ", hostnames: [api.example.com]}\ntest: {url: 'https://a.com/v1'}": "",
	} {
		pod := find(t, objects(t, render(t, values)), "Pod", "harmony-envoy-harmony-test")
		got := ""
		for _, arg := range at(pod, "spec.containers").([]any)[0].(object)["args"].([]any) {
			if strings.HasPrefix(arg.(string), "--header=Host") {
				got = arg.(string)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", values, got, want)
		}
	}
}

// Each file that the configuration of TLS names is in a volume of the pod, and a client
// CA of the values is what its ConfigMap has.
func TestTLSFiles(t *testing.T) {
	for _, dir := range []string{"testdata/full", "testdata/existing-secrets"} {
		all := objects(t, readFile(t, dir+"/rendered.yaml"))
		settings := object{}
		if err := yaml.Unmarshal([]byte(find(t, all, "ConfigMap", "harmony-envoy-harmony")["data"].(object)["config.yaml"].(string)), &settings); err != nil {
			t.Fatal(err)
		}

		pod := at(find(t, all, "Deployment", "harmony-envoy-harmony"), "spec.template.spec").(object)
		toLoopback, _ := settings["loopback_tls"].(object)
		for key, path := range toLoopback {
			if volumeAt(pod, filepath.Dir(path.(string))) == nil {
				t.Errorf("%s: loopback_tls.%s: no volume has %s", dir, key, path)
			}
		}

		for key, path := range settings["tls"].(object) {
			if source := volumeAt(pod, filepath.Dir(path.(string))); source == nil {
				t.Errorf("%s: %s: no volume has %s", dir, key, path)
			} else if name := at(source, "configMap"); name != nil && dir == "testdata/full" {
				text := find(t, all, "ConfigMap", name.(object)["name"].(string))["data"].(object)[filepath.Base(path.(string))].(string)
				if !strings.HasPrefix(text, "-----BEGIN CERTIFICATE-----\n") {
					t.Errorf("%s: %s is %q", dir, key, text)
				}
			}
		}
	}
}

// volumeAt is the volume that the filter has at a path.
func volumeAt(pod object, path string) object {
	for _, m := range pod["containers"].([]any)[0].(object)["volumeMounts"].([]any) {
		for _, v := range pod["volumes"].([]any) {
			if m.(object)["mountPath"] == path && m.(object)["name"] == v.(object)["name"] {
				return v.(object)
			}
		}
	}
	return nil
}

// The runtime of the filter is held to a part of the container's memory, unless the
// environment says otherwise. The limits follow from it.
func TestMemoryLimit(t *testing.T) {
	const base = "engines: [{kind: vllm, service: {name: a, port: 1}}]\n"
	for values, want := range map[string]string{
		"":                                                `{name: GOMEMLIMIT, value: "1503238553"}`,
		"resources: {limits: {memory: 512Mi}}":            `{name: GOMEMLIMIT, value: "375809638"}`,
		"resources: {limits: {memory: 1.5Gi}}":            `{name: GOMEMLIMIT, value: "1127428915"}`,
		"resources: {limits: {memory: 500M}}":             `{name: GOMEMLIMIT, value: "350000000"}`,
		"resources: {limits: {memory: 1000000000}}":       `{name: GOMEMLIMIT, value: "700000000"}`,
		"resources: {limits: {memory: null}}":             "",
		"extraEnv: [{name: GOMEMLIMIT, value: 1GiB}]":     "value: 1GiB",
		"extraEnv: [{name: GOMEMLIMIT, value: \"1GiB\"}]": "value: 1GiB",
	} {
		out, stderr, err := helm(t, write(t, base+values), "template", release, chart)
		if err != nil {
			t.Fatalf("%s: %s", values, stderr)
		}
		if n := strings.Count(string(out), "GOMEMLIMIT"); want == "" && n != 0 || want != "" && (n != 1 || !strings.Contains(string(out), want)) {
			t.Errorf("%s: GOMEMLIMIT is there %d times, without %s", values, n, want)
		}
	}
}
