package operations

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
	metricsv1 "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	spanv1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/envoy"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// collector receives spans and metrics by OTLP.
type collector struct {
	tracev1.UnimplementedTraceServiceServer
	metrics metricsReceiver

	mu    sync.Mutex
	spans []receivedSpan
}

// metricsReceiver keeps the names of metrics, and the traces of their exemplars.
type metricsReceiver struct {
	metricsv1.UnimplementedMetricsServiceServer
	mu        sync.Mutex
	names     map[string]bool
	exemplars map[string]bool
}

// receivedSpan is a span with the name of the service that has sent it.
type receivedSpan struct {
	*spanv1.Span
	service string
}

func (s receivedSpan) id() string     { return hex.EncodeToString(s.SpanId) }
func (s receivedSpan) parent() string { return hex.EncodeToString(s.ParentSpanId) }
func (s receivedSpan) trace() string  { return hex.EncodeToString(s.TraceId) }

// attribute returns a text.
func attribute(list []*commonv1.KeyValue, key string) string {
	for _, a := range list {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// Export implements the trace service.
func (c *collector) Export(_ context.Context, r *tracev1.ExportTraceServiceRequest) (*tracev1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, receivedSpan{s, attribute(of.Resource.GetAttributes(), "service.name")})
			}
		}
	}
	return &tracev1.ExportTraceServiceResponse{}, nil
}

// Export implements the metrics service.
func (c *metricsReceiver) Export(_ context.Context, r *metricsv1.ExportMetricsServiceRequest) (*metricsv1.ExportMetricsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceMetrics {
		for _, scope := range of.ScopeMetrics {
			for _, m := range scope.Metrics {
				c.names[m.Name] = true
				for _, p := range m.GetHistogram().GetDataPoints() {
					for _, e := range p.Exemplars {
						c.exemplars[hex.EncodeToString(e.TraceId)] = true
					}
				}
			}
		}
	}
	return &metricsv1.ExportMetricsServiceResponse{}, nil
}

// received are the spans of a service, by their ids.
func (c *collector) received(service string) map[string]receivedSpan {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]receivedSpan{}
	for _, s := range c.spans {
		if s.service == service {
			found[s.id()] = s
		}
	}
	return found
}

func newCollector() *collector {
	return &collector{metrics: metricsReceiver{names: map[string]bool{}, exemplars: map[string]bool{}}}
}

// startCollector serves a collector over gRPC and over HTTP, and returns both
// addresses, host:port and URL.
func startCollector(t *testing.T) (c *collector, overGRPC, overHTTP string) {
	t.Helper()
	c = newCollector()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	server := grpc.NewServer()
	tracev1.RegisterTraceServiceServer(server, c)
	metricsv1.RegisterMetricsServiceServer(server, &c.metrics)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, q *http.Request) {
		var r tracev1.ExportTraceServiceRequest
		if err := readProto(q, &r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = c.Export(q.Context(), &r)
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, q *http.Request) {
		var r metricsv1.ExportMetricsServiceRequest
		if err := readProto(q, &r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = c.metrics.Export(q.Context(), &r)
	})

	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		web.Close()
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("collector: %v", err)
		}
	})
	return c, listener.Addr().String(), web.URL
}

