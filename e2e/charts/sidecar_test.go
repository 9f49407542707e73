//go:build charts

package charts

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/envoy"
)

// pod runs the containers of a rendered pod as processes, with folders and addresses of
// this machine in place of the pod's.
type pod struct {
	program string
	here    *strings.Replacer
	spec    object
}

// args are the arguments of a container.
func (p *pod) args(t *testing.T, kind, name string) (args []string) {
	t.Helper()
	for _, c := range p.spec[kind].([]any) {
		if c.(object)["name"] != name {
			continue
		}
		for _, arg := range c.(object)["args"].([]any) {
			args = append(args, p.here.Replace(arg.(string)))
		}
		return args
	}
	t.Fatalf("there is no container %s", name)
	return nil
}

// TestSidecarLive runs what the chart renders in mode sidecar: the container that writes
// Envoy's bootstrap, a real Envoy with it, the filter, and helm test's question. Then
// the filter gets SIGTERM.
func TestSidecarLive(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Envoy")
	}
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "chart") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine, clients, admin, envoyAdmin := freePort(t), freePort(t), freePort(t), freePort(t)
	all := objects(t, render(t, fmt.Sprintf(`
mode: sidecar
engines: [{kind: vllm, urls: ["http://127.0.0.1:%d"], healthPath: /health}]
adminPort: %d
sidecar: {envoy: {port: %d}}
test: {url: "http://127.0.0.1:%d/v1"}
`, engine, admin, clients, clients)))
	config := filepath.Join(dir, "config.yaml")
	p := &pod{
		program: program(t),
		here:    strings.NewReplacer("/run/envoy-harmony", dir, "/etc/envoy-harmony/config.yaml", config, "127.0.0.1:9901", fmt.Sprintf("127.0.0.1:%d", envoyAdmin)),
		spec:    at(find(t, all, "Deployment", "harmony-envoy-harmony"), "spec.template.spec").(object),
	}
	text := p.here.Replace(find(t, all, "ConfigMap", "harmony-envoy-harmony")["data"].(object)["config.yaml"].(string))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	launch(t, engineSim(t), "--listen", fmt.Sprintf("127.0.0.1:%d", engine))
	if out, stderr, err := run(t, p.program, p.args(t, "initContainers", "bootstrap")...); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	launch(t, binary, p.args(t, "initContainers", "envoy")...)
	filter := launch(t, p.program, p.args(t, "containers", "envoy-harmony")...)

	question := &pod{here: p.here, spec: find(t, all, "Pod", "harmony-envoy-harmony-test")["spec"].(object)}
	out, stderr, err := run(t, p.program, question.args(t, "containers", "ask")...)
	if err != nil || !strings.Contains(string(out), "Hello there friend.") {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}

	base := fmt.Sprintf("http://127.0.0.1:%d", clients)
	if closes(t, base) {
		t.Error("Envoy closes connections before the filter ends")
	}
	if err := filter.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !closes(t, base); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Envoy does not close its clients' connections when the filter begins to end")
		}
	}
}

// closes reports whether Envoy closes the connection after a response.
func closes(t *testing.T, base string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/health", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return resp.Close
}
