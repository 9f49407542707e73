package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// patience bounds waiting for events that must happen. No test measures time, so it
// is long.
const patience = 2 * time.Minute

// receive returns the next value of a channel, or the zero value once it is closed.
func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("timeout while waiting for: %s", what)
		panic("unreachable")
	}
}

// Models of the tests. The first two are gpt-oss models, each on an engine of
// another kind.
const (
	sglangModel = "gpt-oss-20b"
	vllmModel   = "gpt-oss-120b"
	otherModel  = "some-other-model"
)

var harmonyModels = []string{sglangModel, vllmModel}

// engineSim is the path of the simulated engine's binary.
var engineSim string

func TestMain(m *testing.M) {
	serveStdio()
	dir, err := os.MkdirTemp("", "e2e-")
	if err == nil {
		engineSim = filepath.Join(dir, "engine-sim")
		var out []byte
		if out, err = exec.Command("go", buildArgs(engineSim, "../cmd/engine-sim")...).CombinedOutput(); err != nil {
			err = fmt.Errorf("build the simulated engine: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Sessions of an MCP server in the tests may outlive a broken connection.
	sessions := goleak.IgnoreAnyFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read")
	goleak.VerifyTestMain(m, sessions, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		atEnd()
		os.Exit(code)
	}))
}

// atEnd is called when all tests have ended.
var atEnd = func() {}

// options configure a data plane.
type options struct {
	config       func(*config.Config)
	engine       func(http.Handler) http.Handler // wraps the handler in front of the simulated engine
	simURL       string                          // URL of a running simulated engine
	quiet        bool                            // logs only warnings, and no access log
	metrics      prometheus.Registerer           // of the filter
	bootstrap    func(string) string             // edits Envoy's bootstrap
	limits       func(*envoy.Options)            // sets rate limits
	ownEnvoy     bool                            // no other upstreams are possible than those of the configuration
	modeOverride bool                            // the filter asks for bodies by mode_override
	direct       bool                            // without loopback listener: Envoy forwards the client's own request
}

// dataplane is an Envoy with the filter, a simulated engine and an upstream for
// other models, on free ports.
type dataplane struct {
	url      string // of the clients' listener
	admin    string // of Envoy's admin interface
	sim      string // of the simulated engine
	upstream *upstream
	client   *http.Client
	filter   *grpc.Server
	service  *filter.Server
	direct   bool // without loopback listener
	log      *logFile
}

// start runs a data plane until the test ends. If the test fails, the logs are
// printed.
func start(t testing.TB, o options) *dataplane {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	log := &logFile{quiet: o.quiet}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs of the data plane:\n%s", log)
		}
	})
	d := &dataplane{sim: o.simURL, upstream: &upstream{}, direct: o.direct, log: log}
	if d.sim == "" {
		d.sim = startSim(t, log)
	}
	upstream := serveUpstream(t, d.upstream)
	engineURL := d.sim
	if o.engine != nil {
		server := httptest.NewServer(o.engine(forward(t, d.sim)))
		t.Cleanup(server.Close)
		engineURL = server.URL
	}
	cfg := newConfig(t, engineURL, o.config)
	dir := socketDir(t)
	if !o.direct {
		cfg.Loopback = "unix://" + filepath.Join(dir, "loopback")
	}
	address := d.startFilter(t, cfg, filepath.Join(dir, "filter"), log, filter.Options{Metrics: o.metrics, OwnEnvoy: o.ownEnvoy})
	d.url, d.admin = startEnvoy(t, binary, cfg, address, upstream, o, log)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	d.client = &http.Client{Transport: transport}
	return d
}

