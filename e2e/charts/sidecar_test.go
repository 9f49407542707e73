//go:build charts

package charts

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// sidecar is what the chart renders in mode sidecar, running: an Envoy with the bootstrap
// of the container that writes it, and the filter.
type sidecar struct {
	pod
	all     []object
	clients int // the port of Envoy
	filter  *process
}

// startSidecar starts the processes of a release. There is a folder for pairs of what is
// replaced in their arguments and files: what a pod has, and what there is here.
func startSidecar(t *testing.T, values string, here func(dir string) []string) *sidecar {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "chart") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	s := &sidecar{clients: freePort(t)}
	admin, envoyAdmin := freePort(t), freePort(t)
	ports := fmt.Sprintf("adminPort=%d,sidecar.envoy.port=%d", admin, s.clients)
	text, stderr, err := template(t, write(t, "mode: sidecar\n"+values), "--set", ports)
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	s.all = objects(t, text)

	replaced := append(here(dir), "/run/envoy-harmony", dir, "/etc/envoy-harmony/", dir+"/", "127.0.0.1:9901", fmt.Sprintf("127.0.0.1:%d", envoyAdmin))
	s.pod = pod{
		program: program(t), here: strings.NewReplacer(replaced...),
		spec: at(find(t, s.all, "Deployment", "harmony-envoy-harmony"), "spec.template.spec").(object),
	}
	for name, text := range find(t, s.all, "ConfigMap", "harmony-envoy-harmony")["data"].(object) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s.here.Replace(text.(string))), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if out, stderr, err := run(t, s.program, s.args(t, "initContainers", "bootstrap")...); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	launch(t, binary, s.args(t, "initContainers", "envoy")...)
	s.filter = launch(t, s.program, s.args(t, "containers", "envoy-harmony")...)
	return s
}

// TestSidecarLive runs what the chart renders in mode sidecar: the container that writes
// Envoy's bootstrap, a real Envoy with it, the filter, and helm test's question. Then
// the filter gets SIGTERM.
func TestSidecarLive(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Envoy")
	}
	engine := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	launch(t, engineSim(t), "--listen", engine)
	s := startSidecar(t, `engines: [{kind: vllm, urls: ["http://`+engine+`"], healthPath: /health}]`, func(string) []string { return nil })

	base := fmt.Sprintf("http://127.0.0.1:%d", s.clients)
	service := "http://harmony-envoy-harmony.models.svc.cluster.local:80"
	question := &pod{here: strings.NewReplacer(service, base), spec: find(t, s.all, "Pod", "harmony-envoy-harmony-test")["spec"].(object)}
	out, stderr, err := run(t, s.program, question.args(t, "containers", "ask")...)
	if err != nil || !strings.Contains(string(out), "Hello there friend.") {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}

	checkOtherModel(t, s.filter, base)

	if closes(t, base) {
		t.Error("Envoy closes connections before the filter ends")
	}
	if err := s.filter.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !closes(t, base); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Envoy does not close its clients' connections when the filter begins to end")
		}
	}
}

// counted is the command by which the checklist of docs/gateways counts the answers that the filter has made itself for
// another model.
var counted = regexp.MustCompile(`(?m)^kubectl .* (grep -c .*no-such-model.*)$`)

// checkOtherModel asks for another model, as the checklist does. Its command finds no answer of the filter, though the
// filter warns of the name; for the model of the first question it finds one.
func checkOtherModel(t *testing.T, filter *process, base string) {
	t.Helper()
	command := counted.FindSubmatch(readFile(t, "../../docs/gateways/README.md"))
	if command == nil {
		t.Fatal("the checklist has no command")
	}
	count := func(model string) string {
		text := strings.ReplaceAll(string(command[1]), "no-such-model", model)
		grep := exec.CommandContext(t.Context(), "bash", "-c", text)
		grep.Stdin = strings.NewReader(filter.String())
		out, _ := grep.Output() // its status is 1 if there is no line
		return strings.TrimSpace(string(out))
	}

	const question = `{"model":"no-such-model","messages":[{"role":"user","content":"hi"}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/chat/completions", strings.NewReader(question))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()

	filter.await(t, func(line string) string {
		if strings.Contains(line, "A request names the model") {
			return line
		}
		return ""
	})
	if got := count("no-such-model"); got != "0" {
		t.Errorf("the command finds %q lines of another model", got)
	}

	// The line of a request can follow its reply.
	for deadline := time.Now().Add(patience); count("gpt-oss-120b") != "1"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the command does not find the first question:\n%s", filter)
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
