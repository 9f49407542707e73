package stack

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	aidatav3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/tidwall/gjson"
	"google.golang.org/grpc"

	"github.com/envoy-harmony/envoy-harmony/filter/header"
)

// AccessLogger is a gRPC access log service. Unlike Envoy's log of lines it gets an
// Entry at once, and with the typed metadata.
type AccessLogger struct {
	address string

	mu sync.Mutex
	// entries are known by request id.
	entries map[string]LogEntry
}

// LogEntry is what Envoy has learned of a request and its reply.
type LogEntry struct {
	// Metadata is the filter's.
	Metadata map[string]any
	// Usage is nil if there is none.
	Usage   *aidatav3.TokenUsage
	details string
}

// StartAccessLogger serves the access log service until the test ends.
func StartAccessLogger(t *testing.T) *AccessLogger {
	t.Helper()
	l := &AccessLogger{entries: map[string]LogEntry{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.address = listener.Addr().String()
	ServeGRPC(t, listener, func(s *grpc.Server) { accesslogv3.RegisterAccessLogServiceServer(s, l) })
	return l
}

// ServeGRPC serves until the test ends.
func ServeGRPC(t *testing.T, l net.Listener, register func(*grpc.Server)) {
	t.Helper()
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	register(server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
}

// StreamAccessLogs implements Envoy's AccessLogService.
func (l *AccessLogger) StreamAccessLogs(stream accesslogv3.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // Envoy is gone
		}
		for _, entry := range m.GetHttpLogs().GetLogEntry() {
			metadata := entry.GetCommonProperties().GetMetadata()
			e := LogEntry{details: entry.GetResponse().GetResponseCodeDetails()}
			if s := metadata.GetFilterMetadata()[header.MetadataNamespace]; s != nil {
				e.Metadata = s.AsMap()
			}

			if typed := metadata.GetTypedFilterMetadata()[header.TokenUsageNamespace]; typed != nil {
				e.Usage = &aidatav3.TokenUsage{}
				if err := typed.UnmarshalTo(e.Usage); err != nil {
					return fmt.Errorf("read the typed metadata: %w", err)
				}
			}

			l.mu.Lock()
			l.entries[entry.GetRequest().GetRequestId()] = e
			l.mu.Unlock()
		}
	}
}

// Bootstrap adds the service to the log of the clients' listener.
func (l *AccessLogger) Bootstrap(text string) string {
	// A buffer of 0 bytes sends each entry when it is made: the default waits for 16 KiB or a second.
	host, port, _ := strings.Cut(l.address, ":")
	text = strings.Replace(text, "          access_log:\n", `          access_log:
          - name: envoy.access_loggers.http_grpc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
              common_config:
                log_name: e2e
                transport_api_version: V3
                buffer_size_bytes: 0
                buffer_flush_interval: 0.02s
                grpc_service: {envoy_grpc: {cluster_name: access_logger}}
`, 1)

	// gRPC needs HTTP/2, which Envoy does not assume of a cluster.
	return strings.Replace(text, "  clusters:\n", fmt.Sprintf(`  clusters:
  - name: access_logger
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: access_logger
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]
`, host, port), 1)
}

// Entry waits for the entry of a request.
func (l *AccessLogger) Entry(t *testing.T, id string) LogEntry {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		for known, e := range l.entries {
			if strings.Contains(known, id) { // contained in the engine's own id
				l.mu.Unlock()
				return e
			}
		}
		l.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("the access log has no entry of request %s", id)
		}
	}
}

// EnvoyVersion is that of the data plane's Envoy, such as 1.40.0.
func (d *Dataplane) EnvoyVersion(t *testing.T) string {
	t.Helper()
	info := AdminPage(t, d.Admin+"/server_info")

	// COMMIT/VERSION/Clean/RELEASE/SSL
	parts := strings.Split(gjson.Get(info, "version").Str, "/")
	if len(parts) < 2 {
		t.Fatalf("server_info %s", info)
	}
	return parts[1]
}
