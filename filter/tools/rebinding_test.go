package tools_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// numbered is an MCP server at an address that counts the requests it gets.
type numbered struct {
	*httptest.Server
	seen atomic.Int32
}

func startNumbered(t *testing.T, address string) *numbered {
	t.Helper()
	n, h := &numbered{}, newFixture().streamable()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("no address %s on this machine: %v", address, err)
	}
	n.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.seen.Add(1)
		r.Host = "127.0.0.1" // the SDK's servers on loopback accept no other host
		h.ServeHTTP(w, r)
	})}}
	n.Start()
	t.Cleanup(func() {
		n.CloseClientConnections()
		n.Close()
	})
	return n
}

// The name of an MCP server gets another address between calls. Each new connection
// goes to the new address, if it is allowed, and fails if it is not, though the URL
// was accepted and the session with the old address exists.
func TestNameGetsAnotherAddress(t *testing.T) {
	first := startNumbered(t, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(first.Listener.Addr().String())
	second, forbidden := startNumbered(t, "127.0.0.2:"+port), startNumbered(t, "127.0.0.3:"+port)
	var address atomic.Pointer[netip.Addr]
	move := func(to string) {
		a := netip.MustParseAddr(to)
		address.Store(&a)
		for _, n := range []*numbered{first, second, forbidden} {
			n.CloseClientConnections() // what is connected stays at the old address
		}
	}

	move("127.0.0.1")
	host := "http://mcp.example.com:" + port
	c := newClient(t, tools.Options{
		AllowedHosts:    hosts(t, host),
		AllowedNetworks: networks(t, "127.0.0.1/32", "127.0.0.2/32"),
		Resolver:        resolverOf(t, func() netip.Addr { return *address.Load() }),
	})

	s := &tools.Server{Label: "moving", URL: host}
	wantText(t, do(t, c, s, "echo", `{"at":1}`), `{"at":1}`)

	move("127.0.0.2")
	// The first call may meet the end of its old session.
	r := do(t, c, s, "echo", `{"at":2}`)
	if r.Error != "" {
		r = do(t, c, s, "echo", `{"at":2}`)
	}

	wantText(t, r, `{"at":2}`)
	if second.seen.Load() == 0 {
		t.Error("the new address was not asked")
	}

	move("127.0.0.3")
	for range 3 {
		r := do(t, c, s, "echo", `{"at":3}`)
		if r.Error == "" || strings.Contains(r.Error, "127.0.0.3") {
			t.Errorf("text %q, error %q", r.Text, r.Error)
		}
	}

	if r := do(t, c, s, "echo", `{"at":3}`); !strings.Contains(r.Error, "tools.allowed_networks") {
		t.Errorf("error %q, cause %v", r.Error, r.Cause)
	}

	if forbidden.seen.Load() != 0 {
		t.Error("an address that is not allowed was reached")
	}

	move("127.0.0.1")
	wantText(t, do(t, c, s, "echo", `{"at":4}`), `{"at":4}`)
}

// A name whose address alternates for each query: a check of another query than the
// one that the connection uses would let every second connection through.
func TestNameAlternates(t *testing.T) {
	allowed := startNumbered(t, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(allowed.Listener.Addr().String())
	forbidden := startNumbered(t, "127.0.0.3:"+port)
	var queries atomic.Int32
	host := "http://mcp.example.com:" + port
	o := tools.Options{
		AllowedHosts:    hosts(t, host),
		AllowedNetworks: networks(t, "127.0.0.1/32"),
		Resolver: resolverOf(t, func() netip.Addr {
			if queries.Add(1)%2 == 1 {
				return netip.MustParseAddr("127.0.0.1")
			}
			return netip.MustParseAddr("127.0.0.3")
		}),
	}

	for i := range 8 {
		c := newClient(t, o)
		do(t, c, &tools.Server{Label: "moving", URL: host}, "echo", "{}")
		c.Close()
		allowed.CloseClientConnections()
		if forbidden.seen.Load() != 0 {
			t.Fatalf("client %d reached an address that is not allowed", i)
		}
	}

	if allowed.seen.Load() == 0 || queries.Load() < 2 {
		t.Errorf("%d requests at the allowed address, %d queries", allowed.seen.Load(), queries.Load())
	}
}
