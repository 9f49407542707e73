//go:build clients

package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// clientPatience bounds the run of one client script. That of a coding agent starts
// some 15 processes, each of which takes seconds.
const clientPatience = 8 * time.Minute

// TestClients runs the client scripts of clients/ against the data plane, compares
// what they see with what the simulated model has written and with the engine's log,
// and compares the rows with docs/clients.json. With -update it writes them there, and
// the tables of docs/clients.md.
func TestClients(t *testing.T) {
	d := stack.Start(t, stack.Options{WebSocket: true, Config: func(c *config.Config) {
		c.Responses.SealKeys = []string{stack.SealKey}
		c.Limits.KeepAlive.Duration = matrixKeepAlive
		c.Models = append(c.Models, config.Model{Match: "=" + shortModel, Engine: "vllm", ContextLength: shortLength})
	}})
	base := d.CheckedURL(t)
	upgrades := withoutPosts(t, base)

	clients := readMatrix(t)
	ran := &ranRows{rows: map[rowKey]*clientRow{}}
	t.Cleanup(func() { ran.record(t, clients) })

	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, api := range c.APIs {
				t.Run(api, func(t *testing.T) {
					row, at := newMatrixRow(t, c, api), base
					if api == "websocket" {
						at = upgrades
					}
					row.run(t, d, at)
					if !t.Failed() {
						ran.add(row.result)
					}
				})
			}
		})
	}
}

// ranRows are the rows that have passed.
type ranRows struct {
	mu   sync.Mutex
	rows map[rowKey]*clientRow
}

func (r *ranRows) add(row *clientRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[rowKey{row.Client, row.API}] = row
}

// record prints the rows that have passed and compares them with the record. With -update it
// writes them there, also if others have failed: those stay as they were.
func (r *ranRows) record(t *testing.T, clients []matrixClient) {
	t.Helper()
	fmt.Print("\n" + capabilitiesTable(inOrder(clients, r.rows)) + "\n")

	known := readRecord(t)
	for key, row := range r.rows {
		if before := known[key]; !apitest.Updating() && (before == nil || !row.same(before)) {
			t.Errorf("%s, %s is not what %s has: run the test with -update, and see what changes", key.client, key.api, clientsRecord)
		}
		known[key] = row
	}
	if !apitest.Updating() {
		return
	}

	rows := inOrder(clients, known)
	if err := stack.WriteResults(clientsRecord, rows); err != nil {
		t.Fatal(err)
	}
	stack.HoldPage(t, clientsDoc, func(page string) (string, error) { return pageWith(page, rows) })
}

