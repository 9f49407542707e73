package stack

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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/tidwall/gjson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Patience bounds waiting for events that must happen. No test measures time, so it
// is long.
const Patience = 2 * time.Minute

// Receive returns the next value of a channel, or the zero value once it is closed.
func Receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Patience):
		t.Fatalf("timeout while waiting for: %s", what)
		// Fatalf does not return, which the compiler does not know.
		panic("unreachable")
	}
}

// Models of the tests. The first two are gpt-oss models, each on an engine of
// another kind.
const (
	SGLangModel = "gpt-oss-20b"
	VLLMModel   = "gpt-oss-120b"
	OtherModel  = "some-other-model"
)

// HarmonyModels are the models that the filter serves.
var HarmonyModels = []string{SGLangModel, VLLMModel}

// Options configure a data plane.
type Options struct {
	// Config changes the filter's configuration.
	Config func(*config.Config)
	// Metrics are the filter's.
	Metrics prometheus.Registerer
	// Direct leaves out the loopback listener: Envoy forwards the client's own request.
	Direct bool
	// ModeOverride lets the filter ask for bodies by mode_override.
	ModeOverride bool
	// WebSocket serves the Responses API over WebSocket too.
	WebSocket bool
	// OwnEnvoy says that no other upstreams are possible than those of the configuration.
	OwnEnvoy bool

	// SimURL is the URL of a running simulated engine.
	SimURL string
	// Engine wraps the handler in front of the simulated engine.
	Engine func(http.Handler) http.Handler

	// Limits sets rate limits, Bootstrap edits Envoy's bootstrap.
	Limits    func(*envoy.Options)
	Bootstrap func(string) string
	// Quiet logs warnings only, and has no access log.
	Quiet bool
}

// Dataplane is an Envoy with the filter, a simulated engine and an upstream for
// other models, on free ports.
type Dataplane struct {
	// URL is that of the clients' listener, Admin of Envoy's admin interface, Sim of the
	// simulated engine.
	URL   string
	Admin string
	Sim   string

	Upstream *Upstream
	Client   *http.Client
	Filter   *grpc.Server
	Service  *filter.Server
	Logs     *LogFile

	// Direct says that there is no loopback listener.
	Direct bool
}

// Start runs a data plane until the test ends. If the test fails, the logs are
// printed.
func Start(t testing.TB, o Options) *Dataplane {
	t.Helper()
	binary, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	// Older Envoys refuse what the filter answers then.
	if o.ModeOverride {
		NeedEnvoy(t, 40)
	}
	log := LogOf(t)
	log.Quiet = o.Quiet

	d := &Dataplane{Sim: o.SimURL, Upstream: &Upstream{}, Direct: o.Direct, Logs: log}
	if d.Sim == "" {
		d.Sim = StartSim(t, log)
	}

	upstream := ServeUpstream(t, d.Upstream)
	engineURL := d.Sim

	// The handler of the test stands before the simulator, so that it can delay or break what
	// the simulator would answer.
	if o.Engine != nil {
		server := httptest.NewServer(o.Engine(Forward(t, d.Sim)))
		t.Cleanup(server.Close)
		engineURL = server.URL
	}

	cfg := NewConfig(t, engineURL, o.Config)
	dir := SocketDir(t)

	// Without a loopback the filter makes no calls of its own: it rewrites the client's request,
	// and Envoy sends it on.
	if !o.Direct {
		cfg.Loopback = "unix://" + filepath.Join(dir, "loopback")
	}

	if o.WebSocket {
		cfg.WebSocket.Listen = "unix://" + filepath.Join(dir, "websocket")
	}

	// An Envoy that starts before the filter finds it unhealthy at first, and answers 503.
	address := d.StartFilter(t, cfg, filepath.Join(dir, "filter"), log,
		filter.Options{Metrics: o.Metrics, OwnEnvoy: o.OwnEnvoy})
	if o.WebSocket {
		d.ServeSockets(t, filepath.Join(dir, "websocket"))
	}
	d.URL, d.Admin = StartEnvoy(t, binary, cfg, address, upstream, o, log)

	d.Client = NewClient(t)
	return d
}