func readProto(q *http.Request, m proto.Message) error {
	var body io.Reader = q.Body
	if q.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(q.Body)
		if err != nil {
			return err
		}
		body = unzipped
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// traceWith makes an Envoy send spans of both listeners to a collector.
func traceWith(address string) func(bootstrap string) string {
	host, port, _ := net.SplitHostPort(address)
	const tracing = `
          tracing:
            random_sampling: {value: 100}
            provider:
              name: envoy.tracers.opentelemetry
              typed_config:
                "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                grpc_service: {envoy_grpc: {cluster_name: collector}, timeout: 5s}
                service_name: envoy`

	cluster := fmt.Sprintf(`
  clusters:
  - name: collector
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: collector
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %q, port_value: %s}}}}]}]`, host, port)

	return func(bootstrap string) string {
		for _, name := range []string{"openai", "loopback"} {
			prefix := "\n          stat_prefix: " + name
			bootstrap = strings.Replace(bootstrap, prefix, prefix+tracing, 1)
		}
		return strings.Replace(bootstrap, "\n  clusters:", cluster, 1)
	}
}

// tracedConfig is the configuration of a filter with a store and a tool.
const tracedConfig = `
listen: unix://%[1]s/filter
admin: 127.0.0.1:0
loopback: unix://%[1]s/loopback
store_url: sqlite:%[1]s/store.db
engines: [{kind: sglang, urls: [%[2]q]}]
tools: {servers: [{label: docs, url: %[3]q}]}
log: {format: json}
`

// traced is a filter in its own process, behind an Envoy.
type traced struct {
	*stack.Dataplane
	process *exec.Cmd
}

// startTraced starts the filter with variables of OpenTelemetry. change edits Envoy's
// bootstrap; it may be nil.
func startTraced(t *testing.T, environ []string, change func(string) string, docs string) *traced {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "envoy-harmony")
	if out, err := exec.Command("go", stack.BuildArgs(binary, "../cmd/envoy-harmony")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	proxy, err := envoy.Find(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}

	dir, log := stack.SocketDir(t), stack.LogOf(t)
	sim := stack.StartSim(t, log)
	file := filepath.Join(dir, "harmony.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, tracedConfig, dir, sim, docs), 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(context.Background(), binary, "serve", "--config", file)
	cmd.Stderr = log.Named("serve")
	cmd.Env = append(os.Environ(), environ...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test has failed
		_ = cmd.Wait()
	})

	cfg := stack.NewConfig(t, sim, func(c *config.Config) { c.Loopback = "unix://" + filepath.Join(dir, "loopback") })
	d := &stack.Dataplane{Sim: sim, Client: stack.NewClient(t), Logs: log}
	stack.Eventually(t, "the filter", func() bool {
		conn, err := net.Dial("unix", filepath.Join(dir, "filter"))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})

	d.URL, d.Admin = stack.StartEnvoy(t, proxy, cfg, "unix://"+filepath.Join(dir, "filter"), sim, stack.Options{Bootstrap: change}, log)
	return &traced{d, cmd}
}

// end ends the filter in good order.
func (d *traced) end(t *testing.T) {
	t.Helper()
	d.Client.CloseIdleConnections()
	if err := d.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.process.Wait(); err != nil {
		t.Errorf("the filter ends with %v", err)
	}
}

// withTool asks for a response with a tool call.
func (d *traced) withTool(t *testing.T, more string, headers ...string) gjson.Result {
	t.Helper()
	body := `{"model":"gpt-oss-20b","input":"NOTHINK\nCALL docs.search {\"q\":\"rivers\"}\nNEXT\nSAY done","tools":[{"type":"mcp","server_label":"docs","require_approval":"never"}]` + more + `}`
	return gjson.Parse(d.Answer(t, "/v1/responses", body, headers...))
}

// path is the names of a span and of those above it, up to one that is not known.
func path(all map[string]receivedSpan, s receivedSpan) string {
	names := []string{s.Name}
	for above, ok := all[s.parent()]; ok; above, ok = all[above.parent()] {
		names = append(names, above.Name)
	}
	slices.Reverse(names)
	return strings.Join(names, " > ")
}

// Request ids. Envoy samples by them, and only those that are UUIDs; the 9 is its mark
// of a request that is traced.
const (
	withParent    = "11111111-1111-9111-8111-111111111111"
	withoutParent = "22222222-2222-9222-8222-222222222222"
)

// One trace goes from the client through Envoy, the filter, its model calls, the
// store and a tool, with the spans of Envoy in between. Nothing is sent before the
// process ends: then all is.
func TestOneTrace(t *testing.T) {
	collector, address, _ := startCollector(t)
	docs := stack.NewToolServer(t)
	d := startTraced(t, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + address, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_BSP_SCHEDULE_DELAY=3600000", "OTEL_METRIC_EXPORT_INTERVAL=3600000", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
	}, traceWith(address), docs.URL)
	const clients = "4bf92f3577b34da6a3ce929d0e0e4736"
	d.withTool(t, "", "traceparent", "00-"+clients+"-00f067aa0ba902b7-01", "x-request-id", withParent)
	d.withTool(t, "", "x-request-id", withoutParent)
	if n := len(collector.received("envoy-harmony")); n > 0 {
		t.Errorf("%d spans were sent at once", n)
	}
	d.end(t)
	spans := collector.received("envoy-harmony")
	stack.Eventually(t, "Envoy's spans", func() bool { return allParents(collector, spans) })
	all := collector.received("envoy")
	maps.Copy(all, spans)

	const request = "chat gpt-oss-20b"
	got := map[string][]string{} // paths by request
	ofTrace := map[string]string{}
	for _, s := range spans {
		if id := attribute(s.Attributes, "harmony.request_id"); id != "" {
			ofTrace[s.trace()] = id
		}
	}
	for _, s := range spans {
		_, below, _ := strings.Cut(path(all, s), "ExternalProcessor.Process egress > ")
		got[ofTrace[s.trace()]] = append(got[ofTrace[s.trace()]], below)
	}
	for _, id := range []string{withParent, withoutParent} {
		slices.Sort(got[id])
		counts := map[string]int{}
		for _, p := range got[id] {
			counts[p]++
		}
		if counts[request] != 1 || counts[request+" > "+request] != 2 || counts[request+" > execute_tool search"] != 1 || counts[request+" > tools/list"] != 1 || counts[request+" > put_response"] != 1 || counts[""] > 0 {
			t.Errorf("%s: spans of the filter below Envoy's: %v", id, counts)
		}
	}
	if len(got) != 2 || ofTrace[clients] != withParent {
		t.Errorf("traces %v", ofTrace)
	}
	loopback := 0
	for _, s := range collector.received("envoy") {
		if strings.HasSuffix(path(all, s), request+" > "+request+" > "+s.Name) {
			loopback++
		}
	}
	if loopback < 4 {
		t.Errorf("Envoy has %d spans below the filter's model calls", loopback)
	}
	wantEnginesTrace(t, d, all)
	wantToolsTrace(t, docs, all)
	for _, name := range []string{"gen_ai.server.request.duration", "gen_ai.server.time_to_first_token", "gen_ai.client.operation.duration", "gen_ai.client.token.usage", "mcp.client.operation.duration"} {
		if !collector.metrics.names[name] {
			t.Errorf("no %s among %v", name, slices.Collect(maps.Keys(collector.metrics.names)))
		}
	}
	if !collector.metrics.exemplars[clients] {
		t.Error("no exemplar has the client's trace")
	}
}

