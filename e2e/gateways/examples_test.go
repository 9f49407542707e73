package gateways

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/pki"
	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// readExample reads a file of envoy/examples and replaces what belongs to a place:
// addresses, paths. Each text must be there.
func readExample(t *testing.T, name string, replace map[string]string) string {
	t.Helper()
	read, err := os.ReadFile(filepath.Join("../envoy/examples", name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(read)
	for old, by := range replace {
		if !strings.Contains(text, old) {
			t.Fatalf("%s does not have %q", name, old)
		}
		text = strings.ReplaceAll(text, old, by)
	}
	return text
}

// atURL is the address of a URL in Envoy's configuration.
func atURL(url string) string {
	host, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	return fmt.Sprintf("address: %q, port_value: %s", host, port)
}

// issuer signs JSON Web Tokens.
type issuer struct{ key *ecdsa.PrivateKey }

func newIssuer(t *testing.T) issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{key}
}

// jwks is the issuer's public key as a JSON Web Key Set.
func (i issuer) jwks(t *testing.T) []byte {
	t.Helper()
	point, err := i.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return fmt.Appendf(nil, `{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","x":%q,"y":%q}]}`, encode(point[1:33]), encode(point[33:]))
}

// sign makes a token with claims over the default ones.
func (i issuer) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"iss": "https://login.example.com", "aud": "envoy-harmony", "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		all[name] = value
	}
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + encode(payload)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature)
}

// startJWT starts a data plane with the example of tokens.
func startJWT(t *testing.T, i issuer) *stack.Dataplane {
	t.Helper()
	jwks := t.TempDir()
	pki.Write(t, jwks, map[string][]byte{"jwks.json": i.jwks(t)})

	sim := stack.StartSim(t, &stack.LogFile{})
	return stack.Start(t, stack.Options{
		SimURL: sim,
		Config: func(c *config.Config) {
			c.TenantHeader = "x-tenant"
			c.Engines = []config.Engine{{Kind: "vllm", URLs: []string{sim}}}
		},
		Bootstrap: func(generated string) string {
			sockets := regexp.MustCompile(`pipe: {path: "([^"]*/)(filter|loopback)"`).FindStringSubmatch(generated)
			return readExample(t, "jwt.yaml", map[string]string{
				"/run/envoy-harmony/filter.sock":                sockets[1] + "filter",
				"/run/envoy-harmony/loopback.sock":              sockets[1] + "loopback",
				`address: "0.0.0.0", port_value: 10000`:         `address: "127.0.0.1", port_value: 0`,
				"port_value: 9901":                              "port_value: 0",
				"/etc/envoy":                                    jwks,
				`address: "vllm.default.svc", port_value: 8000`: atURL(sim),
			})
		},
	})
}

