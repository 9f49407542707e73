package upgrade

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// release is a program of one version.
type release struct{ name, binary string }

// releases returns the earlier version and this one.
func releases(t *testing.T) (earlier, current release) {
	t.Helper()
	binary := os.Getenv("UPGRADE_FROM")
	if binary == "" {
		t.Skip("UPGRADE_FROM is not set: run make test-upgrade")
	}

	built, err := stack.BuildProgram()
	if err != nil {
		t.Fatal(err)
	}
	return release{"earlier", binary}, release{"current", built}
}

// command runs a command of the program to its end, and returns what it prints.
func (r release) command(t *testing.T, env []string, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, log strings.Builder
	cmd := exec.CommandContext(t.Context(), r.binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &log
	// Its status is what the test asks for.
	_ = cmd.Run()
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}

// The seal keys: each version seals with one of its own, and opens those of both.
var sealKeys = map[string][]string{
	"earlier": {stack.SealKey, "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="},
	"current": {"ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=", stack.SealKey},
}

// Models: the checks have an engine of their own, whose records the load would push out.
const (
	checkModel  = stack.VLLMModel
	budgetModel = "openai/gpt-oss-120b"
	loadModel   = stack.SGLangModel
)

// places is how many filters Envoy knows: two that serve, two for the version that follows.
const places = 4

// fleet is an Envoy with places for filters of several versions.
type fleet struct {
	*stack.Dataplane
	t      *testing.T
	gate   *gate
	docs   *stack.ToolServer
	config map[string]any
	folder string

	// shared says that all filters have one store, and that it survives them.
	shared bool

	addresses [places]string
	running   [places]*stack.Program
	requests  int
}

// newFleet starts an engine and an Envoy, with the bootstrap that a version prints.
func newFleet(t *testing.T, printer release, store string) *fleet {
	t.Helper()
	log := stack.LogOf(t)
	log.Quiet = true
	f := &fleet{t: t, gate: newGate(), docs: stack.NewToolServer(t), folder: t.TempDir()}
	f.shared = store != "memory:"

	sim := stack.StartSim(t, log)
	front := httptest.NewServer(f.gate.wrap(stack.Forward(t, sim)))
	t.Cleanup(front.Close)
	// Before the server is closed, which waits for its requests.
	t.Cleanup(f.gate.open)

	f.config = map[string]any{
		"loopback": "unix://" + filepath.Join(stack.SocketDir(t), "loopback"), "store_url": store,
		"engines": []any{
			map[string]any{"kind": "vllm", "urls": []string{front.URL}},
			map[string]any{"kind": "sglang", "urls": []string{stack.StartSim(t, log)}},
		},
		"models": []any{
			map[string]any{"match": "=" + checkModel, "engine": "vllm"},
			map[string]any{"match": "=" + budgetModel, "engine": "vllm"},
		},
		"tools": map[string]any{"servers": []any{map[string]any{"label": "docs", "url": f.docs.URL}}},
		// Held streams end when the test lets them, however slow the machine is.
		"drain_timeout": "5m",
	}
	if !lacks(t, "budgets") {
		// A window that does not end in the test: its ends are 366 days apart.
		f.config["token_budgets"] = []any{map[string]any{
			"name": "year", "match": "=" + budgetModel, "tokens": 1_000_000, "window": "8784h",
		}}
	}

	for i := range f.addresses {
		f.addresses[i] = "127.0.0.1:" + stack.FreePort(t)
	}

	bootstrap, errors, exit := printer.command(t, nil, "envoy-config", "--config", f.file(printer), "--listen",
		"127.0.0.1:0", "--envoy-admin", "127.0.0.1:0", "--filter", f.addresses[0])
	if exit != 0 {
		t.Fatalf("envoy-config of the %s version: %s", printer.name, errors)
	}

	f.Dataplane = (&stack.Program{Logs: log}).Envoy(t, f.everyPlace(bootstrap))
	f.Sim = sim
	return f
}

// everyPlace adds the other places to a bootstrap, which has one filter.
func (f *fleet) everyPlace(bootstrap string) []byte {
	f.t.Helper()
	endpoint := func(address string) string {
		_, port, _ := strings.Cut(address, ":")
		return "        - endpoint: {address: {socket_address: {address: \"127.0.0.1\", port_value: " + port + "}}}\n"
	}

	var all strings.Builder
	for _, address := range f.addresses {
		all.WriteString(endpoint(address))
	}
	if !strings.Contains(bootstrap, endpoint(f.addresses[0])) {
		f.t.Fatalf("the bootstrap has no %s", endpoint(f.addresses[0]))
	}
	return []byte(strings.Replace(bootstrap, endpoint(f.addresses[0]), all.String(), 1))
}

// file writes the configuration of a version, and returns its name.
func (f *fleet) file(r release) string {
	f.t.Helper()
	f.config["responses"] = map[string]any{"seal_keys": sealKeys[r.name]}
	f.config["record"] = map[string]any{
		"percent": 100, "content": true, "max_record_bytes": 64 << 20, "folder": f.records(r),
	}
	text, err := json.Marshal(f.config)
	if err != nil {
		f.t.Fatal(err)
	}

	name := filepath.Join(f.folder, r.name+".yaml")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return name
}

// records is the folder of the records of a version.
func (f *fleet) records(r release) string { return filepath.Join(f.folder, "records-"+r.name) }

// start starts a filter at a place, and waits until Envoy finds it healthy.
func (f *fleet) start(r release, place int) {
	f.t.Helper()
	f.running[place] = stack.Launch(f.t, f.Logs, "serving", exec.CommandContext(f.t.Context(), r.binary, "serve",
		"--config", f.file(r), "--listen", f.addresses[place], "--admin", "127.0.0.1:0"))
	f.awaitHealth(place, true)
}

// drain ends the filter at a place as an orchestrator does. It takes no requests from then on.
func (f *fleet) drain(place int) {
	f.t.Helper()
	if err := f.running[place].Process.Signal(syscall.SIGTERM); err != nil {
		f.t.Fatal(err)
	}
	f.awaitHealth(place, false)
}

// ended waits for the end of a filter that is drained.
func (f *fleet) ended(place int) {
	f.t.Helper()
	p := f.running[place]
	stack.Receive(f.t, p.Ended, "the end of the filter at "+p.Address)
	if p.Exit != 0 {
		f.t.Errorf("the filter at %s ends with the status %d", p.Address, p.Exit)
	}
}

// awaitHealth waits until Envoy finds a filter healthy, or not.
func (f *fleet) awaitHealth(place int, healthy bool) {
	f.t.Helper()
	// A line of Envoy's /clusters: cluster, endpoint, what it is about, value.
	line := fmt.Sprintf("envoy_harmony::%s::health_flags::healthy\n", f.addresses[place])
	stack.Eventually(f.t, fmt.Sprintf("health %t of %s", healthy, f.addresses[place]), func() bool {
		return strings.Contains(stack.AdminPage(f.t, f.Admin+"/clusters"), line) == healthy
	})
}

// id returns the id of the next request.
func (f *fleet) id() string {
	f.requests++
	return fmt.Sprintf("check-%d", f.requests)
}

// send sends JSON, and returns the status and the reply.
func (f *fleet) send(t *testing.T, method, path, body, id string) (status int, reply string) {
	t.Helper()
	resp := f.Do(t, method, path, "application/json", strings.NewReader(body), "X-Request-Id", id)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v, after %s", method, path, err, text)
	}
	return resp.StatusCode, string(text)
}

// ask sends a request that has to succeed, and returns the reply and the engine's last call.
func (f *fleet) ask(t *testing.T, path, body string) (gjson.Result, stack.EngineRequest) {
	t.Helper()
	id := f.id()
	status, reply := f.send(t, "POST", path, body, id)
	if status != 200 {
		t.Fatalf("%s: status %d: %s, to %s", path, status, reply, body)
	}
	f.AwaitEngine(t, id, stack.StateFinished)
	calls := f.EngineRequests(t, id)
	return gjson.Parse(reply), calls[len(calls)-1]
}

// read reads an object that has to be there.
func (f *fleet) read(t *testing.T, path string) string {
	t.Helper()
	status, reply := f.send(t, "GET", path, "", f.id())
	if status != 200 {
		t.Fatalf("GET %s: status %d: %s", path, status, reply)
	}
	return reply
}
