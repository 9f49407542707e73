package gateways

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// dialFrom connects to the data plane from another address of this machine.
func dialFrom(t *testing.T, d *stack.Dataplane, address string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		t.Skipf("this system has no %s: %v", address, err) // only Linux has all of 127.0.0.0/8
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Without tenants an address has half of the memory for bodies: who fills it gets a 429, and
// clients of other addresses are served. So our own bootstrap asks Envoy for addresses.
func TestAddressesShareTheBudget(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Limits.MaxBodyBytes, c.Limits.MaxConversationBytes, c.Limits.MaxInflightBytes = 1<<20, 1<<16, 9<<20 // 4.5 MiB for each address
	}})
	const size = 700_000
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"SAY Hi"}]}`, stack.VLLMModel)
	body += strings.Repeat(" ", size-len(body))
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n", size)
	send := func(address string) int {
		conn := dialFrom(t, d, address)
		if _, err := conn.Write([]byte(head + body)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}

	// Uploads of one address that do not end leave no room for another one, and for what is made
	// of it. One that arrives beside a whole request may be refused itself.
	for deadline := time.Now().Add(stack.Patience); send("127.0.0.2") != http.StatusTooManyRequests; {
		if _, err := dialFrom(t, d, "127.0.0.2").Write([]byte(head + body[:size-1])); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("one address gets more than its share")
		}
	}
	if status := send("127.0.0.3"); status != http.StatusOK {
		t.Errorf("another address gets %d", status)
	}
}