// A token's claim is the tenant. Tenants do not see each other's responses, and a
// request without a valid token is a 401 in OpenAI's format.
func TestExampleJWT(t *testing.T) {
	i := newIssuer(t)
	d := startJWT(t, i)
	bearer := func(claims map[string]any) string { return "Bearer " + i.sign(t, claims) }
	a, b := bearer(map[string]any{"tenant": "a"}), bearer(map[string]any{"tenant": "b"})

	for _, tt := range []struct {
		name, authorization string
		status              int
	}{
		{"no token", "", http.StatusUnauthorized},
		{"no JWT", "Bearer sk-1234", http.StatusUnauthorized},
		{"another issuer's key", "Bearer " + newIssuer(t).sign(t, map[string]any{"tenant": "a"}), http.StatusUnauthorized},
		{"expired", bearer(map[string]any{"tenant": "a", "exp": time.Now().Add(-time.Hour).Unix()}), http.StatusUnauthorized},
		{"another audience", bearer(map[string]any{"tenant": "a", "aud": "x"}), http.StatusForbidden},
		{"no tenant", bearer(nil), http.StatusUnauthorized},
		{"valid", a, http.StatusOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headers := []string{"x-tenant", "a"}
			if tt.authorization != "" {
				headers = append(headers, "authorization", tt.authorization)
			}

			resp, text := d.Chat(t, stack.VLLMModel, "SAY It works.", "", headers...)
			if resp.StatusCode != tt.status {
				t.Fatalf("%s: %s", resp.Status, text)
			}

			if tt.status != http.StatusOK {
				stack.ReadError(t, text)
			}
		})
	}

	get := func(method, path, body, authorization string) (int, string) {
		resp := d.Do(t, method, path, "application/json", strings.NewReader(body), "authorization", authorization, "x-tenant", "a", "x-request-id", "stored")
		return resp.StatusCode, stack.ReadText(t, resp)
	}

	status, text := get(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"model":%q,"input":"SAY mine"}`, stack.VLLMModel), a)
	id := gjson.Get(text, "id").String()
	if status != http.StatusOK || id == "" {
		t.Fatalf("status %d: %s", status, text)
	}

	if status, text := get(http.MethodGet, "/v1/responses/"+id, "", a); status != http.StatusOK || !strings.Contains(text, "mine") {
		t.Errorf("the tenant gets %d: %s", status, text)
	}
	if status, text := get(http.MethodGet, "/v1/responses/"+id, "", b); status != http.StatusNotFound || strings.Contains(text, "mine") {
		t.Errorf("another tenant gets %d: %s", status, text)
	}

	for _, r := range d.EngineRequests(t, "stored") {
		if r.Header["authorization"] != "" {
			t.Errorf("the engine got the token: %v", r.Header)
		}
	}
}

// TLS for clients, and mutual TLS to the filter and from it, with certificates that are
// renewed on both sides while requests are served.
func TestExampleTLS(t *testing.T) {
	ca, next := pki.NewCA(t, "first"), pki.NewCA(t, "next")
	filter := newCertFiles(t, ca.Leaf(t, "envoy-harmony.default.svc"), ca)
	listener, client := newCertFiles(t, ca.Leaf(t, "models.example.com"), ca), newCertFiles(t, ca.Leaf(t, "envoy"), ca)
	loopback, caller := newCertFiles(t, ca.Leaf(t, "127.0.0.1"), ca), newCertFiles(t, ca.Leaf(t, "filter"), ca)

	log, port := stack.LogOf(t), stack.FreePort(t)
	sim := stack.StartSim(t, log)
	p := stack.ServeProgram(t, log, append([]string{
		"--engine", "vllm=" + sim, "--set", "max_connection_age=500ms", "--set", stack.NewToolServer(t).Set(t),
		"--set", "tls.cert_file=" + filter.file("tls.crt"), "--set", "tls.key_file=" + filter.file("tls.key"), "--set", "tls.client_ca_file=" + filter.file("ca.crt"),
	}, caller.loopbackFlags("127.0.0.1:"+port, true)...)...)

	sds := t.TempDir()
	for name, at := range map[string]struct{ folder, by string }{
		"listener.yaml": {"listener", listener.folder}, "filter-client.yaml": {"filter", client.folder}, "filter-ca.yaml": {"filter", client.folder},
		"loopback.yaml": {"loopback", loopback.folder}, "loopback-client-ca.yaml": {"loopback", loopback.folder},
	} {
		pki.Write(t, sds, map[string][]byte{name: []byte(readExample(t, "tls/"+name, map[string]string{"/etc/envoy/tls/" + at.folder: at.by}))})
	}

	places := map[string]string{"port_value: 9901": "port_value: 0", "/etc/envoy/sds": sds}
	places[`address: "0.0.0.0", port_value: 10443`] = `address: "127.0.0.1", port_value: 0`
	places[`address: "0.0.0.0", port_value: 10001`] = `address: "127.0.0.1", port_value: ` + port
	places[`address: "envoy-harmony.default.svc", port_value: 9002`] = atURL("http://" + p.Address)
	places[`address: "vllm.default.svc", port_value: 8000`] = atURL(sim)
	d := p.Envoy(t, []byte(readExample(t, "tls/envoy.yaml", places)))
	d.URL = strings.Replace(d.URL, "http://", "https://", 1)

	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca.PEM)

	ask := func() (serial string) {
		t.Helper()
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "models.example.com", MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
		d.Client = &http.Client{Transport: transport}
		resp, text := d.Chat(t, stack.VLLMModel, "SAY It works.", "")
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, `"content":"It works."`) {
			t.Fatalf("%s: %s", resp.Status, text)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.String()
	}

	before := ask()
	checkToolLoop(t, d)

	listener.set(t, ca.Leaf(t, "models.example.com"), ca.PEM)
	for deadline := time.Now().Add(stack.Patience); ask() == before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Envoy does not use the new certificate of its listener")
		}
	}

	// The CA changes as operators change it: trust both, present the new, trust the new.
	both := append(append([]byte{}, ca.PEM...), next.PEM...)
	filter.set(t, ca.Leaf(t, "envoy-harmony.default.svc"), both)
	client.set(t, ca.Leaf(t, "envoy"), both)
	loopback.set(t, ca.Leaf(t, "127.0.0.1"), both)
	caller.set(t, ca.Leaf(t, "filter"), both)
	awaitReloads(t, p, "ok", 1)

	ask()
	client.set(t, next.Leaf(t, "envoy"), both)
	filter.set(t, next.Leaf(t, "envoy-harmony.default.svc"), next.PEM)
	loopback.set(t, next.Leaf(t, "127.0.0.1"), both)
	caller.set(t, next.Leaf(t, "filter"), both)
	awaitIssuer(t, "127.0.0.1:"+port, next)
	awaitReloads(t, p, "ok", 2)

	ask()
	checkToolLoop(t, d)
}
