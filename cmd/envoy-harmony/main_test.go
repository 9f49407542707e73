package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) {
	if os.Getenv(onlySimulate) != "" {
		holdSimulator()
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(simulatorDir)
		os.Exit(code)
	}))
}

// execute runs a command that ends by itself.
func execute(t *testing.T, env map[string]string, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	if slices.Contains(args, "--simulate") {
		needSimulator(t)
	}
	var out, errs bytes.Buffer
	p := program{stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
	for name, value := range env {
		p.environ = append(p.environ, name+"="+value)
	}
	exit = p.main(t.Context(), args)
	return exit, out.String(), errs.String()
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("engines: [{kind: sglang, urls: [http://file:1]}]\ndate: nope\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy := taken.Addr().String()
	failing := filepath.Join(dir, "envoy")
	if err := os.WriteFile(failing, []byte("#!/bin/sh\necho failure in the log\nexit 3\n"), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	inUse := filepath.Join(dir, "in-use")
	if err := os.WriteFile(inUse, []byte("#!/bin/sh\necho cannot bind 1.2.3.4: Address already in use\nexit 1\n"), 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	versions := map[string]map[string]string{}
	for _, version := range []string{"1.36.0", "1.38.3", "1.40.0"} {
		path := filepath.Join(dir, "envoy-"+version)
		body := "#!/bin/sh\necho envoy version: 9e55/" + version + "/Clean/RELEASE/BoringSSL\nexec sleep 0.01\n"
		if err := os.WriteFile(path, []byte(body), 0o700); err != nil { //nolint:gosec // it is executed
			t.Fatal(err)
		}
		versions[version] = map[string]string{"ENVOY_BIN": path}
	}
	for _, tt := range []struct {
		name   string
		env    map[string]string
		args   string
		exit   int
		stdout string
		stderr string
	}{
		{"nothing", nil, "", 2, "", "Usage: envoy-harmony COMMAND"},
		{"help", nil, "help", 0, "Usage: envoy-harmony COMMAND", ""},
		{"help of a command", nil, "run --help", 0, "envoy-harmony run --simulate", ""},
		{"unknown command", nil, "start", 2, "", `unknown command "start"`},
		{"unknown flag", nil, "run --nope", 2, "", "flag provided but not defined"},
		{"similar command", nil, "chek", 2, "", `unknown command "chek"; did you mean check?`},
		{"similar flag", nil, "run --enigne vllm=http://a", 2, "", "flag provided but not defined: -enigne; did you mean --engine?\nFlags: envoy-harmony run --help\n"},
		{"similar flag of tokens", nil, "tokens parse --roll user", 2, "", "did you mean --role?"},
		{"similar flag of records", nil, "inspect --bief x", 2, "", "did you mean --brief?"},
		{"help of tokens", nil, "tokens parse --help", 0, "-role role", ""},
		{"help of inspect", nil, "inspect --help", 0, "Shows recorded exchanges", ""},
		{"similar key", nil, "serve --engine vllm --set lissten=a", 1, "", "flag: unknown key lissten; did you mean listen?"},
		{"key below a value", nil, "serve --engine vllm --set date.day=1", 1, "", "unknown key date.day"},
		{"address of an engine alone", nil, "run --engine http://127.0.0.1:8000", 2, "", "write which kind of engine it is: KIND=URL, such as vllm=http://127.0.0.1:8000"},
		{"address of an engine without a scheme", nil, "run --engine 127.0.0.1:8000", 2, "", "write which kind of engine it is: KIND=URL, such as vllm=http://127.0.0.1:8000"},
		{"addresses of an engine without a scheme", nil, "run --engine [::1]:8000/v1,b:8000", 2, "", "such as vllm=http://[::1]:8000/v1; KIND is one of"},
		{"size", nil, "check --engine vllm --set limits.max_body_bytes=32MiB", 0, "max_body_bytes: 33554432", ""},
		{"size in another unit", nil, "check --engine vllm --set limits.max_body_bytes=32MB", 1, "", "limits.max_body_bytes: want a whole number of bytes, or one with KiB, MiB or GiB such as 32MiB, found text"},
		{"size of a number", nil, "check --engine vllm --set limits.max_tools=2KiB", 1, "", "limits.max_tools: want a whole number, found text"},
		{"size that is too large", nil, "check --engine vllm --set limits.max_body_bytes=9000000000GiB", 1, "", "limits.max_body_bytes: want a whole number of bytes"},
		{"flags behind the question", nil, "ask Hello --url http://127.0.0.1:1/v1", 1, "", `Post "http://127.0.0.1:1/v1/chat/completions"`},
		{"question with a dash", nil, "ask --url http://127.0.0.1:1/v1 -- -1 --url x", 1, "", `Post "http://127.0.0.1:1/v1/chat/completions"`},
		{"wrong flag behind the question", nil, "ask Hello --modl x", 2, "", "did you mean --model?"},
		{"record of no request", nil, "inspect ../../filter/testdata/records -id NONSENSE", 1, "", `files is of a request with the id "NONSENSE"`},
		{"argument", nil, "run now", 2, "", `unexpected argument "now"`},
		{"version", nil, "version", 0, "envoy-harmony ", ""},
		{"no engine", nil, "serve", 1, "", "engines: name at least one engine"},
		{"wrong engine", nil, "run --engine v=http://a", 1, "", "engines[0].kind: must be one of"},
		{"engine without kind", nil, "run --engine =http://a", 2, "", "write KIND=URL"},
		{"engine without URL", map[string]string{"ENVOY_BIN": failing}, "run --engine vllm", 1, "", "engine vllm: it has no URL"},
		{"prefill", nil, "envoy-config --set loopback=unix:///l --engine sglang=http://d:1,prefill=http://p0:1,prefill=http://p1:1#9000", 0, `prefill: "p1:1"`, ""},
		{"prefill of vLLM", nil, "envoy-config --set loopback=unix:///l --engine vllm=http://d:1,prefill=http://p0:1", 0, `"engine_vllm-prefill"`, ""},
		{"prefill without loopback", nil, "serve --engine sglang=http://d:1,prefill=http://p:1", 1, "", "loopback"},
		{"prefill without loopback in Envoy", nil, "envoy-config --engine sglang=http://d:1,prefill=http://p:1", 1, "", "set loopback"},
		{"prefill of a kind without", nil, "serve --engine llamacpp=http://d:1,prefill=http://p:1", 1, "", "llamacpp takes no prefill endpoints"},
		{"prefill's port", nil, "serve --engine sglang=http://d:1,prefill=http://p:1#x", 2, "", "is not a bootstrap port"},
		{"prefill's port for vLLM", nil, "serve --engine vllm=http://d:1,prefill=http://p:1#8998", 1, "", "is for SGLang only"},
		{"no file", nil, "serve --config /nowhere.yaml", 1, "", "/nowhere.yaml"},
		{"bad file", nil, "serve --config " + file, 1, "", "date: must be utc"},
		{"flag over file", nil, "envoy-config --set date=utc --config " + file, 0, `"file"`, ""},
		{"environment over file", map[string]string{"ENVOY_HARMONY_DATE": "none"}, "envoy-config --config " + file, 0, `"file"`, ""},
		{"flag over environment", map[string]string{"ENVOY_HARMONY_DATE": "bad"}, "envoy-config --set date=none --engine a:vllm=http://flag --config " + file, 0, `"engine_a"`, ""},
		{"variable of no key", map[string]string{"ENVOY_HARMONY_TOOL_X": "1"}, "envoy-config --engine vllm=http://a", 0, `"engine_vllm"`, "ENVOY_HARMONY_TOOL_X has no effect"},
		{"bad variable", map[string]string{"ENVOY_HARMONY_LIMITS_KEEP_ALIVE": "15"}, "serve --engine vllm", 1, "", "environment variable ENVOY_HARMONY_LIMITS_KEEP_ALIVE: limits.keep_alive: want a number with its unit, such as 2s, found 15"},
		{"engine of the simulation", nil, "run --simulate --engine vllm=http://a", 2, "", "--simulate and --engine cannot be combined"},
		{"workers", nil, "run --simulate --envoy-workers -3", 2, "", "--envoy-workers: must be at least 0, not -3"},
		{"port of the store", nil, "serve --engine vllm --set store_url=redis://localhost:99999", 1, "", "store_url: redis: URL: the port 99999 is not a number"},
		{"CORS", nil, "envoy-config --engine vllm=http://a --cors-origins https://a.example,http://localhost:*", 0, `- {exact: "https://a.example"}`, ""},
		{"CORS of no origin", nil, "envoy-config --engine vllm=http://a --cors-origins a.example", 1, "", "is no origin"},
		{"TLS of clients", nil, "envoy-config --engine vllm=http://a --listen-sds /etc/sds.yaml", 0, `path_config_source: {path: "/etc/sds.yaml"}`, ""},
		// Envoy takes no file of SDS without them.
		{"TLS of clients, node", nil, "envoy-config --engine vllm=http://a --listen-sds /etc/sds.yaml", 0, "node: {id: envoy, cluster: envoy}", ""},
		{"open paths", nil, "envoy-config --engine vllm=http://a --open-paths /v1/batches/*,/tokenize", 0, `path_separated_prefix: "/v1/batches"`, ""},
		{"wrong open path", nil, "envoy-config --engine vllm=http://a --open-paths v1/batches", 1, "", `routing.open_paths[0]: "v1/batches" is not a path`},
		{"output", nil, "envoy-config --engine vllm=http://a --output /nowhere/envoy.yaml", 1, "", "write the bootstrap: open /nowhere/envoy.yaml"},
		{"no question", nil, "ask --model m", 2, "", "the question is missing"},
		{"bad header", nil, "ask --header x Hello", 2, "", "write NAME=VALUE"},
		{"nobody to ask", nil, "ask --url http://127.0.0.1:1/v1 Hello", 1, "", "ask: no answer"},
		{"no folder", nil, "serve --engine vllm --listen unix:///nowhere/filter.sock", 1, "", "listen: the folder /nowhere does not exist: create it, or set listen to another address"},
		{"port", nil, "check --engine vllm --listen 127.0.0.1:99999", 1, "", `listen: "127.0.0.1:99999": the port must be a number from 0 to 65535`},
		{"one address", nil, "check --engine vllm --listen 127.0.0.1:9500 --admin localhost:9500", 1, "", "admin: localhost:9500 is taken by listen (127.0.0.1:9500): set one of them to another port or path"},
		{"address of the default", nil, "check --engine vllm --listen :9003", 1, "", "admin: 127.0.0.1:9003 is taken by listen (:9003)"},
		{"address of the default in serve", nil, "serve --engine vllm --listen :9003", 1, "", "admin: 127.0.0.1:9003 is taken by listen (:9003)"},
		{"address of Envoy", nil, "envoy-config --engine vllm=http://a --listen 0.0.0.0:9901", 1, "", "--envoy-admin: 127.0.0.1:9901 is taken by --listen (0.0.0.0:9901)"},
		{"address of the loopback", nil, "envoy-config --engine vllm=http://a --set loopback=127.0.0.1:10000", 1, "", "loopback: 127.0.0.1:10000 is taken by --listen"},
		{"address of the loopback in run", map[string]string{"ENVOY_BIN": "true"}, "run --engine vllm=http://a --set loopback=127.0.0.1:10000", 1, "", "loopback: 127.0.0.1:10000 is taken by --listen"},
		{"busy", nil, "serve --engine vllm --listen " + busy + " --admin 127.0.0.1:0", 1, "", "listen: another process listens at " + busy + ": stop it (ss -ltnp names it), or set listen to another port"},
		{"busy admin", nil, "serve --engine vllm --listen 127.0.0.1:0 --admin " + busy, 1, "", "admin: another process listens at " + busy + ": stop it (ss -ltnp names it), or set admin to another port"},
		{"busy sockets", nil, "serve --engine vllm --listen 127.0.0.1:0 --admin 127.0.0.1:0 --set loopback=unix:///l --set websocket.listen=" + busy, 1, "", "websocket.listen: another process listens at " + busy},
		{"busy rendering", nil, "render --listen " + busy, 1, "", "--listen: another process listens at " + busy},
		{"busy admin of run", map[string]string{"ENVOY_BIN": "true"}, "run --engine vllm=http://a --admin " + busy, 1, "", "admin: another process listens at " + busy},
		{"no own address", nil, "serve --engine vllm --listen 192.0.2.1:9002 --admin 127.0.0.1:0", 1, "", "listen: this machine has no address 192.0.2.1:9002: set listen to one of its own, or to 0.0.0.0:9002 for all"},
		{"store without folder", nil, "serve --engine vllm --set store_url=sqlite:/nowhere/s.db", 1, "", "store_url: sqlite: the file cannot be opened or created, check that its folder exists and that this user may write there: open /nowhere/s.db"},
		{"store that is a folder", nil, "serve --engine vllm --set store_url=sqlite:/proc", 1, "", "store_url: sqlite: the file cannot be opened or created"},
		{"bad set", nil, "serve --set date", 2, "", "write KEY=VALUE"},
		{"certificate missing", nil, "serve --engine vllm --listen 127.0.0.1:0 --admin 127.0.0.1:0 --set tls.cert_file=/nowhere/tls.crt --set tls.key_file=/nowhere/tls.key", 1, "", "tls.cert_file: there is no file /nowhere/tls.crt: put the certificate there"},
		{"key missing", nil, "serve --engine vllm --set tls.cert_file=/nowhere/tls.crt", 1, "", "tls.key_file: is missing: set it to"},
		{"CA of the filter", nil, "envoy-config --engine vllm=http://a --set tls.cert_file=/c --set tls.key_file=/k", 1, "", "name the CA by which Envoy checks that certificate, --filter-ca FILE"},
		{"certificate of Envoy", nil, "envoy-config --engine vllm=http://a --set tls.cert_file=/c --set tls.key_file=/k --set tls.client_ca_file=/ca --filter-ca /f", 1, "", "name the certificate that Envoy presents, --filter-cert FILE --filter-key FILE"},
		{"CA without TLS", nil, "envoy-config --engine vllm=http://a --filter-ca /f", 1, "", "the filter listens without it: set tls.cert_file"},
		{"TLS to the filter", nil, "envoy-config --engine vllm=http://a --filter filter.example.com:9002 --set tls.cert_file=/c --set tls.key_file=/k --filter-ca /f", 0, `{san_type: DNS, matcher: {exact: "filter.example.com"}}`, ""},
		{"loopback's certificate", nil, "envoy-config --engine vllm=http://a --set loopback=https://10.0.0.1:1", 1, "", "name the certificate of Envoy's loopback listener, --loopback-cert FILE --loopback-key FILE"},
		{"loopback's client CA", nil, "envoy-config --engine vllm=http://a --set loopback=https://10.0.0.1:1 --set loopback_tls.cert_file=/c --set loopback_tls.key_file=/k --loopback-cert /c --loopback-key /k", 1, "", "name the CA by which Envoy checks that certificate, --loopback-client-ca FILE"},
		{"loopback's client CA for nobody", nil, "envoy-config --engine vllm=http://a --set loopback=https://10.0.0.1:1 --loopback-cert /c --loopback-key /k --loopback-client-ca /ca", 1, "", "the filter presents no certificate: set loopback_tls.cert_file"},
		{"loopback's certificate without TLS", nil, "envoy-config --engine vllm=http://a --set loopback=10.0.0.1:1 --loopback-cert /c", 1, "", "write loopback as https://host:port"},
		{"flags without loopback", nil, "envoy-config --engine vllm=http://a --loopback-listen 10.0.0.1:1", 1, "", "are for the loopback listener: set loopback"},
		{"name of the loopback", nil, "envoy-config --engine vllm=http://a --set loopback=https://envoy:1 --loopback-cert /c --loopback-key /k", 1, "", "Envoy listens at an IP address, and envoy is a name: set --loopback-listen"},
		{"TLS of the loopback", nil, "envoy-config --engine vllm=http://a --set loopback=https://envoy:1 --loopback-listen 10.0.0.1:1 --loopback-cert /c --loopback-key /k", 0, `private_key: {filename: "/k"}`, ""},
		{"TLS of the loopback in run", map[string]string{"ENVOY_BIN": "true"}, "run --engine vllm=http://a --set loopback=https://10.0.0.1:1", 1, "", "the loopback listener of run is on this machine and has no TLS: leave loopback out"},
		{"loopback's CA missing", nil, "serve --engine vllm --set loopback=https://10.0.0.1:1 --set loopback_tls.ca_file=/nowhere", 1, "", "loopback_tls.ca_file: open /nowhere: no such file or directory: put the file there"},
		{"loopback's CA checked", nil, "check --engine vllm --set loopback=https://10.0.0.1:1 --set loopback_tls.ca_file=/nowhere", 1, "", "loopback_tls.ca_file: open /nowhere"},
		{"mode override", nil, "envoy-config --engine vllm=http://a --mode-override", 0, "allow_mode_override: true", ""},
		{"unknown set", nil, "serve --engine vllm --set dat=utc", 1, "", "unknown key dat"},
		{"no Envoy", map[string]string{"ENVOY_BIN": "/nowhere"}, "run --simulate", 1, "", "ENVOY_BIN"},
		{"Envoy fails", map[string]string{"ENVOY_BIN": failing}, "run --simulate", 1, "", "failure in the log"},
		{"Envoy fails, last line", map[string]string{"ENVOY_BIN": failing}, "run --simulate", 1, "", "envoy-harmony: start Envoy: the process exited: exit status 3\n"},
		{"Envoy is another program", map[string]string{"ENVOY_BIN": "true"}, "run --simulate", 1, "", "the process exited without an error"},
		{"address in use", map[string]string{"ENVOY_BIN": inUse}, "run --simulate", 1, "", "cannot bind 1.2.3.4: Address already in use: stop that process, or choose another address with --listen"},
		{"Envoy is too old", versions["1.36.0"], "run --simulate", 1, "", "envoy-1.36.0: this Envoy is 1.36.0, which cannot keep content-length in full-duplex mode; the filter needs 1.38.4"},
		{"Envoy is unsafe", versions["1.38.3"], "run --simulate", 1, "", "Envoy 1.38.3 can crash under load"},
		{"Envoy without mode override", versions["1.38.3"], "run --simulate --mode-override", 1, "", "the mode override needs 1.40"},
		{"which Envoy", versions["1.40.0"], "run --simulate", 1, "", `"msg":"starting Envoy"`},
		{"which version", versions["1.40.0"], "run --simulate", 1, "", `"version":"1.40.0"`},
		{"which binary", versions["1.40.0"], "run --simulate", 1, "", `"binary":"` + versions["1.40.0"]["ENVOY_BIN"]},
		{"no version", map[string]string{"ENVOY_BIN": "true"}, "run --simulate", 1, "", "the version of Envoy is not known"},
		{"listen", nil, "serve --engine vllm --listen 127.0.0.1:0 --admin 127.0.0.1:bad", 1, "", "admin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			exit, stdout, stderr := execute(t, tt.env, strings.Fields(tt.args)...)
			if exit != tt.exit {
				t.Errorf("exit status %d, want %d", exit, tt.exit)
			}
			if !strings.Contains(stdout, tt.stdout) || (tt.stdout == "") != (stdout == "") {
				t.Errorf("standard output %q, want %q in it", stdout, tt.stdout)
			}
			if !strings.Contains(stderr, tt.stderr) {
				t.Errorf("standard error %q, want %q in it", stderr, tt.stderr)
			}
		})
	}
}

// lines collects the output of a running command.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running is a command that runs until it is cancelled.
type running struct {
	stdout, stderr lines
	cancel         context.CancelFunc
	exit           chan int
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	return startIn(t, false, args...)
}

// startIn is start on a terminal, or not.
func startIn(t *testing.T, terminal bool, args ...string) *running {
	t.Helper()
	if slices.Contains(args, "--simulate") {
		needSimulator(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, exit: make(chan int, 1)}
	p := program{stdin: strings.NewReader(""), stdout: &r.stdout, stderr: &r.stderr, terminal: terminal, environ: os.Environ()}
	go func() { r.exit <- p.main(ctx, args) }()
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Logf("standard error:\n%s", r.stderr.String())
		}
	})
	return r
}

// await waits for a line that contains mark and returns the first one. No line comes
// after the command has ended.
func (r *running) await(t *testing.T, w *lines, mark string) string {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		ended := false
		select {
		case exit := <-r.exit:
			r.exit <- exit
			ended = true
		default:
		}
		for line := range strings.SplitSeq(w.String(), "\n") {
			if strings.Contains(line, mark) {
				return line
			}
		}
		if ended || time.Now().After(deadline) {
			t.Fatalf("no line with %q; standard error:\n%s", mark, r.stderr.String())
		}
	}
}