// socketDir makes a folder for Unix sockets: the paths of t.TempDir are too long.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newConfig(t testing.TB, engineURL string, change func(*config.Config)) *config.Config {
	t.Helper()
	cfg := config.Defaults()
	cfg.Responses.RelayUnknown = true // there is an upstream
	cfg.Engines = []config.Engine{
		{Kind: "sglang", URLs: []string{engineURL}},
		{Kind: "vllm", URLs: []string{engineURL}},
	}
	cfg.Models = []config.Model{
		{Match: "=" + vllmModel, Engine: "vllm"},
		{Match: "-none", Engine: "vllm"}, // not served: vLLM answers with an error
	}
	if change != nil {
		change(cfg)
	}
	if folder := os.Getenv("E2E_RECORDS"); folder != "" && !cfg.Record.On() { // for envoy-harmony replay
		cfg.Record.Percent, cfg.Record.Content, cfg.Record.MaxRecordBytes = 100, true, 256<<20
		cfg.Record.Folder = filepath.Join(folder, strings.ReplaceAll(t.Name(), "/", "_"))
		if len(cfg.Responses.SealKeys) == 0 {
			cfg.Responses.SealKeys = []string{sealKey}
		}
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// startSim starts a simulated engine and returns its URL.
func startSim(t testing.TB, log *logFile) string {
	t.Helper()
	url, _ := startSimAs(t, log)
	return url
}

// startSimAs starts a simulated engine with flags and also returns its process.
func startSimAs(t testing.TB, log *logFile, flags ...string) (url string, process *os.Process) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), engineSim, append([]string{"--listen", "127.0.0.1:0"}, flags...)...)
	cmd.Stderr = log.named("engine")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // ended by the test's context
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the simulated engine does not start: %v", err)
	}
	_, url, _ = strings.Cut(strings.TrimSpace(line), "listening on ")
	return url, cmd.Process
}

// startFilter serves the filter on a Unix socket and returns its address.
func (d *dataplane) startFilter(t testing.TB, cfg *config.Config, socket string, log *logFile, o filter.Options) string {
	t.Helper()
	logger := logrus.New()
	logger.SetOutput(log.named("filter"))
	logger.SetLevel(logrus.DebugLevel)
	if log.quiet {
		logger.SetLevel(logrus.WarnLevel)
	}
	o.Log = logger
	server, err := filter.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d.service = server
	d.filter = grpc.NewServer(grpc.WaitForHandlers(true), grpc.ForceServerCodecV2(filter.Codec()))
	server.Register(d.filter)
	healthv1.RegisterHealthServer(d.filter, healthy())
	ended := make(chan error, 1)
	go func() { ended <- d.filter.Serve(listener) }()
	t.Cleanup(func() {
		d.filter.Stop()
		if err := <-ended; err != nil {
			t.Errorf("filter: %v", err)
		}
		now, cancel := context.WithCancel(context.Background())
		cancel()
		if err := server.Close(now); err != nil {
			t.Errorf("filter: %v", err)
		}
	})
	return "unix://" + socket
}

// healthy answers the health checks of Envoy as the commands of the filter do.
func healthy() *health.Server {
	h := health.NewServer()
	h.SetServingStatus("liveness", healthv1.HealthCheckResponse_SERVING)
	h.SetServingStatus("readiness", healthv1.HealthCheckResponse_SERVING)
	return h
}

func startEnvoy(t testing.TB, binary string, cfg *config.Config, filterAddress, upstream string, o options, log *logFile) (url, admin string) {
	t.Helper()
	engines := make([]envoy.Engine, len(cfg.Engines))
	for i, e := range cfg.Engines {
		bootstrapRoom, _ := engine.Disaggregates(e.Kind)
		engines[i] = envoy.Engine{Name: e.Name, URLs: e.URLs, GRPC: engine.IsGRPC(e.Kind), OneCall: engine.ClosesConnections(e.Kind), HealthPath: e.HealthPath, Prefill: e.PrefillURLs(), PinPrefill: bootstrapRoom, EndpointPicker: e.EndpointPicker}
	}
	settings := envoy.Options{
		Listen: "127.0.0.1:0", ExtProc: filterAddress, Loopback: cfg.Loopback, PrefixHeader: cfg.Routing.PrefixHeader, SessionHeader: cfg.Routing.SessionHeader, SelectionHeader: cfg.Routing.SelectionHeader, Engines: engines, Upstream: upstream, TenantHeader: cfg.TenantHeader, OpenPaths: cfg.Routing.OpenPaths, ModeOverride: o.modeOverride || os.Getenv("E2E_MODE_OVERRIDE") != "", AccessLog: !log.quiet,
	}
	if o.limits != nil {
		o.limits(&settings)
	}
	bootstrap, err := envoy.Bootstrap(settings)
	if err != nil {
		t.Fatal(err)
	}
	if o.bootstrap != nil {
		bootstrap = []byte(o.bootstrap(string(bootstrap)))
	}
	return launchEnvoy(t, binary, bootstrap, log)
}

