package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/e2e/pki"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// tlsFolder is a folder with the files of a TLS configuration.
type tlsFolder struct {
	path  string
	files config.TLS
	log   bytes.Buffer
}

func newTLSFolder(t *testing.T) *tlsFolder {
	t.Helper()
	dir := t.TempDir()
	return &tlsFolder{path: dir, files: config.TLS{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), ClientCAFile: filepath.Join(dir, "ca.crt"),
	}}
}

func (f *tlsFolder) write(t *testing.T, pair pki.Pair, ca *pki.CA) {
	t.Helper()
	pki.Write(t, f.path, map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": ca.PEM})
}

// read makes certificates of the folder's files.
func (f *tlsFolder) read(registry prometheus.Registerer) (*certificates, error) {
	log := logrus.New()
	log.SetOutput(&f.log)
	log.SetLevel(logrus.DebugLevel)
	return newCertificates(f.files, log, registry)
}

// handshake makes a TLS connection to the certificates' listener and returns the
// server's certificate, and the errors of both sides.
func handshake(t *testing.T, c *certificates, client *tls.Config) (leaf *x509.Certificate, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err == nil {
			defer raw.Close()
			_, _, err = c.credentials().ServerHandshake(raw)
		}
		ended <- err
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, client)
	clientErr = conn.HandshakeContext(t.Context())
	serverErr = <-ended
	if certificates := conn.ConnectionState().PeerCertificates; len(certificates) > 0 {
		leaf = certificates[0]
	}
	return leaf, serverErr, clientErr
}

// clientOf returns the TLS configuration of a client that trusts a CA and presents
// certificates.
func clientOf(t *testing.T, ca *pki.CA, pairs ...pki.Pair) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "filter", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	c.RootCAs.AppendCertsFromPEM(ca.PEM)
	for _, p := range pairs {
		pair, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = append(c.Certificates, pair)
	}
	return c
}

// valueOf returns the value of a counter or gauge.
func valueOf(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		t.Fatal(err)
	}
	return d.GetCounter().GetValue() + d.GetGauge().GetValue()
}

func TestCertificates(t *testing.T) {
	ca, other := pki.NewCA(t, "ours"), pki.NewCA(t, "another")
	f := newTLSFolder(t)
	f.write(t, ca.Leaf(t, "filter"), ca)
	c, err := f.read(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		client *tls.Config
		fails  bool
	}{
		{"certificate of the CA", clientOf(t, ca, ca.Leaf(t, "envoy")), false},
		{"no certificate", clientOf(t, ca), true},
		{"another CA", clientOf(t, ca, other.Leaf(t, "envoy")), true},
		{"expired", clientOf(t, ca, ca.Sign(t, time.Now().Add(-time.Hour), "envoy")), true},
		{"old TLS", func() *tls.Config {
			c := clientOf(t, ca, ca.Leaf(t, "envoy"))
			c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
			return c
		}(), true},
		{"no ALPN", func() *tls.Config {
			c := clientOf(t, ca, ca.Leaf(t, "envoy"))
			c.NextProtos = nil
			return c
		}(), false},
		{"no HTTP/2", func() *tls.Config {
			c := clientOf(t, ca, ca.Leaf(t, "envoy"))
			c.NextProtos = []string{"http/1.1"}
			return c
		}(), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := valueOf(t, c.handshakes)
			if _, err, _ := handshake(t, c, tt.client); (err != nil) != tt.fails {
				t.Errorf("handshake: %v", err)
			}
			if failed := valueOf(t, c.handshakes) > before; failed != tt.fails {
				t.Errorf("counted as failed: %v", failed)
			}
		})
	}
	for _, reason := range []string{"client didn't provide a certificate", "has expired", "http/1.1 and not h2"} {
		if !strings.Contains(f.log.String(), reason) {
			t.Errorf("the log does not have %q:\n%s", reason, &f.log)
		}
	}
	if want := float64(c.leaf().NotAfter.Unix()); valueOf(t, c.notAfter) != want {
		t.Errorf("expiry %v, want %v", valueOf(t, c.notAfter), want)
	}
}

// A reason is a warning once a minute, wherever the connections come from.
func TestComplaints(t *testing.T) {
	c, now := complaints{last: map[string]time.Time{}}, time.Unix(0, 0)
	reset := func(port int) string {
		return reasonOf(fmt.Errorf("shake: %w", &net.OpError{Op: "read", Addr: &net.TCPAddr{Port: port}, Err: syscall.ECONNRESET}))
	}
	if !c.due(reset(1), now) || c.due(reset(2), now) || !c.due("another", now) {
		t.Error("not one warning for each reason")
	}
	if now = now.Add(complaintInterval); !c.due(reset(1), now) {
		t.Error("no warning in the next minute")
	}
	for i := range 10 * maxComplaints {
		c.due(strconv.Itoa(i), now)
	}
	if len(c.last) > maxComplaints {
		t.Errorf("%d reasons are remembered", len(c.last))
	}
}

