package stack

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Handshake asks for a WebSocket as clients do, and returns the reply. The connection
// stays open: the reply has to be complete by itself.
func (d *Dataplane) Handshake(t *testing.T, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A reply without its length would be read for ever.
	_ = conn.SetDeadline(time.Now().Add(Patience))

	var request strings.Builder
	// The key is the example of RFC 6455, the last header is that of Codex.
	request.WriteString(method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOpenAI-Beta: " +
		"responses_websockets=2026-02-06\r\n")
	for i := 0; i < len(headers); i += 2 {
		request.WriteString(headers[i] + ": " + headers[i+1] + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&request, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	if _, err := io.WriteString(conn, request.String()+"\r\n"+body); err != nil {
		t.Fatal(err)
	}

	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s %s: the reply is not HTTP: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s %s: after %q: %v", method, path, text, err)
	}
	return resp, string(text)
}

// CheckWebSockets checks that a client that asks for a WebSocket gets a 426, on which it
// goes on over HTTP. The same request without Upgrade is what it was.
func (d *Dataplane) CheckWebSockets(t *testing.T) {
	t.Helper()
	const question = `{"model":"gpt-oss-20b","input":"NOTHINK\nSAY hello"}`
	for _, tt := range []struct{ method, path, body string }{
		{http.MethodGet, "/v1/responses", ""},
		{http.MethodGet, "/v1/responses?model=gpt-oss-20b", ""},
		{http.MethodPost, "/v1/responses", ""},
		{http.MethodPost, "/v1/responses", question},
		{http.MethodGet, "/v1/chat/completions", ""},
	} {
		if resp, text := d.Handshake(t, tt.method, tt.path, tt.body); resp.StatusCode != http.StatusUpgradeRequired ||
			ReadError(t, text).Type != "invalid_request_error" {
			t.Errorf("%s %s: %s: %s", tt.method, tt.path, resp.Status, text)
		}
	}
	for _, tt := range []struct {
		path    string
		headers []string
	}{{"/v1/messages", nil}, {"/v1/responses", []string{"anthropic-version", "2023-06-01"}}} {
		resp, text := d.Handshake(t, http.MethodGet, tt.path, "", tt.headers...)
		if resp.StatusCode != http.StatusUpgradeRequired || !strings.Contains(text, "plain HTTP") {
			t.Errorf("GET %s %q: %s: %s", tt.path, tt.headers, resp.Status, text)
		}
	}

	resp := d.Do(t, http.MethodPost, "/v1/responses", "application/json", strings.NewReader(question))
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK ||
		!strings.Contains(string(text), "hello") {
		t.Errorf("without Upgrade: %s: %s, %v", resp.Status, text, err)
	}
	resp = d.Do(t, http.MethodGet, "/v1/responses", "", http.NoBody)
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode == http.StatusUpgradeRequired {
		t.Errorf("GET without Upgrade: %s: %s, %v", resp.Status, text, err)
	}
}
