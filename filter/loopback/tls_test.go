package loopback

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/pki"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// newTLSGateway starts a listener with a certificate in place of Envoy's loopback
// listener, and returns its address. clients has signed the certificates that it
// requires, if it is not nil. It answers with the serial number of the client's
// certificate.
func newTLSGateway(t *testing.T, pair pki.Pair, clients *pki.CA) string {
	t.Helper()
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the protocol is %s", r.Proto)
		}
		w.Header().Set("connection", "close") // the next call is a new handshake
		for _, c := range r.TLS.PeerCertificates {
			_, _ = io.WriteString(w, c.SerialNumber.String())
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	if clients != nil {
		server.TLS.ClientAuth, server.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		server.TLS.ClientCAs.AppendCertsFromPEM(clients.PEM)
	}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// secretFiles writes the files of a Secret and returns their keys of the
// configuration.
func secretFiles(t *testing.T, folder string, ca []byte, pair pki.Pair) config.LoopbackTLS {
	t.Helper()
	pki.Secret(t, folder, map[string][]byte{"ca.crt": ca, "tls.crt": pair.Cert, "tls.key": pair.Key})
	return config.LoopbackTLS{CAFile: filepath.Join(folder, "ca.crt"), CertFile: filepath.Join(folder, "tls.crt"), KeyFile: filepath.Join(folder, "tls.key")}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, other := pki.NewCA(t, "ours"), pki.NewCA(t, "another")
	trusted := secretFiles(t, t.TempDir(), ca.PEM, ca.Leaf(t, "filter"))
	stranger := secretFiles(t, t.TempDir(), ca.PEM, other.Leaf(t, "filter"))
	onlyCA := config.LoopbackTLS{CAFile: trusted.CAFile}
	good, mutual := newTLSGateway(t, ca.Leaf(t, "127.0.0.1", "localhost"), nil), newTLSGateway(t, ca.Leaf(t, "127.0.0.1"), ca)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, tt := range []struct {
		name, address string
		files         config.LoopbackTLS
		want          string // in the error; "": there is none
	}{
		{"address", good, onlyCA, ""},
		{"name", strings.Replace(good, "127.0.0.1", "localhost", 1), onlyCA, ""},
		{"mutual", mutual, trusted, ""},
		{"certificate that nobody asks for", good, trusted, ""},
		{"CA", newTLSGateway(t, other.Leaf(t, "127.0.0.1"), nil), onlyCA, "loopback_tls.ca_file must have the CA"},
		{"CA of the system", good, config.LoopbackTLS{}, "loopback_tls.ca_file must have the CA"},
		{"wrong name", newTLSGateway(t, ca.Leaf(t, "other.example.com"), nil), onlyCA, "the host of loopback must be a name"},
		{"expired", newTLSGateway(t, ca.Sign(t, time.Now().Add(-time.Hour), "127.0.0.1"), nil), onlyCA, "renew the loopback listener's certificate"},
		{"no TLS", strings.TrimPrefix(plain.URL, "http://"), onlyCA, "the loopback listener has no TLS"},
		{"no client certificate", mutual, onlyCA, "loopback_tls.cert_file must have one of its CA"},
		{"client certificate of another CA", mutual, stranger, "loopback_tls.cert_file must have one of its CA"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Defaults()
			cfg.LoopbackTLS = tt.files
			client := newTestClient(t, cfg, "https://"+tt.address)
			status, _, err := client.Get(t.Context(), http.Header{"Host": {"api.example"}}, "/", 100)
			switch {
			case tt.want == "" && (err != nil || status != http.StatusOK):
				t.Errorf("status %d, %v", status, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q in it", err, tt.want)
			}
			if _, _, _, err := answerOf(t, call(t, client)); (err != nil) != (tt.want != "") {
				t.Errorf("call: %v", err)
			}
		})
	}
}

// Files that change are used for new connections. While they cannot be used, the
// earlier ones are.
func TestTLSRotation(t *testing.T) {
	t.Parallel()
	ca, next := pki.NewCA(t, "first"), pki.NewCA(t, "next")
	folder := t.TempDir()
	cfg := config.Defaults()
	cfg.LoopbackTLS = secretFiles(t, folder, ca.PEM, ca.Leaf(t, "filter"))
	address := newTLSGateway(t, ca.Leaf(t, "127.0.0.1"), ca)
	client := newTestClient(t, cfg, "https://"+address)
	serial := func() string {
		t.Helper()
		_, body, _, err := answerOf(t, call(t, client))
		if err != nil || body == "" {
			t.Fatalf("%q, %v", body, err)
		}
		return body
	}
	first := serial()
	secretFiles(t, folder, ca.PEM, ca.Leaf(t, "filter"))
	second := serial()
	if second == first {
		t.Error("the old certificate is presented")
	}
	secretFiles(t, folder, ca.PEM, pki.Pair{Cert: ca.Leaf(t, "filter").Cert, Key: ca.Leaf(t, "filter").Key})
	if serial() != second {
		t.Error("a certificate without its key is presented")
	}
	secretFiles(t, folder, []byte("no PEM"), ca.Leaf(t, "filter"))
	if serial() != second {
		t.Error("without a CA another certificate is presented")
	}
	secretFiles(t, folder, next.PEM, ca.Leaf(t, "filter"))
	if _, _, _, err := answerOf(t, call(t, client)); err == nil || !strings.Contains(err.Error(), "loopback_tls.ca_file") {
		t.Errorf("the removed CA is trusted: %v", err)
	}
	// An error names files that cannot be used.
	secretFiles(t, folder, []byte("no PEM"), ca.Leaf(t, "filter"))
	if _, _, _, err := answerOf(t, call(t, client)); err == nil || !strings.Contains(err.Error(), "ca.crt has no certificate") {
		t.Errorf("error %v", err)
	}
}

func TestTLSFiles(t *testing.T) {
	t.Parallel()
	ca := pki.NewCA(t, "ours")
	cfg := config.Defaults()
	cfg.Loopback, cfg.LoopbackTLS = "https://127.0.0.1:1", config.LoopbackTLS{CAFile: "/nowhere/ca.crt", CertFile: "/nowhere/tls.crt", KeyFile: "/nowhere/tls.key"}
	if _, err := New(cfg, nil, nil); err == nil || strings.Count(err.Error(), "put the file there") != 3 {
		t.Errorf("error %v", err)
	}
	cfg.LoopbackTLS = secretFiles(t, t.TempDir(), []byte("x"), pki.Pair{Cert: ca.PEM, Key: []byte("x")})
	if _, err := New(cfg, nil, nil); err == nil || !strings.Contains(err.Error(), "has no certificate") || !strings.Contains(err.Error(), "are no certificate with its key") {
		t.Errorf("error %v", err)
	}
}