// NewClient returns a client with connections of its own, which end with the test.
func NewClient(t testing.TB) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// SocketDir makes a folder for Unix sockets: the paths of t.TempDir are too long.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// NewConfig returns a configuration of two engines, which are one service. With
// E2E_RECORDS the filter records everything there, for "envoy-harmony replay".
func NewConfig(t testing.TB, engineURL string, change func(*config.Config)) *config.Config {
	t.Helper()
	cfg := config.Defaults()
	cfg.Responses.RelayUnknown = true // there is an upstream
	// The simulator speaks all wire formats, so one URL can stand for two kinds.
	cfg.Engines = []config.Engine{
		{Kind: "sglang", URLs: []string{engineURL}},
		{Kind: "vllm", URLs: []string{engineURL}},
	}
	cfg.Models = []config.Model{
		{Match: "=" + VLLMModel, Engine: "vllm"},
		{Match: "-none", Engine: "vllm"}, // not served: vLLM answers with an error
	}

	// Nearly all tests can run with it: it changes no reply that keeps to the tools. Scripts that call others, or
	// that no grammar accepts, are not written as they are.
	if word := os.Getenv("E2E_TOOL_STRICTNESS"); word != "" {
		cfg.ModelDefaults.ToolStrictness = word
	}
	if change != nil {
		change(cfg)
	}

	if folder := os.Getenv("E2E_RECORDS"); folder != "" && !cfg.Record.On() { // for envoy-harmony replay
		cfg.Record.Percent, cfg.Record.Content, cfg.Record.MaxRecordBytes = 100, true, 256<<20
		cfg.Record.Folder = filepath.Join(folder, strings.ReplaceAll(t.Name(), "/", "_"))
		if len(cfg.Responses.SealKeys) == 0 {
			cfg.Responses.SealKeys = []string{SealKey}
		}
	}

	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// StartSim starts a simulated engine and returns its URL.
func StartSim(t testing.TB, log *LogFile) string {
	t.Helper()
	url, _ := StartSimAs(t, log)
	return url
}

// StartSimAs starts a simulated engine with flags and also returns its process.
func StartSimAs(t testing.TB, log *LogFile, flags ...string) (url string, process *os.Process) {
	t.Helper()
	// The kernel chooses the port: packages of tests run side by side.
	flags = slices.Concat([]string{"--listen", "127.0.0.1:0", "--until-stdin-ends"}, flags)
	// It outlives the test's own context, to be asked at the end.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, EngineSim, flags...)
	t.Cleanup(func() {
		checkCallIDs(t, url)
		cancel()
		_ = cmd.Wait()
	})
	cmd.Stderr = log.Named("engine")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	// The pipe ends with the process of the tests, however that ends: a simulator that
	// outlives a killed test goes on with what it was asked for, and takes all memory.
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	// The line names the port, and is written when the simulator listens.
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the simulated engine does not start: %v", err)
	}
	_, url, _ = strings.Cut(strings.TrimSpace(line), "listening on ")
	return url, cmd.Process
}

// checkCallIDs shows that no id that an engine has got in a test begins with another one. SGLang
// would abort both with the second. An engine that the test has ended is not asked.
func checkCallIDs(t testing.TB, url string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url + "/sim/ids")
	if err != nil {
		return
	}
	defer resp.Body.Close()
	var ids []string
	if err := json.NewDecoder(resp.Body).Decode(&ids); err != nil {
		t.Error(err)
	}

	// In order, an id follows the longest one that it begins with. Envoy repeats a call with its
	// id where no engine has begun it, and the parts of one call share its id.
	slices.Sort(ids)
	ids = slices.Compact(ids)

	// Tests that ask the engine themselves send no id: it has made one.
	ids = slices.DeleteFunc(ids, func(id string) bool { return strings.HasPrefix(id, "sim-") })
	for i := 1; i < len(ids); i++ {
		if strings.HasPrefix(ids[i], ids[i-1]) {
			t.Errorf("a call has the id %s, which begins with that of another: %s", ids[i], ids[i-1])
		}
	}
}

// StartFilter serves the filter on a Unix socket and returns its address.
func (d *Dataplane) StartFilter(t testing.TB, cfg *config.Config, socket string, log *LogFile,
	o filter.Options,
) string {
	t.Helper()
	logger := logrus.New()
	logger.SetOutput(log.Named("filter"))
	logger.SetLevel(logrus.DebugLevel)
	if log.Quiet {
		logger.SetLevel(logrus.WarnLevel)
	}
	o.Log = logger

	server, err := filter.New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}

	// A path is surely free, unlike a port that is chosen before somebody listens at it.
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	d.Service = server
	// As the program does it. Stop returns when no handler runs any more, so that the store is
	// closed after the last of them.
	d.Filter = grpc.NewServer(grpc.WaitForHandlers(true), grpc.ForceServerCodecV2(filter.Codec()))
	server.Register(d.Filter)
	healthv1.RegisterHealthServer(d.Filter, healthy())

	ended := make(chan error, 1)
	go func() { ended <- d.Filter.Serve(listener) }()
	t.Cleanup(func() {
		d.Filter.Stop()
		if err := <-ended; err != nil {
			t.Errorf("filter: %v", err)
		}

		// Background responses of a test that has ended are not waited for.
		now, cancel := context.WithCancel(context.Background())
		cancel()
		if err := server.Close(now); err != nil {
			t.Errorf("filter: %v", err)
		}
	})
	return "unix://" + socket
}

