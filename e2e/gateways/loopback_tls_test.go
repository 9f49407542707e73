package gateways

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/pki"
	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
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
func checkToolLoop(t *testing.T, d *stack.Dataplane) {
	t.Helper()
	for _, stream := range []bool{false, true} {
		c := &stack.ResponsesClient{Dataplane: d, Stream: stream}
		r := c.Create(t, "completed", map[string]any{"model": stack.VLLMModel, "input": "NOTHINK\nCALL docs.search {\"q\":\"one\"}", "tools": stack.JSONArray(stack.DocsTool)})
		if got := stack.LastText(r); got != "RESULT: found one" {
			t.Errorf("answer %q in %s", got, r)
		}
	}
}

// awaitIssuer waits until a listener presents a certificate of a CA.
func awaitIssuer(t *testing.T, address string, ca *pki.CA) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(20 * time.Millisecond) {
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
	tools := stack.NewToolServer(t)
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
			log := stack.LogOf(t)
			p := stack.ServeProgram(t, log, append([]string{"--engine", "vllm=" + stack.StartSim(t, log), "--set", tools.Set(t)},
				tt.filter.loopbackFlags("127.0.0.1:"+stack.FreePort(t), tt.mutual)...)...)

			flags := []string{"--loopback-cert", tt.envoy.file("tls.crt"), "--loopback-key", tt.envoy.file("tls.key")}
			if tt.mutual {
				flags = append(flags, "--loopback-client-ca", tt.envoy.file("ca.crt"))
			}
			d := p.Envoy(t, p.Bootstrap(t, flags...))

			resp, text := d.Chat(t, stack.VLLMModel, "SAY It works.", "")
			if tt.log == "" {
				if resp.StatusCode != http.StatusOK || !strings.Contains(text, `"content":"It works."`) {
					t.Fatalf("%s: %s", resp.Status, text)
				}
				checkToolLoop(t, d)
				return
			}

			if resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s: %s", resp.Status, text)
			}
			if e := stack.ReadError(t, text); strings.Contains(fmt.Sprint(e), "loopback") {
				t.Errorf("the client gets %s", text)
			}

			for deadline := time.Now().Add(stack.Patience); !strings.Contains(log.String(), tt.log); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the log has no %q", tt.log)
				}
			}
		})
	}
}