// withoutPosts returns the URL of a proxy that refuses responses over HTTP, to which a client
// could fall back unseen.
func withoutPosts(t *testing.T, base string) string {
	t.Helper()
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
	}

	server := httptest.NewServer(stack.FullDuplex(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/responses" {
			http.Error(w, "This row is for WebSocket.", http.StatusTeapot)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// command returns the command that runs the script, of whose set it makes the environment.
// It may write to a folder.
func (c matrixClient) command(ctx context.Context, folder string) (*exec.Cmd, error) {
	kind, set, _ := strings.Cut(c.Set, "/")
	root, err := filepath.Abs("..")
	if err != nil {
		return nil, err
	}

	dir, program := "clients", []string{"node", c.Script}
	switch kind {
	case "go":
		program = []string{"go", "run", "./" + c.Script}
		if set == "" {
			break
		}
		tag, _, _ := strings.Cut(set, ".")
		dir, program = folder, []string{"go", "run", "-tags", tag, "./" + c.Script}
		err = goModule(c.Script, set, folder)
	case "node":
		err = install(filepath.Join("e2e/clients/node", set, "node_modules/.package-lock.json"))
		if set != "" {
			dir, err = folder, errors.Join(err, nodeFolder(filepath.Join(root, "e2e/clients/node", set), folder))
		}
	case "agents":
		program[0] = filepath.Join(root, "e2e/clients/node_modules/node/bin/node")
		err = install("e2e/clients/node_modules/.package-lock.json")
	case "python":
		program[0] = filepath.Join(root, ".venv-clients", set, "bin/python")
		err = install(filepath.Join(".venv-clients", set, ".done"))
	default:
		err = fmt.Errorf("no set %q", c.Set)
	}
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Dir = dir
	return cmd, nil
}

// installing is held while make runs: several clients share a set.
var installing sync.Mutex

// install makes an environment, a file of the Makefile, which it has already unless the
// lock file of its versions is newer.
func install(target string) error {
	installing.Lock()
	defer installing.Unlock()
	if out, err := exec.Command("make", "-C", "..", target).CombinedOutput(); err != nil {
		return fmt.Errorf("make %s: %w\n%s", target, err, out)
	}
	return nil
}

// sdkImport matches the import path of an SDK for Go, of each major version.
var sdkImport = regexp.MustCompile(`github\.com/(openai/openai-go|anthropics/anthropic-sdk-go)(/v\d+)?`)

// goModule makes a module of a Go script in a folder, with a version of the SDK:
// script/version has its go.mod and go.sum. The import paths of the SDK are changed to
// those of the version.
func goModule(script, version, folder string) error {
	lock := filepath.Join("clients", script, version)
	mod, err := os.ReadFile(filepath.Join(lock, "go.mod"))
	if err != nil {
		return err
	}
	sdk := sdkImport.Find(mod)

	err = copyFiles(filepath.Join(lock, "go.*"), folder, func(text []byte) []byte { return text })
	for _, from := range []string{"matrix", script} {
		err = errors.Join(err, copyFiles(filepath.Join("clients", from, "*.go"), filepath.Join(folder, from), func(text []byte) []byte {
			return sdkImport.ReplaceAllLiteral(text, sdk)
		}))
	}
	return err
}

// nodeFolder copies the Node scripts into a folder, because Node looks for packages beside
// a script: it finds those of an environment.
func nodeFolder(environment, folder string) error {
	scripts := filepath.Join(folder, "node")
	err := copyFiles("clients/node/*.mjs", scripts, func(text []byte) []byte { return text })
	return errors.Join(err, os.Symlink(filepath.Join(environment, "node_modules"), filepath.Join(scripts, "node_modules")))
}

// copyFiles copies the files that a pattern matches into a folder, each changed.
func copyFiles(pattern, folder string, change func([]byte) []byte) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(file)), change(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// run runs the client's script and fills the row.
func (row *matrixRow) run(t *testing.T, d *stack.Dataplane, base string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	cmd, err := row.client.command(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(clientPatience, cancel).Stop() // not while the client is installed

	base = stack.Recorded(t, base, row.client.name, row.result.Version)
	cases, err := json.Marshal(row.cases)
	if err != nil {
		t.Fatal(err)
	}

	// Own requests of a client to other hosts are not part of the test.
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "API="+row.api, "MATRIX="+string(cases), "OPENAI_BASE_URL="+base+"/v1", "OPENAI_API_KEY=none", "ANTHROPIC_BASE_URL="+base, "ANTHROPIC_API_KEY=none", "PACKAGE="+row.client.Package, "CLIENT="+row.client.name, "CLIENT_HOME="+home, "PYTHONDONTWRITEBYTECODE=1")
	if kind, _, _ := strings.Cut(row.client.Set, "/"); kind != "go" { // which has its modules there
		cmd.Env = append(cmd.Env, "HOME="+home)
	}

	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	err = cmd.Run()
	saw := map[string]gjson.Result{}
	lines := bufio.NewScanner(&stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := gjson.ParseBytes(bytes.Clone(lines.Bytes())); line.Get("capability").Exists() {
			saw[line.Get("capability").Str] = line
		}
	}

	if err = errors.Join(err, lines.Err()); err != nil {
		t.Errorf("%s: %v", row.title(), err)
	}

	requests := d.EngineRequests(t, "")
	for _, capability := range capabilities {
		row.settle(t, capability, row.judge(capability, saw, requests))
	}

	if t.Failed() {
		t.Logf("output of %s:\n%s\n%s", row.title(), &stdout, &stderr)
	}
}

// errNothingSeen is the outcome of a capability that a script does not report.
var errNothingSeen = errors.New("the script reports nothing")

// settle compares an outcome with the manifest and fills a cell of the table.
func (row *matrixRow) settle(t *testing.T, capability string, err error) {
	t.Helper()

	reason := lookup(row.client.Gaps, row.api, capability)
	switch {
	case err == nil && reason != "":
		t.Errorf("%s: %s is passed, and the manifest has it as a gap: %s", row.title(), capability, reason)
	case err != nil && reason == "":
		t.Errorf("%s: %s: %v", row.title(), capability, err)
	}

	saw := passed
	switch {
	case errors.Is(err, errNothingSeen):
		saw = absent
	case err != nil:
		saw = failed
	}
	row.result.Capabilities[capability] = saw

	if reason != "" {
		t.Logf("%s: %s: %s (%v)", row.title(), capability, reason, err)
	}
}
