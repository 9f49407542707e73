package main

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// A process without root certificates of the system trusts those in the program,
// and with SSL_CERT_FILE it trusts only those of the file. Roots are loaded once in
// a process, so each case is a process.
func TestRoots(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	own := filepath.Join(t.TempDir(), "own.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(own, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ test, file string }{
		{"TestRootsOfProgram", "/nowhere"},
		{"TestRootsOfFile", own},
	} {
		t.Run(tt.test, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+tt.test+"$")
			cmd.Env = []string{"SSL_CERT_FILE=" + tt.file, "SSL_CERT_DIR=/nowhere", "ROOTS_SERVER=" + server.URL}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// trusted counts the roots of the bundle that TLS clients of this process trust.
func trusted(t *testing.T) (n int) {
	t.Helper()
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		_, err = certificate.Verify(x509.VerifyOptions{CurrentTime: certificate.NotBefore.Add(time.Hour), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err == nil {
			n++
		}
	}
	return n
}

// fetch sends a request to the server of TestRoots as a TLS client with the
// process's roots.
func fetch(t *testing.T) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, os.Getenv("ROOTS_SERVER"), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// TestRootsOfProgram is a case of TestRoots. The test of the image runs it in an
// empty root.
func TestRootsOfProgram(t *testing.T) {
	server := os.Getenv("ROOTS_SERVER")
	if server == "" {
		t.Skip("it is run by TestRoots")
	}
	if n := trusted(t); n < 100 {
		t.Errorf("only %d public roots are trusted", n)
	}
	if server != "none" && fetch(t) == nil {
		t.Error("a server with an unknown certificate is trusted")
	}
}

// TestRootsOfFile is a case of TestRoots.
func TestRootsOfFile(t *testing.T) {
	if os.Getenv("ROOTS_SERVER") == "" {
		t.Skip("it is run by TestRoots")
	}
	if n := trusted(t); n > 0 {
		t.Errorf("%d public roots are trusted beside the file's", n)
	}
	if err := fetch(t); err != nil {
		t.Errorf("the server with the file's certificate: %v", err)
	}
}
