//go:build clients

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// clientPatience bounds the run of one client script. That of a coding agent starts
// some 15 processes, each of which takes seconds.
const clientPatience = 8 * time.Minute

// matrixClient is the manifest of a client, clients/NAME.json. e2e/clients/README.md
// describes the contract.
type matrixClient struct {
	name   string
	Title  string   `json:"title"`  // name in the table
	Order  int      `json:"order"`  // position in the table
	Set    string   `json:"set"`    // what runs the script: go, go/VERSION, node, agents or python/SET
	Agent  bool     `json:"agent"`  // a coding agent
	Script string   `json:"script"` // below clients/
	APIs   []string `json:"apis"`   // one row for each
	// Errors are the client's types by fault. Gaps are the reasons of the cells that are
	// not passed. Keys may begin with "API/", such as "chat/state".
	Errors map[string]string `json:"errors"`
	Gaps   map[string]string `json:"gaps"`
	// Versions are other versions of the client: what their manifests have in place of
	// these members, or beside those of Errors and Gaps.
	Versions map[string]json.RawMessage `json:"versions"`
}

// all returns the client and its other versions.
func (c matrixClient) all() ([]matrixClient, error) {
	clients := []matrixClient{c}
	for version, members := range c.Versions {
		v := c
		v.name, v.Title, v.Versions = c.name+"-"+version, c.Title+" "+version, nil
		v.Errors, v.Gaps = maps.Clone(c.Errors), maps.Clone(c.Gaps)
		if err := decodeManifest(members, &v); err != nil {
			return nil, fmt.Errorf("version %s: %w", version, err)
		}
		if v.Set == c.Set {
			return nil, fmt.Errorf("version %s: its set is the client's own", version)
		}
		clients = append(clients, v)
	}
	return clients, nil
}

func decodeManifest(text []byte, c *matrixClient) error {
	from := json.NewDecoder(bytes.NewReader(text))
	from.DisallowUnknownFields()
	return from.Decode(c)
}

// lookup returns the value of a key for an API.
func lookup(values map[string]string, api, key string) string {
	if v, ok := values[api+"/"+key]; ok {
		return v
	}
	return values[key]
}

// readMatrix returns the clients in the order of the table.
func readMatrix(t *testing.T) []matrixClient {
	t.Helper()
	paths, err := filepath.Glob("clients/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var clients []matrixClient
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if strings.HasPrefix(name, "package") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := matrixClient{name: name}
		if err := decodeManifest(text, &c); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all, err := c.all()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		clients = append(clients, all...)
	}
	slices.SortFunc(clients, func(a, b matrixClient) int {
		return max(-1, min(1, 10*(a.Order-b.Order)+strings.Compare(a.name, b.name)))
	})
	return clients
}

// TestClients runs the client scripts of clients/ against the data plane, compares
// what they see with what the simulated model has written and with the engine's log,
// and compares the table with docs/clients.md.
func TestClients(t *testing.T) {
	d := start(t, options{config: func(c *config.Config) {
		c.Responses.SealKeys = []string{sealKey}
		c.Limits.KeepAlive.Duration = matrixKeepAlive
		c.Models = append(c.Models, config.Model{Match: "=" + shortModel, Engine: "vllm", ContextLength: shortLength})
	}})
	base := d.checkedURL(t)
	clients := readMatrix(t)
	table := &matrixTable{rows: map[string]*matrixRow{}}
	t.Cleanup(func() { table.compare(t, clients) })
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, api := range c.APIs {
				t.Run(api, func(t *testing.T) {
					row := newMatrixRow(c, api)
					row.run(t, d, base)
					table.add(row)
				})
			}
		})
	}
}

// command returns the command that runs the script. It may write to a folder.
func (c matrixClient) command(ctx context.Context, folder string) (*exec.Cmd, error) {
	kind, set, _ := strings.Cut(c.Set, "/")
	dir := "clients"
	var program []string
	var needs string
	switch kind {
	case "go":
		program = []string{"go", "run", "./" + c.Script}
		if set == "" {
			break
		}
		dir = folder
		tag, err := goModule(filepath.Join("clients", c.Script), set, dir)
		if err != nil {
			return nil, err
		}
		program = []string{"go", "run", "-tags", tag, "."}
	case "node":
		program, needs = []string{"node", c.Script}, "clients/node/node_modules/.package-lock.json"
	case "agents":
		node, err := filepath.Abs("clients/node_modules/node/bin/node")
		if err != nil {
			return nil, err
		}
		program, needs = []string{node, c.Script}, node
	case "python":
		python, err := filepath.Abs(filepath.Join("../.venv-clients", set, "bin/python"))
		if err != nil {
			return nil, err
		}
		program, needs = []string{python, c.Script}, python
	default:
		return nil, fmt.Errorf("no set %q", c.Set)
	}
	if needs != "" {
		if _, err := os.Stat(needs); err != nil {
			return nil, errors.New("the client is not installed: run make test-clients")
		}
	}
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Dir = dir
	return cmd, nil
}

// sdkImport matches the import path of openai-go, of each major version.
var sdkImport = regexp.MustCompile(`github\.com/openai/openai-go(/v\d+)?`)

// goModule makes a module of a Go script in a folder, with an older version of the SDK:
// script/version has its go.mod and go.sum. The import paths of the SDK are changed to
// those of the version. The result is the build tag of the major version.
func goModule(script, version, folder string) (tag string, err error) {
	mod, err := os.ReadFile(filepath.Join(script, version, "go.mod"))
	if err != nil {
		return "", err
	}
	sum, err := os.ReadFile(filepath.Join(script, version, "go.sum"))
	if err != nil {
		return "", err
	}
	files := map[string][]byte{"go.mod": mod, "go.sum": sum}

	path := sdkImport.Find(mod)
	sources, err := filepath.Glob(filepath.Join(script, "*.go"))
	if err != nil {
		return "", err
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		files[filepath.Base(source)] = sdkImport.ReplaceAllLiteral(text, path)
	}

	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			return "", err
		}
	}
	tag, _, _ = strings.Cut(version, ".")
	return tag, nil
}

// run runs the client's script and fills the row.
func (row *matrixRow) run(t *testing.T, d *dataplane, base string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientPatience)
	defer cancel()
	cmd, err := row.client.command(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cases, err := json.Marshal(row.cases)
	if err != nil {
		t.Fatal(err)
	}
	// Own requests of a client to other hosts are not part of the test.
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "API="+row.api, "MATRIX="+string(cases), "OPENAI_BASE_URL="+base+"/v1", "OPENAI_API_KEY=none", "ANTHROPIC_BASE_URL="+base, "ANTHROPIC_API_KEY=none", "CLIENT="+row.client.name, "CLIENT_HOME="+home, "PYTHONDONTWRITEBYTECODE=1")
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
	requests := d.engineRequests(t, "")
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
	mark := "✓"
	switch {
	case errors.Is(err, errNothingSeen):
		mark = "–"
	case err != nil:
		mark = "✗"
	case capability == "state":
		mark = row.ways
	}
	row.cells[capability] = mark
	if reason != "" {
		t.Logf("%s: %s: %s (%v)", row.title(), capability, reason, err)
	}
}

// matrixTable collects rows.
type matrixTable struct {
	mu   sync.Mutex
	rows map[string]*matrixRow // by title
}

func (m *matrixTable) add(row *matrixRow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[row.title()] = row
}
