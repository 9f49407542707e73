package operations

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// configMap is a configuration file that is replaced as Kubernetes replaces one of a
// ConfigMap: it is a symbolic link through a folder's link, which is replaced.
type configMap struct {
	file string
	n    int
}

func (m *configMap) replace(t *testing.T, text string) {
	t.Helper()
	dir := filepath.Dir(m.file)
	m.n++
	version := fmt.Sprintf("..v%d", m.n)
	link := filepath.Join(dir, "..data_tmp")
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, version), 0o700),
		os.WriteFile(filepath.Join(dir, version, "config.yaml"), []byte(text), 0o600),
		os.Symlink(version, link),
		os.Rename(link, filepath.Join(dir, "..data")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if m.n == 1 {
		if err := os.Symlink(filepath.Join("..data", "config.yaml"), m.file); err != nil {
			t.Fatal(err)
		}
	}
}

// gate holds the answers to model calls of one request id after their first bytes.
type gate struct {
	id      string
	held    chan struct{} // receives for each call that is held
	release chan struct{}
}

func (g *gate) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-request-id") == g.id {
			w = &gatedWriter{ResponseWriter: w, gate: g}
		}
		next.ServeHTTP(w, r)
	})
}

type gatedWriter struct {
	http.ResponseWriter
	gate *gate
	once sync.Once
}

func (w *gatedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *gatedWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.once.Do(func() {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		w.gate.held <- struct{}{}
		<-w.gate.release
	})
	return n, err
}

// startProgram runs Envoy with the program's serve command, which follows a file.
func startProgram(t *testing.T, file string, g *gate) (d *stack.Dataplane, metrics string) {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}

	dir := stack.SocketDir(t)

	program := filepath.Join(dir, "envoy-harmony")
	if out, err := exec.CommandContext(t.Context(), "go", stack.BuildArgs(program, "../cmd/envoy-harmony")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	log := stack.LogOf(t)
	d = &stack.Dataplane{Upstream: &stack.Upstream{}, Logs: log, Client: stack.NewClient(t)}
	d.Sim = stack.StartSim(t, log)

	others := httptest.NewServer(d.Upstream)
	t.Cleanup(others.Close)
	engine := httptest.NewServer(g.wrap(stack.Forward(t, d.Sim)))
	t.Cleanup(engine.Close)

	cfg := stack.NewConfig(t, engine.URL, func(c *config.Config) { c.Loopback = "unix://" + filepath.Join(dir, "loopback") })
	socket := "unix://" + filepath.Join(dir, "filter")
	cmd := exec.CommandContext(t.Context(), program, "serve", "--config", file, "--listen", socket, "--admin", "127.0.0.1:0", "--set", "loopback="+cfg.Loopback)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	var reading sync.WaitGroup
	t.Cleanup(func() {
		reading.Wait()
		_ = cmd.Wait() // ended by the test's context
	})

	serving := make(chan string, 1)
	reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(log.Named("filter"), lines.Text())
			var line struct{ Msg, Admin string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				serving <- line.Admin
			}
		}
	})

	metrics = "http://" + stack.Receive(t, serving, "the filter serves") + "/metrics"
	d.URL, d.Admin = stack.StartEnvoy(t, binary, cfg, socket, others.URL, stack.Options{}, log)
	return d, metrics
}

// awaitReloads waits until so many changes of the file have had an outcome.
func awaitReloads(t *testing.T, metrics, outcome string, want int) {
	t.Helper()
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^harmony_config_reloads_total\{outcome="%s"\} %d$`, outcome, want))
	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(10 * time.Millisecond) {
		if line.MatchString(stack.AdminPage(t, metrics)) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %d reloads are %s", want, outcome)
		}
	}
}

// A change of the file holds for the next request. A stream that runs ends with the
// configuration that it began with. A file with errors changes nothing.
func TestReload(t *testing.T) {
	const head = "engines: [{kind: sglang}, {kind: vllm}]\nreload_interval: 10ms\n"
	const question = "THINK Hm.\nSAY one two three four five"
	file := &configMap{file: filepath.Join(t.TempDir(), "config.yaml")}
	file.replace(t, head+"reasoning_fields: reasoning\nmodel_defaults: {effort: low}\n")
	g := &gate{id: "running", held: make(chan struct{}, 1), release: make(chan struct{})}
	d, metrics := startProgram(t, file.file, g)

	running := make(chan string, 1)
	go func() {
		_, text := d.Chat(t, stack.SGLangModel, question, `,"stream":true`, "x-request-id", g.id)
		running <- text
	}()
	stack.Receive(t, g.held, "the engine answers")

	file.replace(t, head+"reasoning_fields: reasoning_content\nmodel_defaults: {effort: high, engine: vllm}\n")
	awaitReloads(t, metrics, "ok", 1)
	checkNew := func(id string) {
		t.Helper()
		_, text := d.Chat(t, stack.SGLangModel, question, "", "x-request-id", id)
		if !strings.Contains(text, `"reasoning_content":"Hm."`) || strings.Contains(text, `"reasoning":`) {
			t.Errorf("the reply is not of the new configuration: %s", text)
		}
		if r := d.EngineRequests(t, id); len(r) != 1 || r[0].Path != "/v1/completions" || !strings.Contains(r[0].Prompt, "Reasoning: high") {
			t.Errorf("the model call is not of the new configuration: %+v", r)
		}
	}
	checkNew("second")

	close(g.release)
	text := stack.Receive(t, running, "the end of the running stream")
	if !strings.HasSuffix(text, "data: [DONE]\n\n") || !strings.Contains(text, `"reasoning":"`) || strings.Contains(text, "reasoning_content") {
		t.Errorf("the running stream is not of the configuration that it began with: %s", text)
	}
	if r := d.EngineRequests(t, g.id); len(r) != 1 || r[0].Path != "/generate" || !strings.Contains(r[0].Prompt, "Reasoning: low") || r[0].State != stack.StateFinished {
		t.Errorf("its model call: %+v", r)
	}

	file.replace(t, head+"reasoning_fields: none\n")
	awaitReloads(t, metrics, "refused", 1)
	checkNew("third")

	d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "the upstream")
	})
	file.replace(t, head+"rollout: [{percent: 0}]\n")
	awaitReloads(t, metrics, "ok", 2)
	if _, text := d.Chat(t, stack.SGLangModel, question, ""); text != "the upstream" {
		t.Errorf("with a rollout to none: %s", text)
	}
	file.replace(t, head+"rollout: [{percent: 100}]\n")
	awaitReloads(t, metrics, "ok", 3)
	if _, text := d.Chat(t, stack.SGLangModel, question, ""); !strings.Contains(text, "one two three") {
		t.Errorf("with a rollout to all: %s", text)
	}
}