// allParents reports whether the parents of all spans have been received, except for
// the client's.
func allParents(c *collector, spans map[string]receivedSpan) bool {
	all := c.received("envoy")
	maps.Copy(all, spans)
	for _, s := range spans {
		above := s
		for {
			next, ok := all[above.parent()]
			if !ok {
				break
			}
			above = next
		}
		if above.service != "envoy" || above.Kind != spanv1.Span_SPAN_KIND_SERVER {
			return false
		}
	}
	return len(spans) > 0
}

// wantEnginesTrace checks that the engine's requests belong to spans of Envoy below
// the filter's model calls.
func wantEnginesTrace(t *testing.T, d *traced, all map[string]receivedSpan) {
	t.Helper()
	requests := append(d.EngineRequests(t, withParent), d.EngineRequests(t, withoutParent)...)
	if len(requests) != 4 {
		t.Errorf("%d requests to the engine", len(requests))
	}
	for _, r := range requests {
		fields := strings.Split(r.Header["traceparent"], "-")
		if len(fields) != 4 || all[fields[2]].trace() != fields[1] || all[fields[2]].service != "envoy" {
			t.Errorf("the engine gets the traceparent %q", r.Header["traceparent"])
		}
	}
}

// wantToolsTrace checks that the tool's requests belong to spans of the filter.
func wantToolsTrace(t *testing.T, docs *stack.ToolServer, all map[string]receivedSpan) {
	t.Helper()
	docs.Mu.Lock()
	defer docs.Mu.Unlock()
	names := map[string]int{}
	for _, h := range docs.Headers {
		if fields := strings.Split(h.Get("traceparent"), "-"); len(fields) == 4 {
			names[all[fields[2]].Name]++
		}
	}
	if names["execute_tool search"] < 2 || names[""] > 0 {
		t.Errorf("requests to the tool by span: %v", names)
	}
}

// OTLP over HTTP, an Envoy that does not trace, content by opt-in, and a response in
// the background. The trace is the client's.
func TestTraceOverHTTP(t *testing.T) {
	collector, _, url := startCollector(t)
	docs := stack.NewToolServer(t)
	d := startTraced(t, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_METRICS_EXPORTER=none", "OTEL_SERVICE_NAME=mine", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
	}, nil, docs.URL)

	r := d.withTool(t, `,"background":true`, "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	stack.Eventually(t, "the response", func() bool {
		resp := d.Do(t, http.MethodGet, "/v1/responses/"+r.Get("id").Str, "", nil, "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
		b, _ := io.ReadAll(resp.Body)
		return gjson.GetBytes(b, "status").Str == "completed"
	})
	d.end(t)

	spans := collector.received("mine")
	counts := map[string]int{}
	var content bytes.Buffer
	for _, s := range spans {
		counts[path(spans, s)]++
		if s.trace() != "4bf92f3577b34da6a3ce929d0e0e4736" { // requests that were not sampled have none
			t.Errorf("%s is in the trace %s", s.Name, s.trace())
		}
		content.WriteString(attribute(s.Attributes, "gen_ai.output.messages") + attribute(s.Attributes, "gen_ai.tool.call.result"))
	}

	const request = "chat gpt-oss-20b"
	if counts[request] != 1 || counts[request+" > "+request] != 1 || counts[request+" > "+request+" > "+request] != 2 || counts[request+" > "+request+" > execute_tool search"] != 1 {
		t.Errorf("spans %v", counts)
	}
	if text := content.String(); !strings.Contains(text, "done") || !strings.Contains(text, "found rivers") {
		t.Errorf("content %s", text)
	}
	if len(collector.metrics.names) > 0 {
		t.Errorf("metrics %v", collector.metrics.names)
	}

	for _, q := range d.EngineRequests(t, r.Get("id").Str) {
		if !strings.Contains(q.Header["traceparent"], "4bf92f3577b34da6a3ce929d0e0e4736") {
			t.Errorf("the engine gets the traceparent %q", q.Header["traceparent"])
		}
	}
}
