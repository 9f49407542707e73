package gateways

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/envoy-harmony/envoy-harmony/e2e/pki"
	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// certFiles is a folder with tls.crt, tls.key and ca.crt, as Kubernetes mounts a
// Secret of cert-manager.
type certFiles struct{ folder string }

func newCertFiles(t *testing.T, pair pki.Pair, ca *pki.CA) certFiles {
	t.Helper()
	s := certFiles{t.TempDir()}
	s.set(t, pair, ca.PEM)
	return s
}

func (s certFiles) set(t *testing.T, pair pki.Pair, ca []byte) {
	t.Helper()
	pki.Secret(t, s.folder, map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": ca})
}

func (s certFiles) file(name string) string { return filepath.Join(s.folder, name) }

// serve starts the program with the certificate of the folder.
func (s certFiles) serve(t *testing.T, mutual bool, more ...string) *stack.Program {
	t.Helper()
	log := stack.LogOf(t)
	flags := append([]string{
		"--engine", "vllm=" + stack.StartSim(t, log), "--set", "loopback=unix://" + filepath.Join(stack.SocketDir(t), "loopback"),
		"--set", "tls.cert_file=" + s.file("tls.crt"), "--set", "tls.key_file=" + s.file("tls.key"),
	}, more...)
	if mutual {
		flags = append(flags, "--set", "tls.client_ca_file="+s.file("ca.crt"))
	}
	return stack.ServeProgram(t, log, flags...)
}

// flags are those of envoy-config for an Envoy that presents the folder's
// certificate.
func (s certFiles) flags() []string {
	return []string{"--filter-ca", s.file("ca.crt"), "--filter-cert", s.file("tls.crt"), "--filter-key", s.file("tls.key")}
}

// Envoy and the filter speak TLS, and present certificates to each other if so
// configured. A wrong certificate on either side is a 503.
func TestTLS(t *testing.T) {
	ca, other := pki.NewCA(t, "ours"), pki.NewCA(t, "another")
	filter := newCertFiles(t, ca.Leaf(t, "127.0.0.1"), ca)
	oneWay, mutual := filter.serve(t, false), filter.serve(t, true)

	for _, tt := range []struct {
		name    string
		program *stack.Program
		flags   []string
		status  int
	}{
		{"without client certificate", oneWay, []string{"--filter-ca", filter.file("ca.crt")}, http.StatusOK},
		{"mutual", mutual, newCertFiles(t, ca.Leaf(t, "envoy"), ca).flags(), http.StatusOK},
		{"client certificate of another CA", mutual, append(newCertFiles(t, other.Leaf(t, "envoy"), ca).flags(), "--access-log"), http.StatusServiceUnavailable},
		{"expired client certificate", mutual, newCertFiles(t, ca.Sign(t, time.Now().Add(-time.Hour), "envoy"), ca).flags(), http.StatusServiceUnavailable},
		{"filter's certificate is of another CA", oneWay, newCertFiles(t, ca.Leaf(t, "envoy"), other).flags(), http.StatusServiceUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.program.Envoy(t, tt.program.Bootstrap(t, tt.flags...))
			resp, text := d.Chat(t, stack.VLLMModel, "SAY It works.", "")
			if resp.StatusCode != tt.status {
				t.Fatalf("status %d, want %d: %s", resp.StatusCode, tt.status, text)
			}

			if tt.status == http.StatusOK && !strings.Contains(text, `"content":"It works."`) {
				t.Errorf("reply: %s", text)
			} else if tt.status != http.StatusOK {
				stack.ReadError(t, text)
			}
		})
	}

	t.Run("name", func(t *testing.T) {
		p := newCertFiles(t, ca.Leaf(t, "filter.example.com"), ca).serve(t, false)
		for name, want := range map[string]int{"filter.example.com": http.StatusOK, "other.example.com": http.StatusServiceUnavailable} {
			text := string(p.Bootstrap(t, "--filter-ca", filter.file("ca.crt")))
			text = strings.ReplaceAll(text, `{san_type: IP_ADDRESS, matcher: {exact: "127.0.0.1"}}`, fmt.Sprintf("{san_type: DNS, matcher: {exact: %q}}", name))
			if resp, text := p.Envoy(t, []byte(text)).Chat(t, stack.VLLMModel, "SAY a", ""); resp.StatusCode != want {
				t.Errorf("%s: %s: %s", name, resp.Status, text)
			}
		}
	})
	if failed := mutual.Metric(t, "harmony_tls_handshake_errors_total"); failed < 2 {
		t.Errorf("%v failed handshakes are counted", failed)
	}
	t.Run("health", func(t *testing.T) { checkHealth(t, mutual) })
}

