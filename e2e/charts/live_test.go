//go:build charts

package charts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"
)

const patience = 3 * time.Minute

// process is a running command with what it has written so far.
type process struct {
	process *os.Process
	mu      sync.Mutex
	text    strings.Builder
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// launch starts a command that ends with the test.
func launch(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = p, p
	cmd.WaitDelay = 10 * time.Second

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.process = cmd.Process

	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()

	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(name), p)
		}
	})
	return p
}

// await waits until a line of the output begins with, or as JSON has, what is asked for.
func (p *process) await(t *testing.T, found func(line string) string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for line := range strings.SplitSeq(p.String(), "\n") {
			if s := found(line); s != "" {
				return s
			}
		}
	}
	t.Fatalf("a line is missing:\n%s", p)
	return ""
}

// program builds envoy-harmony.
func program(t *testing.T) string { return build(t, "envoy-harmony") }

// engineSim builds the simulated engine.
func engineSim(t *testing.T) string { return build(t, "engine-sim") }

func build(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if out, stderr, err := run(t, "go", "build", "-o", path, "../../cmd/"+name); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	return path
}

// tools is an MCP server with one tool.
func tools(t *testing.T) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "echo"}}}, nil
	})
	s := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// requests keep a filter busy with everything that the dashboard shows.
func requests(ctx context.Context, base string) {
	send := func(path, body string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}

	chat := func(model, text string) string {
		return fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, model, text)
	}

	for n := 0; ctx.Err() == nil; n++ {
		send("/chat/completions", chat("gpt-oss-20b", "THINK Well.\nSAY Hello, this is an answer."))
		send("/chat/completions", chat("gpt-oss-20b", "@@<channel>analysis<message>hm<end><message>no header<return>@@"))
		send("/chat/completions", chat("gpt-oss-20b", "SIM status=500\nSAY no"))
		send("/chat/completions", chat("gpt-oss-20b", "NOTHINK\nWORDS 20\nSIM fault=cut@9")) // another call continues it
		send("/chat/completions", chat("gpt-oss-small", "There are no tokens for this."))
		send("/chat/completions", chat("other", "Hello"))
		send("/responses", `{"model":"gpt-oss-120b","input":"CALL tools.echo {}\nSAY done","tools":[{"type":"mcp","server_label":"tools","require_approval":"never"}]}`)
		send("/responses", fmt.Sprintf(`{"model":"gpt-oss-120b","instructions":"It is %d past nine.","input":"SAY no prefix is shared"}`, n))
		time.Sleep(50 * time.Millisecond)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// prometheus starts a Prometheus that reads the metrics at an address each second, and
// returns its own address.
func prometheus(t *testing.T, target string) string {
	t.Helper()
	dir, address := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	config := fmt.Sprintf(`scrape_configs:
- job_name: harmony
  scrape_interval: 1s
  static_configs:
  - targets: [%q]
    labels: {namespace: models, pod: harmony-0}
`, target)
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, tool(t, "prometheus"), "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)
	return "http://" + address
}

// query returns the number of results of an expression, or an error of Prometheus.
func query(t *testing.T, base, expr string) (results int, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/query?"+url.Values{"query": {expr}}.Encode(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}

	reply := gjson.ParseBytes(text)
	if reply.Get("status").Str != "success" {
		return 0, fmt.Errorf("%s: %s", resp.Status, text)
	}

	n := 0
	for _, r := range reply.Get("data.result").Array() {
		if r.Get("value.1").Str != "NaN" {
			n++
		}
	}
	return n, nil
}

// TestQueriesLive runs the filter with an Envoy and the simulated engine, lets a real
// Prometheus read its metrics, and asks it every query of the dashboard and the alerts.
// None is an error, and each panel shows something.
func TestQueriesLive(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Prometheus and Envoy")
	}
	config := write(t, fmt.Sprintf("tools: {servers: [{label: tools, url: %q}]}\nrecord: {percent: 100}\n"+
		"token_budgets: [{name: minute, match: gpt-oss-small, tokens: 1, window: 1m}]\n"+
		"rollout: [{match: gpt-oss-20b, percent: 100}]\n"+
		"model_defaults: {prices: {input: \"0.1\", output: \"0.4\"}}\n", tools(t)))
	t.Setenv("PATH", filepath.Dir(engineSim(t))+string(filepath.ListSeparator)+os.Getenv("PATH")) // for --simulate
	filter := launch(t, program(t), "run", "--simulate", "--config", config, "--listen", "127.0.0.1:0", "--envoy-workers", "1")
	base := filter.await(t, func(line string) string {
		url, ok := strings.CutPrefix(line, "ready ")
		if !ok {
			return ""
		}
		return url
	})
	admin := filter.await(t, func(line string) string { return gjson.Get(line, "admin").Str })

	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() { requests(ctx, base) })
	defer busy.Wait()
	defer cancel()

	server := prometheus(t, admin)
	all := queries(t)
	empty := map[string]string{}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		if _, err := query(t, server, "up"); err != nil {
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			continue
		}
		clear(empty)
		for where, expr := range all {
			n, err := query(t, server, expr)
			if err != nil {
				t.Fatalf("%s: %s: %v", where, expr, err)
			}
			if n == 0 && !mayBeEmpty(where, expr) {
				empty[where] = expr
			}
		}
		if len(empty) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, where := range slices.Sorted(maps.Keys(empty)) {
		t.Errorf("%s shows nothing: %s", where, empty[where])
	}
}
