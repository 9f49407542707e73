package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/pki"
)

// loopbackFlags are those of a filter whose model calls go to a listener at address
// by TLS. It checks the listener's certificate by the folder's CA, and presents the
// folder's certificate if mutual.
func (s certFiles) loopbackFlags(address string, mutual bool) []string {
	flags := []string{"--set", "loopback=https://" + address, "--set", "loopback_tls.ca_file=" + s.file("ca.crt")}
	if mutual {
		flags = append(flags, "--set", "loopback_tls.cert_file="+s.file("tls.crt"), "--set", "loopback_tls.key_file="+s.file("tls.key"))
	}
	return flags
}

// checkToolLoop has a tool called between two model calls.
func (d *dataplane) checkToolLoop(t *testing.T) {
	t.Helper()
	for _, stream := range []bool{false, true} {
		c := &client{dataplane: d, stream: stream}
		r := c.create(t, "completed", map[string]any{"model": vllmModel, "input": "NOTHINK\nCALL docs.search {\"q\":\"one\"}", "tools": list(docsTool)})
		if got := answer(r); got != "RESULT: found one" {
			t.Errorf("answer %q in %s", got, r)
		}
	}
}

// set returns a flag that configures the server for [docsTool].
func (s *toolServer) set(t *testing.T) string {
	t.Helper()
	servers, err := json.Marshal([]map[string]string{{"label": "docs", "url": s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	return "tools.servers=" + string(servers)
}

// awaitIssuer waits until a listener presents a certificate of a CA.
func awaitIssuer(t *testing.T, address string, ca *pki.CA) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the certificate is not renewed: %v", err)
		}
	}
}

// The filter's model calls use TLS, with a client certificate if so configured. A
// wrong certificate on either side is a 502, and the log says what to change.
func TestLoopbackTLS(t *testing.T) {
	ca, other := pki.NewCA(t, "ours"), pki.NewCA(t, "another")
	tools := newToolServer(t)
	envoys, filters := newCertFiles(t, ca.Leaf(t, "127.0.0.1"), ca), newCertFiles(t, ca.Leaf(t, "filter"), ca)
	for _, tt := range []struct {
		name          string
		envoy, filter certFiles
		mutual        bool
		log           string // "": the call succeeds
	}{
		{"without client certificate", envoys, filters, false, ""},
		{"mutual", envoys, filters, true, ""},
		{"listener's certificate is of another CA", envoys, newCertFiles(t, ca.Leaf(t, "filter"), other), false, "loopback_tls.ca_file must have the CA"},
		{"listener's certificate has another name", newCertFiles(t, ca.Leaf(t, "envoy.example.com"), ca), filters, false, "the host of loopback must be a name"},
		{"client certificate of another CA", envoys, newCertFiles(t, other.Leaf(t, "filter"), ca), true, "loopback_tls.cert_file must have one of its CA"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := logOf(t)
			p := serveProgram(t, log, append([]string{"--engine", "vllm=" + startSim(t, log), "--set", tools.set(t)},
				tt.filter.loopbackFlags("127.0.0.1:"+freePort(t), tt.mutual)...)...)
			flags := []string{"--loopback-cert", tt.envoy.file("tls.crt"), "--loopback-key", tt.envoy.file("tls.key")}
			if tt.mutual {
				flags = append(flags, "--loopback-client-ca", tt.envoy.file("ca.crt"))
			}
			d := p.envoy(t, p.bootstrap(t, flags...))
			resp, text := d.chat(t, vllmModel, "SAY It works.", "")
			if tt.log == "" {
				if resp.StatusCode != http.StatusOK || !strings.Contains(text, `"content":"It works."`) {
					t.Fatalf("%s: %s", resp.Status, text)
				}
				d.checkToolLoop(t)
				return
			}
			if resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s: %s", resp.Status, text)
			}
			if e := readError(t, text); strings.Contains(fmt.Sprint(e), "loopback") {
				t.Errorf("the client gets %s", text)
			}
			for deadline := time.Now().Add(patience); !strings.Contains(log.String(), tt.log); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the log has no %q", tt.log)
				}
			}
		})
	}
}