// ServeSockets serves the filter's WebSocket connections on a Unix socket.
func (d *Dataplane) ServeSockets(t testing.TB, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: d.Service.Sockets(), ReadHeaderTimeout: Patience}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		// Connections of a test that has ended are not waited for.
		now, cancel := context.WithCancel(context.Background())
		cancel()
		d.Service.CloseSockets(now)
		_ = server.Close()
		<-ended
	})
}

// healthy answers the health checks of Envoy as the commands of the filter do.
func healthy() *health.Server {
	h := health.NewServer()
	h.SetServingStatus("liveness", healthv1.HealthCheckResponse_SERVING)
	h.SetServingStatus("readiness", healthv1.HealthCheckResponse_SERVING)
	return h
}

// StartEnvoy runs an Envoy with the generated bootstrap until the test ends.
func StartEnvoy(t testing.TB, binary string, cfg *config.Config, filterAddress, upstream string, o Options,
	log *LogFile,
) (url, admin string) {
	t.Helper()
	engines := make([]envoy.Engine, len(cfg.Engines))
	for i, e := range cfg.Engines {
		// A decode engine of SGLang meets its prefill engine in a room that the filter names, so that
		// the call has to reach this very engine.
		bootstrapRoom, _ := engine.Disaggregates(e.Kind)
		engines[i] = envoy.Engine{
			Name: e.Name, URLs: e.URLs, GRPC: engine.IsGRPC(e.Kind),
			OneCall: engine.ClosesConnections(e.Kind), HealthPath: e.HealthPath, Prefill: e.PrefillURLs(),
			PinPrefill: bootstrapRoom, EndpointPicker: e.EndpointPicker,
		}
	}

	settings := envoy.Options{
		Listen: "127.0.0.1:0", ExtProc: filterAddress, Loopback: cfg.Loopback, PrefixHeader: cfg.Routing.PrefixHeader,
		SessionHeader: cfg.Routing.SessionHeader, SelectionHeader: cfg.Routing.SelectionHeader, Engines: engines,
		Upstream: upstream, WebSocket: cfg.WebSocket.Listen, TenantHeader: cfg.TenantHeader, OpenPaths: cfg.Routing.OpenPaths,
		ModeOverride: o.ModeOverride || os.Getenv("E2E_MODE_OVERRIDE") != "", AccessLog: !log.Quiet,
	}

	if o.Limits != nil {
		o.Limits(&settings)
	}

	bootstrap, err := envoy.Bootstrap(settings)
	if err != nil {
		t.Fatal(err)
	}

	if o.Bootstrap != nil {
		bootstrap = []byte(o.Bootstrap(string(bootstrap)))
	}

	return launchEnvoy(t, binary, bootstrap, log)
}

// launchEnvoy runs an Envoy until the test ends.
func launchEnvoy(t testing.TB, binary string, bootstrap []byte, log *LogFile) (url, admin string) {
	t.Helper()
	sink := log.Named("envoy")
	// It bounds the start alone. Envoy itself ends with the test.
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	proxy, err := envoy.Launch(ctx, envoy.LaunchOptions{
		Binary: binary, Bootstrap: bootstrap, Concurrency: 1,
		Log: func(line string) { fmt.Fprintln(sink, line) },
	})
	if err != nil {
		t.Fatal(err)
	}

	// The test's own context has ended when the functions of Cleanup run.
	t.Cleanup(func() { proxy.Stop(context.Background()) })
	address, err := proxy.ListenAddress(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + address, "http://" + proxy.AdminAddress()
}

// Openai returns a client of the data plane.
func (d *Dataplane) Openai(o ...option.RequestOption) openai.Client {
	// The SDK would send a request again after 408, 409, 429 and 5xx: tests look at the first
	// answer, and count what the engine gets.
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(d.URL + "/v1"), option.WithAPIKey("none"),
		option.WithHTTPClient(d.Client), option.WithMaxRetries(0),
	}, o...)...)
}