// Without a CA for clients, Envoy needs no certificate.
func TestCertificatesWithoutClientCA(t *testing.T) {
	ca := pki.NewCA(t, "ours")
	f := newTLSFolder(t)
	f.write(t, ca.Leaf(t, "filter"), ca)
	f.files.ClientCAFile = ""
	c, err := f.read(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if _, serverErr, clientErr := handshake(t, c, clientOf(t, ca)); serverErr != nil || clientErr != nil {
		t.Errorf("server: %v, client: %v", serverErr, clientErr)
	}
}

// Changed files are used for new connections after two equal readings. Bad files
// are not used, are reported once, and the earlier ones stay.
func TestCertificatesReload(t *testing.T) {
	first, second := pki.NewCA(t, "first"), pki.NewCA(t, "second")
	f := newTLSFolder(t)
	f.write(t, first.Leaf(t, "filter"), first)
	c, err := f.read(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, ok, failed float64, server, clients *pki.CA) {
		t.Helper()
		if got := valueOf(t, c.reloads.WithLabelValues(reloadOK)); got != ok {
			t.Errorf("%s: %v reloads, want %v", when, got, ok)
		}
		if got := valueOf(t, c.reloads.WithLabelValues(reloadFailed)); got != failed {
			t.Errorf("%s: %v failed reloads, want %v", when, got, failed)
		}
		if _, serverErr, clientErr := handshake(t, c, clientOf(t, server, clients.Leaf(t, "envoy"))); serverErr != nil || clientErr != nil {
			t.Errorf("%s: server: %v, client: %v", when, serverErr, clientErr)
		}
	}
	next := second.Leaf(t, "filter")
	nothing := func() {}

	// What happens while the files are not looked at: between two looks, and after one that has
	// found a change, until they stay as they are.
	steps := []func(){
		nothing,
		func() {
			expect("nothing has changed", 0, 0, first, first)
			pki.Write(t, f.path, map[string][]byte{"tls.crt": next.Cert})
		},
		func() {
			expect("the key is not written yet", 0, 0, first, first)
			pki.Write(t, f.path, map[string][]byte{"tls.key": next.Key})
		},
		func() { expect("the key has just been written", 0, 0, first, first) },
		func() {
			expect("a new certificate", 1, 0, second, first)
			pki.Write(t, f.path, map[string][]byte{"ca.crt": second.PEM})
		},
		nothing,
		func() {
			expect("a new client CA", 2, 0, second, second)
			if _, serverErr, _ := handshake(t, c, clientOf(t, second, first.Leaf(t, "envoy"))); serverErr == nil {
				t.Error("a certificate of the old CA is accepted")
			}
			pki.Write(t, f.path, map[string][]byte{"tls.key": first.Leaf(t, "filter").Key})
		},
		nothing, nothing, nothing,
		func() {
			expect("another key", 2, 1, second, second)
			if err := os.Remove(f.files.CertFile); err != nil {
				t.Fatal(err)
			}
		},
		nothing, nothing, nothing,
		func() {
			expect("a missing file", 2, 2, second, second)
			if text := f.log.String(); strings.Count(text, "the earlier certificate stays") != 2 || !strings.Contains(text, "tls.key_file") || !strings.Contains(text, "there is no file") {
				t.Errorf("log:\n%s", text)
			}
			f.write(t, next, second)
		},
		nothing,
		func() { expect("the files are back", 3, 2, second, second) },
	}

	ctx, cancel := context.WithCancel(t.Context())
	c.follower(func(time.Duration) <-chan time.Time {
		if len(steps) == 0 {
			cancel()
			return nil
		}
		steps[0]()
		steps = steps[1:]
		passed := make(chan time.Time, 1)
		passed <- time.Time{}
		return passed
	}).follow(ctx, c.first, nil)
}

// Bad files at the start are errors that name the key, the file and what to do.
func TestCertificatesErrors(t *testing.T) {
	ca := pki.NewCA(t, "ours")
	good, other := ca.Leaf(t, "filter"), ca.Leaf(t, "filter")
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	damaged := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	for _, tt := range []struct {
		name, file string
		text       []byte // nil: the file is missing
		want       string
	}{
		{"no certificate", "tls.crt", nil, "tls.cert_file: there is no file FILE: put the certificate there, or correct the path"},
		{"no key", "tls.key", nil, "tls.key_file: there is no file FILE: put the private key there"},
		{"no CA", "ca.crt", nil, "tls.client_ca_file: there is no file FILE: put the CA of Envoy's certificate there"},
		{"empty certificate", "tls.crt", []byte{}, "tls.cert_file: FILE has no certificate: it must have PEM blocks CERTIFICATE"},
		{"key as certificate", "tls.crt", good.Key, "tls.cert_file: FILE has no certificate"},
		{"damaged certificate", "tls.crt", damaged, "tls.cert_file: FILE has a certificate that cannot be read"},
		{"certificate as key", "tls.key", good.Cert, "tls.key_file: FILE has no private key: it must have a PEM block PRIVATE KEY"},
		{"encrypted key", "tls.key", encrypted, "tls.key_file: the key in FILE is encrypted: write it without a passphrase"},
		{"another key", "tls.key", other.Key, "tls.key_file: FILE is not the key of the certificate in"},
		{"CA without PEM", "ca.crt", []byte("secret"), "tls.client_ca_file: FILE has no certificate: it must have the CA of Envoy's certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newTLSFolder(t)
			f.write(t, good, ca)
			path := filepath.Join(f.path, tt.file)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if tt.text != nil {
				pki.Write(t, f.path, map[string][]byte{tt.file: tt.text})
			}
			_, err := f.read(prometheus.NewRegistry())
			if want := strings.ReplaceAll(tt.want, "FILE", path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		})
	}
}

// A certificate that is not valid now is a warning: clocks differ.
func TestCertificatesExpired(t *testing.T) {
	ca := pki.NewCA(t, "ours")
	f := newTLSFolder(t)
	f.write(t, ca.Sign(t, time.Now().Add(-time.Hour), "filter"), ca)
	if _, err := f.read(prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(f.log.String(), "has expired on") {
		t.Errorf("log: %s", &f.log)
	}
}

// follow ends with its context.
func TestCertificatesFollow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	(&certificates{}).follow(ctx)
}
