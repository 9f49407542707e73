package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// written is a configuration file that is replaced as a ConfigMap is: the file is a
// symbolic link into a folder, and the folder's link is replaced.
type written struct {
	file string
	dir  string
	n    int
}

func newWritten(t *testing.T, text string) *written {
	t.Helper()
	w := &written{dir: t.TempDir()}
	w.file = filepath.Join(w.dir, "config.yaml")
	w.replace(t, text)
	if err := os.Symlink(filepath.Join("..data", "config.yaml"), w.file); err != nil {
		t.Fatal(err)
	}
	return w
}

// replace replaces the file's content.
func (w *written) replace(t *testing.T, text string) {
	t.Helper()
	w.n++
	version := filepath.Join(w.dir, "..version"+strings.Repeat("x", w.n))
	link := filepath.Join(w.dir, "..data_tmp")
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(version, "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(version), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(w.dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// startServe serves a configuration file, and returns the URL of its metrics.
func startServe(t *testing.T, file string, flags ...string) (r *running, metrics string) {
	t.Helper()
	r = start(t, append([]string{"serve", "--config", file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, flags...)...)
	return r, "http://" + r.field(t, "serving", "admin") + "/metrics"
}

// metricOf is the value of a metric as it is written.
func metricOf(t *testing.T, url, name string) string {
	t.Helper()
	_, text := get(t, http.MethodGet, url, "")
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (.*)$`).FindStringSubmatch(text)
	if m == nil {
		return "" // it has not been counted
	}
	return m[1]
}

// awaitMetric waits until a metric has a value.
func awaitMetric(t *testing.T, url, name, want string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); metricOf(t, url, name) != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is %s, want %s", name, metricOf(t, url, name), want)
		}
	}
}

const (
	reloadsOK      = `harmony_config_reloads_total{outcome="ok"}`
	reloadsRefused = `harmony_config_reloads_total{outcome="refused"}`
	lastReload     = "harmony_config_last_reload_successful"
	configHash     = "harmony_config_hash"
)

// A changed file is taken over; one with errors is refused, once, and the
// configuration before stays.
func TestReload(t *testing.T) {
	w := newWritten(t, "engines: [{kind: vllm}]\nreload_interval: 10ms\n")
	r, metrics := startServe(t, w.file, "--set", "limits.max_tools=7")
	first := metricOf(t, metrics, configHash)
	if metricOf(t, metrics, lastReload) != "1" || metricOf(t, metrics, reloadsOK) != "0" || metricOf(t, metrics, reloadsRefused) != "0" {
		t.Error("the metrics do not begin with a loaded configuration and no reload")
	}

	w.replace(t, "engines: [{kind: vllm}]\nreload_interval: 10ms\ndate: none\nlog: {level: debug}\n")
	awaitMetric(t, metrics, reloadsOK, "1")
	if line := r.await(t, &r.stderr, "the configuration was reloaded"); !strings.Contains(line, `"changed":["date","log.level"]`) {
		t.Errorf("the line does not have the keys that have changed: %s", line)
	}
	second := metricOf(t, metrics, configHash)
	if second == first {
		t.Error("the hash has not changed")
	}

	_, printed, _ := execute(t, nil, "check", "--config", w.file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--set", "limits.max_tools=7")
	// The same text, so that people can compare it: no exponent, which a float of seven digits has.
	line, _, _ := strings.Cut(printed, "\n")
	if line != "# "+configHash+" "+second || strings.Trim(second, "0123456789") != "" {
		t.Errorf("the hash is %s, and check prints %s", second, line)
	}

	w.replace(t, "engines: [{kind: vllm}]\nreload_interval: 10ms\ndate: today\nnope: 1\nlisten: 127.0.0.1:1\n")
	awaitMetric(t, metrics, reloadsRefused, "1")
	line = r.await(t, &r.stderr, "is refused")
	for _, want := range []string{"date: must be utc", "unknown key nope", `"level":"error"`} {
		if !strings.Contains(line, want) {
			t.Errorf("there is no %q in %s", want, line)
		}
	}
	if metricOf(t, metrics, lastReload) != "0" || metricOf(t, metrics, configHash) != second {
		t.Error("the metrics do not show that the configuration before is in use")
	}

	// Once the next content is refused, the one before has been read often, and
	// reported once.
	w.replace(t, "engines: [{kind: vllm}]\nreload_interval: 10ms\nstore_url: 'sqlite:/x'\n")
	awaitMetric(t, metrics, reloadsRefused, "2")
	r.await(t, &r.stderr, "store_url: cannot be changed while the process runs: restart it")
	if n := strings.Count(r.stderr.String(), "date: must be utc"); n != 1 {
		t.Errorf("the bad file was reported %d times", n)
	}

	// The flag still overrides the file.
	w.replace(t, "engines: [{kind: vllm}]\nreload_interval: 10ms\nlimits: {max_tools: 9}\n")
	awaitMetric(t, metrics, reloadsOK, "2")
	if metricOf(t, metrics, lastReload) != "1" || metricOf(t, metrics, configHash) != first {
		t.Error("the configuration is not the first one again")
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}

// SIGHUP has the file read, also where it is not read by itself, and also if it
// is the same.
func TestReloadBySignal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("engines: [{kind: vllm}]\nreload_interval: 0s\n")
	r, metrics := startServe(t, file)
	for _, c := range []struct{ text, metric, want string }{
		{"engines: [{kind: vllm}]\nreload_interval: 0s\ndate: none\n", reloadsOK, "1"},
		{"engines: [", reloadsRefused, "1"},
		{"engines: [", reloadsRefused, "2"},
		{"engines: [{kind: vllm}]\nreload_interval: 0s\n", reloadsOK, "2"},
	} {
		write(c.text)
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		awaitMetric(t, metrics, c.metric, c.want)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	awaitMetric(t, metrics, reloadsRefused, "3")
	r.await(t, &r.stderr, "no such file")
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}

// No file removes the tenants or takes everything back, and what another one removes is
// named in a warning.
func TestReloadKeepsTenants(t *testing.T) {
	const head = "engines: [{kind: vllm}]\nreload_interval: 10ms\n"
	const budget = "token_budgets: [{name: day, tokens: 5, window: 24h}]\n"
	w := newWritten(t, head+budget+"tenant_header: x-tenant\n")
	r, metrics := startServe(t, w.file)

	w.replace(t, head+budget)
	awaitMetric(t, metrics, reloadsRefused, "1")
	r.await(t, &r.stderr, "tenant_header: cannot be removed or renamed while the process runs")

	w.replace(t, "# nothing\n")
	awaitMetric(t, metrics, reloadsRefused, "2")
	r.await(t, &r.stderr, "the file is empty: write the whole file again")

	w.replace(t, head+"tenant_header: x-tenant\n")
	awaitMetric(t, metrics, reloadsOK, "1")
	line := r.await(t, &r.stderr, "the configuration was reloaded")
	for _, want := range []string{`"level":"warning"`, `"removed":["token_budgets"]`, `"changed":["token_budgets"]`} {
		if !strings.Contains(line, want) {
			t.Errorf("there is no %s in %s", want, line)
		}
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}

// With run, what Envoy's configuration was made from is fixed, and everything else
// changes.
func TestReloadOfRun(t *testing.T) {
	w := newWritten(t, "reload_interval: 10ms\n")
	r := start(t, "run", "--simulate", "--listen", "127.0.0.1:0", "--envoy-workers", "1", "--config", w.file)
	base := strings.TrimPrefix(r.await(t, &r.stdout, "ready "), "ready ")
	metrics := "http://" + r.field(t, "started", "admin") + "/metrics"
	w.replace(t, "reload_interval: 10ms\nrouting: {prefix_header: x-p}\n")
	awaitMetric(t, metrics, reloadsRefused, "1")
	r.await(t, &r.stderr, "routing.prefix_header: cannot be changed while the process runs: restart it")
	w.replace(t, "reload_interval: 10ms\nmodels: [{match: gpt-oss-20b, upstream_model: gpt-oss-120b}]\n")
	awaitMetric(t, metrics, reloadsOK, "1")
	status, text := get(t, http.MethodPost, base+"/responses", `{"model":"gpt-oss-20b","input":"SAY Hi"}`)
	if status != http.StatusOK || !strings.Contains(text, `"text":"Hi"`) {
		t.Errorf("status %d, body %s", status, text)
	}
	awaitMetric(t, metrics, `harmony_requests_total{api="responses",model="gpt-oss-120b",outcome="ok"}`, "1")
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}
