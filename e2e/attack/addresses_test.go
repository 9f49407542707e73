//go:build attack

package attack

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"
)

// sinks are listeners at addresses that requests must not reach. They count
// connections.
type sinks struct {
	connections atomic.Int64
	port4       string // 127.0.0.1 and 127.0.0.2 on this port
	port6       string // of ::1; "" without IPv6
}

func newSinks(t *testing.T) *sinks {
	t.Helper()
	s := &sinks{}

	listen := func(address string) string {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return ""
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				s.connections.Add(1)
				_ = conn.Close()
			}
		}()

		_, port, _ := net.SplitHostPort(l.Addr().String())
		return port
	}

	if s.port4 = listen("127.0.0.1:0"); s.port4 == "" {
		t.Fatal("no port of 127.0.0.1 is free")
	}
	listen("127.0.0.2:" + s.port4)
	s.port6 = listen("[::1]:0")
	return s
}

// serveAt serves at an address until the test ends.
func serveAt(t *testing.T, address string, h http.Handler) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// addressArea has servers of requests at addresses that are not allowed, and
// redirects to them.
func addressArea() area {
	var s *sinks
	var redirecting *httptest.Server

	forbidden := func(name string, tool func() string) attack {
		return attack{name: name, want: "no connection", run: func(a *attempt) {
			before := s.connections.Load()
			r := a.post(responsesPath, responsesBody(simple, tool()))
			a.see("%s, %d connections", r.brief(), s.connections.Load()-before)
			if n := s.connections.Load() - before; n != 0 {
				a.Errorf("%d connections to an address that is not allowed", n)
			}

			if strings.Contains(r.text, `"mcp_list_tools"`) && len(gjson.Get(r.text, "output.#(type==mcp_list_tools).tools").Array()) > 0 {
				a.Errorf("the tools of the server are listed: %s", r.text)
			}
		}}
	}

	var all []attack
	for _, format := range []string{
		"http://127.0.0.1:PORT/", "https://127.0.0.1:PORT/", "http://localhost:PORT/", "https://localhost:PORT/", "http://LOCALHOST:PORT/", "http://localhost.:PORT/", "http://127.1:PORT/", "http://127.0.1:PORT/", "http://2130706433:PORT/", "http://0x7f000001:PORT/",
		"http://0x7f.0.0.1:PORT/", "http://0177.0.0.1:PORT/", "http://017700000001:PORT/", "http://127.0.0.2:PORT/", "http://0.0.0.0:PORT/", "http://0:PORT/", "http://[::]:PORT/", "http://[::1]:PORT6/", "https://[::1]:PORT6/", "http://[::ffff:127.0.0.1]:PORT/",
		"http://[::ffff:7f00:1]:PORT/", "http://[::127.0.0.1]:PORT/", "http://[64:ff9b::127.0.0.1]:PORT/", "http://[64:ff9b::7f00:1]:PORT/", "http://[2002:7f00:1::]:PORT/", "http://[::1%25lo]:PORT6/", "http://[::1%lo]:PORT6/", "http://allowed.test@127.0.0.1:PORT/", "http://allowed.test:x@127.0.0.1:PORT/", "http://127.0.0.1:PORT#@allowed.test/",
		"http://127.0.0.1:PORT?@allowed.test/", `http://127.0.0.1:PORT\@allowed.test/`, `http://allowed.test\@127.0.0.1:PORT/`, "http://allowed.test%00@127.0.0.1:PORT/", "http://allowed.test%2f@127.0.0.1:PORT/", "http://127.0.0.1%09:PORT/", " http://127.0.0.1:PORT/", "HTTP://127.0.0.1:PORT/", "http:127.0.0.1:PORT/", "//127.0.0.1:PORT/",
		"http:///127.0.0.1:PORT/", "http://①②⑦.⓪.⓪.①:PORT/", "http://127。0。0。1:PORT/", "http://x.wild.test@127.0.0.1:PORT/", "http://wild.test.127.0.0.1:PORT/", "http://127.0.0.1:PORT/.wild.test", "gopher://127.0.0.1:PORT/", "file:///etc/passwd", "unix:///run/x", "http://169.254.169.254/latest/meta-data/",
	} {
		all = append(all, forbidden(format, func() string {
			return ownServer(strings.NewReplacer("PORT6", s.port6, "PORT", s.port4).Replace(format), "")
		}))
	}

	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, format := range []string{"http://127.0.0.2:PORT/", "http://localhost:PORT/", "http://[::1]:PORT6/", "//127.0.0.2:PORT/", "http://127.0.0.1@127.0.0.2:PORT/", "http://0x7f000002:PORT/", "http://127.0.0.1:PORT/"} {
			all = append(all, forbidden(fmt.Sprintf("redirect %d to %s", status, format), func() string {
				to := strings.NewReplacer("PORT6", s.port6, "PORT", s.port4).Replace(format)
				return ownServer(fmt.Sprintf("%s/?status=%d&to=%s", redirecting.URL, status, url.QueryEscape(to)), "")
			}))
		}
	}

	return area{name: "addresses", attacks: all, config: func(t *testing.T, c *stackConfig) {
		s = newSinks(t)
		redirecting = serveAt(t, "127.0.0.3:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var status int
			_, _ = fmt.Sscan(r.URL.Query().Get("status"), &status)
			w.Header().Set("Location", r.URL.Query().Get("to"))
			w.WriteHeader(status)
		}))

		// The hosts are allowed, so the address has to be checked at the connection. The
		// only address that is allowed is not that of a sink.
		port := func(host string) string { return "http://" + host + ":" + s.port4 }
		c.set("tools.allowed_hosts", []string{"http://localhost:" + s.port4, "localhost:" + s.port4, "allowed.test", "*.wild.test", port("127.0.0.2"), port("0.0.0.0"), "http://[::1]:" + s.port6, redirecting.URL})
		c.set("tools.allowed_networks", []string{"127.0.0.3/32"})

		if s.port6 == "" {
			s.port6 = "1"
		}
		c.set("tools.list_timeout", "2s")
	}}
}