// Envoy's health checks have no ALPN unless its configuration says so, which Envoy
// Gateway's cannot: the filter takes them all the same. It says why it refuses others.
func TestTLSWithoutALPN(t *testing.T) {
	ca, other := pki.NewCA(t, "ours"), pki.NewCA(t, "another")
	filter := newCertFiles(t, ca.Leaf(t, "127.0.0.1"), ca)
	asGateway := func(p *stack.Program, client certFiles) *stack.Dataplane {
		text := string(p.Bootstrap(t, client.flags()...))
		without := strings.Replace(text, "          alpn_protocols: [h2]\n          tls_certificates:", "          tls_certificates:", 1)
		if without == text {
			t.Fatalf("the bootstrap has no ALPN:\n%s", text)
		}
		return p.Envoy(t, []byte(without))
	}
	for _, mutual := range []bool{false, true} {
		p := filter.serve(t, mutual)
		d := asGateway(p, newCertFiles(t, ca.Leaf(t, "envoy"), ca))
		if resp, text := d.Chat(t, stack.VLLMModel, "SAY It works.", ""); resp.StatusCode != http.StatusOK || !strings.Contains(text, `"content":"It works."`) {
			t.Errorf("mutual %v: %s: %s", mutual, resp.Status, text)
		}
		if checks := d.Stat(t, "cluster.envoy_harmony.health_check.success"); checks == 0 {
			t.Errorf("mutual %v: no health check succeeded", mutual)
		}
		if failed := p.Metric(t, "harmony_tls_handshake_errors_total"); failed != 0 {
			t.Errorf("mutual %v: %v handshakes failed", mutual, failed)
		}
	}

	p := filter.serve(t, true)
	asGateway(p, newCertFiles(t, other.Leaf(t, "envoy"), ca))
	stack.Eventually(t, "the reason in the log", func() bool {
		for line := range strings.Lines(p.Logs.String()) {
			if strings.Contains(line, "TLS handshake failed") && strings.Contains(line, `"level":"warning"`) && strings.Contains(line, "certificate signed by unknown authority") {
				return true
			}
		}
		return false
	})
}

// checkHealth checks that probes without TLS get an answer from the admin port.
func checkHealth(t *testing.T, p *stack.Program) {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(p.Admin, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, service := range []string{"liveness", "readiness"} {
		got, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil || got.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%s: %v, %v", service, got, err)
		}
	}
}

// awaitReloads waits until the TLS files have been read again n times.
func awaitReloads(t *testing.T, p *stack.Program, outcome string, n float64) {
	t.Helper()
	for deadline := time.Now().Add(stack.Patience); p.Metric(t, fmt.Sprintf("harmony_tls_reloads_total{outcome=%q}", outcome)) != n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the files were not read again: outcome %s", outcome)
		}
	}
}

// The certificate is replaced under traffic: no request fails, and new connections
// get the new one. Connections end after max_connection_age, and their streams go
// on. A bad certificate changes nothing.
func TestTLSRotation(t *testing.T) {
	ca := pki.NewCA(t, "ours")
	filter, client := newCertFiles(t, ca.Leaf(t, "127.0.0.1"), ca), newCertFiles(t, ca.Leaf(t, "envoy"), ca)
	p := filter.serve(t, true, "--set", "max_connection_age=500ms")
	d := p.Envoy(t, p.Bootstrap(t, client.flags()...))

	var done atomic.Bool
	var asked atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !done.Load() {
				// Longer than a connection takes new streams.
				resp, text := d.Chat(t, stack.VLLMModel, "NOTHINK\nWORDS 40 20", `,"stream":true`)
				if resp.StatusCode != http.StatusOK || !strings.Contains(text, "data: [DONE]") || strings.Contains(text, `"error"`) {
					t.Errorf("%s: %s", resp.Status, text)
					return
				}
				asked.Add(1)
			}
		})
	}
	defer all.Wait()
	defer done.Store(true)

	serial := func() string {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca.PEM)
		pair, err := tls.LoadX509KeyPair(client.file("tls.crt"), client.file("tls.key"))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := tls.Dial("tcp", p.Address, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	filter.set(t, ca.Sign(t, time.Now().Add(time.Hour), "127.0.0.1"), ca.PEM)
	awaitReloads(t, p, "ok", 1)
	after := serial()
	if after == before {
		t.Error("new connections get the old certificate")
	}
	filter.set(t, pki.Pair{Cert: ca.Leaf(t, "127.0.0.1").Cert, Key: ca.Leaf(t, "127.0.0.1").Key}, ca.PEM)
	awaitReloads(t, p, "failed", 1)
	if serial() != after {
		t.Error("a certificate without its key is used")
	}
	connections := func() float64 {
		return stack.SampleOf(t, d.Admin+"/stats?format=prometheus&filter=cluster.envoy_harmony.upstream_cx_total", `envoy_cluster_upstream_cx_total{envoy_cluster_name="envoy_harmony"}`)
	}
	for begun, n := asked.Load(), connections(); asked.Load() < begun+8 || connections() < n+2; time.Sleep(50 * time.Millisecond) {
		if t.Failed() {
			return
		}
	}
}
