//go:build charts

package charts

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issue writes a certificate for 127.0.0.1, which is its own CA, to a new folder, and
// points the link at it, as Kubernetes does with the files of a Secret.
func issue(t *testing.T, link string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: certificate}, "tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The link ..data of the volume is replaced, not the links of the files, which lead through it.
	data := filepath.Join(link, "..data")
	if err := os.Symlink(dir, data+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(data+".new", data); err != nil {
		t.Fatal(err)
	}
}

// served is the serial number of the certificate of a listener, 0 if there is none.
func served(t *testing.T, address string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	//nolint:gosec // which certificate it is, is asked for here
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// TestSimulatedLive runs what the chart renders for a cluster without a GPU, with HTTPS:
// the simulated engine, Envoy and the filter. An answer streams, and a renewed
// certificate is taken over.
func TestSimulatedLive(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Envoy")
	}
	engine := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	var folder string
	s := startSidecar(t, "simulate: true\nsidecar: {envoy: {tls: {existingSecret: clients}}}\n", func(dir string) []string {
		folder = filepath.Join(dir, "clients")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"tls.crt", "tls.key"} {
			if err := os.Symlink("..data/"+name, filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
		issue(t, folder, 1)
		return []string{"/etc/envoy-harmony-clients", folder, "harmony-envoy-harmony-sim.models.svc.cluster.local:8000", engine}
	})

	simulator := &pod{here: strings.NewReplacer("--listen=:8000", "--listen="+engine), spec: at(find(t, s.all, "Deployment", "harmony-envoy-harmony-sim"), "spec.template.spec").(object)}
	launch(t, engineSim(t), simulator.args(t, "containers", "engine-sim")...)

	address := fmt.Sprintf("127.0.0.1:%d", s.clients)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(readFile(t, filepath.Join(folder, "tls.crt")))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}

	events := 0
	for deadline := time.Now().Add(patience); events == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no answer streams over HTTPS")
		}
		events = stream(t, client, "https://"+address)
	}
	if events < 5 {
		t.Errorf("the answer has %d events", events)
	}

	issue(t, folder, 2)
	for deadline := time.Now().Add(patience); served(t, address) != 2; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Envoy does not take over the renewed certificate")
		}
	}
}

// stream asks a question and counts the events of the answer, 0 if there is no whole one.
func stream(t *testing.T, client *http.Client, base string) (events int) {
	t.Helper()
	body := strings.NewReader(`{"model":"gpt-oss-120b","stream":true,"messages":[{"role":"user","content":"Hello"}]}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0 // it starts
	}
	defer resp.Body.Close()

	done := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
		done = done || lines.Text() == "data: [DONE]"
	}
	if resp.StatusCode != http.StatusOK || !done {
		return 0
	}
	return events
}

// The simulated engine is the only one, it says what it is, and its image is not the
// filter's.
func TestSimulated(t *testing.T) {
	if text := notes(t, "simulate: true\nmode: sidecar"); !strings.HasPrefix(text, "SIMULATED: no model answers. The engine simulator plays a script (simulate: true).") {
		t.Errorf("the notes do not begin with it:\n%s", text)
	}
	if text := notes(t, engine); strings.Contains(text, "SIMULATED") {
		t.Errorf("the notes of a real engine:\n%s", text)
	}

	for values, want := range map[string]string{
		"":                                      "registry.example.com/envoy-harmony-engine-sim:1.2.3",
		"simulator: {image: {tag: d}}":          "registry.example.com/envoy-harmony-engine-sim:d",
		"simulator: {image: {repository: e/f}}": "e/f:1.2.3",
	} {
		d := find(t, objects(t, render(t, "simulate: true\n"+values)), "Deployment", "harmony-envoy-harmony-sim")
		if got := at(d, "spec.template.spec.containers").([]any)[0].(object)["image"]; got != want {
			t.Errorf("%s: the image is %v, want %s", values, got, want)
		}
		labels := at(d, "spec.template.metadata.labels").(object)
		if selector := at(d, "spec.selector.matchLabels").(object); labels["envoy-harmony/simulated"] != "true" || !selects(selector, labels) {
			t.Errorf("labels %v, selected by %v", labels, selector)
		}
	}

	const digest = "image.repository=a/b,image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000"
	_, stderr, err := run(t, tool(t, "helm"), "template", release, chart, "--values", write(t, "simulate: true"), "--set", digest)
	if err == nil || !strings.Contains(stderr, "simulator.image: the filter's image has a digest") {
		t.Errorf("%v: %s", err, stderr)
	}

	// Behind a gateway the simulated engine has the loopback's route, and the requests for other models.
	for _, f := range gatewayFiles {
		all := objects(t, render(t, "simulate: true\n"+f.ownGateway("")))
		route := find(t, all, "HTTPRoute", "harmony-envoy-harmony-engine-simulator")
		for _, route := range []object{route, find(t, all, "HTTPRoute", "harmony-envoy-harmony")} {
			backend := at(route, "spec.rules").([]any)[0].(object)["backendRefs"].([]any)[0].(object)
			if backend["name"] != "harmony-envoy-harmony-sim" || backend["port"] != 8000.0 {
				t.Errorf("%s: %s leads to %v", f.name, at(route, "metadata.name"), backend)
			}
		}
	}
}