// Do sends a request.
func (d *Dataplane) Do(t *testing.T, method, path, contentType string, body io.Reader,
	headers ...string,
) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := d.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}

	// The caller reads the body, perhaps after others have begun.
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// Chat posts a chat request with one user message and reads the reply. more has
// further JSON members, each after a comma.
func (d *Dataplane) Chat(t *testing.T, model, content, more string, headers ...string) (*http.Response, string) {
	t.Helper()
	quoted, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]%s}`, model, quoted, more)
	resp := d.Do(t, http.MethodPost, "/v1/chat/completions", "application/json", strings.NewReader(body), headers...)
	return resp, ReadText(t, resp)
}

// Answer posts JSON and returns the whole reply, which has to be a 200.
func (d *Dataplane) Answer(t *testing.T, path, body string, headers ...string) string {
	t.Helper()
	resp := d.Do(t, http.MethodPost, path, "application/json", strings.NewReader(body), headers...)
	text := ReadText(t, resp)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", path, resp.Status, text)
	}
	return text
}

// EngineRequest is the simulated engine's record of a request.
type EngineRequest struct {
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
	StateRunning   = "running"
	StateFinished  = "finished"
	StateCancelled = "cancelled"
)

// EngineRequests returns the requests with an x-request-id in the order of arrival.
// A token request's own id contains it.
func (d *Dataplane) EngineRequests(t *testing.T, id string) []EngineRequest {
	t.Helper()
	var found []EngineRequest

	// With a dash at the end, turn-1 is not found in turn-10. A request that Envoy passes through
	// has no id in its body, but the header.
	for _, r := range d.AllEngineRequests(t) {
		if strings.Contains(r.RequestID+"-", id+"-") || r.Header["x-request-id"] == id {
			found = append(found, r)
		}
	}
	return found
}

// AllEngineRequests returns the requests that the engine remembers.
func (d *Dataplane) AllEngineRequests(t *testing.T) []EngineRequest {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.Sim+"/sim/requests", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []EngineRequest
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// AwaitEngine waits until the engine has a request with an id in a state.
func (d *Dataplane) AwaitEngine(t *testing.T, id, state string) EngineRequest {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		requests := d.EngineRequests(t, id)
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

// Upstream is the service for other models and paths. Tests set its handler.
type Upstream struct {
	mu      sync.Mutex
	Handler http.HandlerFunc
}

// ServeHTTP calls the handler of the test, if it has set one.
func (f *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	// Called without the lock: a handler may wait until the test sets the next one.
	h := f.Handler
	f.mu.Unlock()
	if h == nil {
		http.NotFound(w, r)
		return
	}
	h(w, r)
}

// Handle sets the handler.
func (f *Upstream) Handle(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Handler = h
}

// ServeUpstream serves an upstream and returns its URL.
func ServeUpstream(t testing.TB, f *Upstream) string {
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return server.URL
}

// Forward forwards requests to a URL.
func Forward(t testing.TB, url string) http.Handler {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return FullDuplex(func(w http.ResponseWriter, r *http.Request) {
		req := r.Clone(r.Context())
		// net/http rejects it in a request that is sent.
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
		// Each piece is sent at once: a buffer would hold back tokens that a test waits for.
		_, _ = io.Copy(Flusher{w, http.NewResponseController(w)}, resp.Body) // the client may have disconnected
	})
}

// FullDuplex lets a forwarding handler read the rest of a request after the
// response has started.
func FullDuplex(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Else net/http reads the rest of an HTTP/1 request before it writes a response, and both
		// sides wait for one another where a client sends slowly.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		next(w, r)
	}
}

// Flusher flushes after each write.
type Flusher struct {
	W io.Writer
	C *http.ResponseController
}

// Write writes and flushes.
func (f Flusher) Write(p []byte) (int, error) {
	n, err := f.W.Write(p)
	return n, errors.Join(err, f.C.Flush())
}

// LogFile collects the logs of a data plane.
type LogFile struct {
	Quiet bool
	mu    sync.Mutex
	text  bytes.Buffer
}

// String returns all lines.
func (l *LogFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Named returns a writer whose lines begin with a name.
func (l *LogFile) Named(name string) io.Writer { return &namedLog{l, name} }

type namedLog struct {
	file *LogFile
	name string
}

func (n *namedLog) Write(p []byte) (int, error) {
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	fmt.Fprintf(&n.file.text, "%-7s %s", n.name, p)
	// Not the number of bytes with the name: a writer must not report more than it was given.
	return len(p), nil
}

// Request is a request with an id.
func (d *Dataplane) Request(t *testing.T, path, body, id string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	return req
}

// Post sends JSON and returns the status and the reply.
func (d *Dataplane) Post(t *testing.T, path, body string) (int, gjson.Result) {
	t.Helper()
	resp := d.Do(t, http.MethodPost, path, "application/json", strings.NewReader(body))
	return resp.StatusCode, gjson.Parse(ReadText(t, resp))
}