// launchEnvoy runs an Envoy until the test ends.
func launchEnvoy(t testing.TB, binary string, bootstrap []byte, log *logFile) (url, admin string) {
	t.Helper()
	sink := log.named("envoy")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	proxy, err := envoy.Launch(ctx, envoy.LaunchOptions{
		Binary: binary, Bootstrap: bootstrap, Concurrency: 1,
		Log: func(line string) { fmt.Fprintln(sink, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Stop(context.Background()) })
	address, err := proxy.ListenAddress(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + address, "http://" + proxy.AdminAddress()
}

// openai returns a client of the data plane.
func (d *dataplane) openai(o ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(d.url + "/v1"), option.WithAPIKey("none"),
		option.WithHTTPClient(d.client), option.WithMaxRetries(0),
	}, o...)...)
}

// do sends a request.
func (d *dataplane) do(t *testing.T, method, path, contentType string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := d.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// chat posts a chat request with one user message and reads the reply. more has
// further JSON members, each after a comma.
func (d *dataplane) chat(t *testing.T, model, content, more string, headers ...string) (*http.Response, string) {
	t.Helper()
	quoted, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]%s}`, model, quoted, more)
	resp := d.do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body), headers...)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the reply: %v, after %q", err, text)
	}
	return resp, string(text)
}

// engineRequest is the simulated engine's record of a request.
type engineRequest struct {
	Number     int               `json:"number"`
	Path       string            `json:"path"`
	Header     map[string]string `json:"header"`
	RequestID  string            `json:"request_id"`
	Params     json.RawMessage   `json:"params"`
	Prompt     string            `json:"prompt"`
	PromptIDs  []harmony.Token   `json:"prompt_ids"`
	Output     []string          `json:"output"`
	OutputIDs  [][]harmony.Token `json:"output_ids"`
	BodyBytes  int64             `json:"body_bytes"`
	BodySHA256 string            `json:"body_sha256"`
	State      string            `json:"state"`
}

// States of an engine request.
const (
	stateRunning   = "running"
	stateFinished  = "finished"
	stateCancelled = "cancelled"
)

// engineRequests returns the requests with an x-request-id in the order of arrival.
// A token request's own id contains it.
func (d *dataplane) engineRequests(t *testing.T, id string) []engineRequest {
	t.Helper()
	var found []engineRequest
	for _, r := range d.allEngineRequests(t) {
		if strings.Contains(r.RequestID+"-", id+"-") || r.Header["x-request-id"] == id {
			found = append(found, r)
		}
	}
	return found
}

// allEngineRequests returns the requests that the engine remembers.
func (d *dataplane) allEngineRequests(t *testing.T) []engineRequest {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.sim+"/sim/requests", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []engineRequest
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// awaitEngine waits until the engine has a request with an id in a state.
func (d *dataplane) awaitEngine(t *testing.T, id, state string) engineRequest {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		requests := d.engineRequests(t, id)
		for _, r := range requests {
			if r.State == state {
				return r
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the engine has no request %s that is %s: %+v", id, state, requests)
		}
	}
}

// upstream is the service for other models and paths. Tests set its handler.
type upstream struct {
	mu      sync.Mutex
	handler http.HandlerFunc
}

func (f *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	h := f.handler
	f.mu.Unlock()
	if h == nil {
		http.NotFound(w, r)
		return
	}
	h(w, r)
}

func (f *upstream) handle(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handler = h
}

// serveUpstream serves an upstream and returns its URL.
func serveUpstream(t testing.TB, f *upstream) string {
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return server.URL
}

// forward forwards requests to a URL.
func forward(t testing.TB, url string) http.Handler {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return fullDuplex(func(w http.ResponseWriter, r *http.Request) {
		req := r.Clone(r.Context())
		req.RequestURI = ""
		target, err := req.URL.Parse(url + r.URL.RequestURI())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		req.URL = target
		resp, err := transport.RoundTrip(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(flusher{w, http.NewResponseController(w)}, resp.Body) // the client may have disconnected
	})
}

// fullDuplex lets a forwarding handler read the rest of a request after the
// response has started.
func fullDuplex(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		next(w, r)
	}
}

// flusher flushes after each write.
type flusher struct {
	w io.Writer
	c *http.ResponseController
}

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	return n, errors.Join(err, f.c.Flush())
}

// logFile collects the logs of a data plane.
type logFile struct {
	quiet bool
	mu    sync.Mutex
	text  bytes.Buffer
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logFile) named(name string) io.Writer { return &namedLog{l, name} }

type namedLog struct {
	file *logFile
	name string
}

func (n *namedLog) Write(p []byte) (int, error) {
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	fmt.Fprintf(&n.file.text, "%-7s %s", n.name, p)
	return len(p), nil
}