// field returns a field of the log line with the message msg.
func (r *running) field(t *testing.T, msg, name string) string {
	t.Helper()
	var entry map[string]any
	if err := json.Unmarshal([]byte(r.await(t, &r.stderr, `"msg":"`+msg+`"`)), &entry); err != nil {
		t.Fatal(err)
	}
	value, ok := entry[name].(string)
	if !ok {
		t.Fatalf("the line %q has no field %s", msg, name)
	}
	return value
}

// end waits for the command and returns its exit status.
func (r *running) end(t *testing.T) int {
	t.Helper()
	select {
	case exit := <-r.exit:
		return exit
	case <-time.After(5 * time.Minute):
		t.Fatalf("the command does not end; standard error:\n%s", r.stderr.String())
		return -1
	}
}

// get sends a request and returns the status and the body of the response.
func get(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestRun(t *testing.T) {
	r := start(t, "run", "--simulate", "--listen", "127.0.0.1:0", "--envoy-workers", "1")
	base := strings.TrimPrefix(r.await(t, &r.stdout, "ready "), "ready ")
	status, text := get(t, http.MethodPost, base+"/chat/completions",
		`{"model":"gpt-oss-20b","messages":[{"role":"user","content":"SAY It works."}]}`)
	if status != http.StatusOK || !strings.Contains(text, `"content":"It works."`) {
		t.Errorf("status %d, body %s", status, text)
	}
	// A request is counted at the end of its ext_proc stream, shortly after the client
	// has its response.
	metrics := "http://" + r.field(t, "started", "admin") + "/metrics"
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, text = get(t, http.MethodGet, metrics, ""); strings.Contains(text, `harmony_requests_total{`) {
			break
		}
		if time.Since(begun) > 5*time.Minute {
			t.Fatalf("metrics do not count the request:\n%s", text)
		}
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
	if want := "ready " + base + "\n"; r.stdout.String() != want {
		t.Errorf("standard output %q, want %q", r.stdout.String(), want)
	}
}

// When the time of the drain is over, run ends a stream with an error event.
func TestRunDrains(t *testing.T) {
	r := start(t, "run", "--simulate", "--listen", "127.0.0.1:0", "--envoy-workers", "1", "--set", "drain_timeout=100ms")
	base := strings.TrimPrefix(r.await(t, &r.stdout, "ready "), "ready ")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/chat/completions",
		strings.NewReader(`{"model":"gpt-oss-20b","stream":true,"messages":[{"role":"user","content":"NOTHINK\nWORDS 9\nSIM fault=hang@5"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.cancel()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), `"code":"shutdown"`) || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("%v, in\n%s", err, text)
	}
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
	if line := r.await(t, &r.stderr, `"msg":"request"`); !strings.Contains(line, `"outcome":"drain"`) {
		t.Errorf("logged %s", line)
	}
}

func TestRunEnvoyDies(t *testing.T) {
	r := start(t, "run", "--simulate", "--listen", "127.0.0.1:0", "--envoy-workers", "1")
	r.await(t, &r.stdout, "ready ")
	get(t, http.MethodPost, "http://"+r.field(t, "started", "envoy_admin")+"/quitquitquit", "")
	if exit := r.end(t); exit != 1 {
		t.Errorf("exit status %d", exit)
	}
	r.await(t, &r.stderr, "envoy-harmony: envoy: the process exited")
}

// A signal while the engine does not answer is not an error.
func TestRunWaitsForEngine(t *testing.T) {
	r := start(t, "run", "--engine", "vllm=http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--envoy-workers", "1")
	if line := r.await(t, &r.stderr, "waiting for the engine"); !strings.Contains(line, `"engine":"vllm"`) || !strings.Contains(line, `"urls":"http://127.0.0.1:1"`) || strings.Contains(line, "null") {
		t.Errorf("the line does not name the engine: %s", line)
	} else if !strings.Contains(line, `"reason":"http://127.0.0.1:1: connection refused`) {
		t.Errorf("the line does not say why: %s", line)
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
	if out := r.stdout.String(); out != "" {
		t.Errorf("standard output %q", out)
	}
}

// run is ready when one engine answers, and says which others do not.
func TestRunWithoutSecondEngine(t *testing.T) {
	needSimulator(t)
	s, err := simulate()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	r := start(t, "run", "--engine", "vllm=http://"+s.address, "--engine", "second:vllm=http://127.0.0.1:1",
		"--listen", "127.0.0.1:0", "--envoy-workers", "1")
	r.await(t, &r.stdout, "ready ")
	if line := r.await(t, &r.stderr, "not every engine answers"); !strings.Contains(line, "engine second: ") || strings.Contains(line, "engine vllm") {
		t.Errorf("the line does not name the engine that is down: %s", line)
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}

// Features that need the loopback listener are logged if it is not configured.
func TestServeWithoutLoopback(t *testing.T) {
	r := start(t, "serve", "--engine", "vllm", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--set", "tools.allowed_hosts=[mcp.example.com]")
	for _, want := range []string{"background responses are rejected; context lengths are not read from engines", "requests with MCP servers are rejected"} {
		r.await(t, &r.stderr, want)
	}
	r.cancel()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}

func TestServe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	drained := make(chan string, 1)
	envoy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { drained <- r.Method + " " + r.URL.Path }))
	t.Cleanup(envoy.Close)
	r := start(t, "serve", "--engine", "vllm", "--listen", "unix://"+socket, "--admin", "127.0.0.1:0", "--drain-envoy", envoy.URL)
	admin := "http://" + r.field(t, "serving", "admin")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	check := func(service string) (healthv1.HealthCheckResponse_ServingStatus, error) {
		resp, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		return resp.GetStatus(), err
	}
	for _, service := range healthServices {
		if got, err := check(service); err != nil || got != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, got, err)
		}
	}
	if _, err := check("nope"); status.Code(err) != codes.NotFound {
		t.Errorf("health of an unknown service: %v", err)
	}
	probes := dialHealth(t, strings.TrimPrefix(admin, "http://"))
	for _, service := range healthServices {
		if got := probes.status(t, service); got != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q on the admin port: %v", service, got)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/nope": 404, "/": 200} {
		if got, _ := get(t, http.MethodGet, admin+path, ""); got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
	if _, page := get(t, http.MethodGet, admin+"/", ""); !strings.Contains(page, `<a href="metrics">/metrics</a>`) || !strings.Contains(page, "/inspector/ is off") {
		t.Errorf("the page of the admin port is %s", page)
	}
	if page := indexPage(true); !strings.Contains(page, `<a href="inspector/">/inspector/</a>`) {
		t.Errorf("with an inspector it is %s", page)
	}
	if exit, _, stderr := execute(t, nil, "serve", "--engine", "vllm", "--listen", "unix://"+socket, "--admin", "127.0.0.1:0"); exit != 1 || !strings.Contains(stderr, "another process listens at") {
		t.Errorf("a second server on the socket: exit status %d, %s", exit, stderr)
	}
	watching, stopWatching := context.WithCancel(t.Context())
	defer stopWatching()
	watch, err := healthv1.NewHealthClient(conn).Watch(watching, &healthv1.HealthCheckRequest{Service: "readiness"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthv1.HealthCheckResponse_ServingStatus{healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING} {
		got, err := watch.Recv()
		if err != nil || got.GetStatus() != want {
			t.Fatalf("health %v, %v, want %v", got, err, want)
		}
		r.cancel() // after the first status, which is SERVING
	}
	if got := <-drained; got != "POST /healthcheck/fail" {
		t.Errorf("Envoy got %s", got)
	}
	// The watch is a running request, which is still served.
	if got, _ := get(t, http.MethodGet, admin+"/readyz", ""); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz while draining: status %d", got)
	}
	for _, service := range healthServices {
		want := healthv1.HealthCheckResponse_NOT_SERVING
		if service == livenessService {
			want = healthv1.HealthCheckResponse_SERVING // a pod that drains must not be restarted
		}
		if got := probes.status(t, service); got != want {
			t.Errorf("health of %q while draining: %v, want %v", service, got, want)
		}
	}
	stopWatching()
	if exit := r.end(t); exit != 0 {
		t.Errorf("exit status %d", exit)
	}
}

// healthClient sends gRPC health checks.
type healthClient struct{ healthv1.HealthClient }

func dialHealth(t *testing.T, address string) healthClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return healthClient{healthv1.NewHealthClient(conn)}
}

func (h healthClient) status(t *testing.T, service string) healthv1.HealthCheckResponse_ServingStatus {
	t.Helper()
	resp, err := h.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetStatus()
}
