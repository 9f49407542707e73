package tools_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// hosts parses entries of tools.allowed_hosts; URLs of servers are valid entries.
func hosts(t testing.TB, entries ...string) []tools.Host {
	t.Helper()
	list := make([]tools.Host, 0, len(entries))
	for _, entry := range entries {
		h, err := tools.ParseHost(entry)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, h)
	}
	return list
}

func networks(t testing.TB, entries ...string) []netip.Prefix {
	t.Helper()
	list := make([]netip.Prefix, 0, len(entries))
	for _, entry := range entries {
		p, err := netip.ParsePrefix(entry)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

func TestAllow(t *testing.T) {
	c := newClient(t, tools.Options{AllowedHosts: hosts(t, "mcp.example.com", "*.sub.example.org:8443", "http://plain.example.com", "http://127.0.0.1:8080", "[2606:4700::1]", "xn--bcher-kva.example")})
	for _, tt := range []struct{ url, want string }{
		{"https://mcp.example.com", ""},
		{"https://mcp.example.com/mcp?x=1", ""},
		{"HTTPS://MCP.Example.COM:443/mcp", ""},
		{"https://mcp.example.com:0443/mcp", ""},
		{"https://a.sub.example.org:8443", ""},
		{"https://a.b.sub.example.org:8443", ""},
		{"http://plain.example.com", ""},
		{"http://plain.example.com:80/", ""},
		{"http://127.0.0.1:8080/mcp", ""},
		{"https://[2606:4700::1]/", ""},
		{"https://[2606:4700:0:0::1]/", ""},
		{"https://xn--bcher-kva.example", ""},

		{"http://mcp.example.com", "scheme and the port"},
		{"https://mcp.example.com:8443", "scheme and the port"},
		{"https://plain.example.com", "scheme and the port"},
		{"https://a.sub.example.org", "scheme and the port"},
		{"https://sub.example.org:8443", "not allowed: the operator can add"},
		{"https://asub.example.org:8443", "not allowed"},
		{"https://evilsub.example.org:8443", "not allowed"},
		{"https://.sub.example.org:8443", "not a valid host name"},
		{"https://evil.com", "not allowed"},
		{"https://mcp.example.com.evil.com", "not allowed"},
		{"https://mcp.example.com.", "not a valid host name"},
		{"https://evil.com/mcp.example.com", "not allowed"},
		{"https://evil.com#@mcp.example.com", "fragment"},
		{"https://evil.com\\@mcp.example.com", "not a valid URL"},
		{"https://mcp.example.com@evil.com", "user or a password"},
		{"https://user:secretword@mcp.example.com", "user or a password"},
		{"https://@mcp.example.com", "user or a password"},
		{"ftp://mcp.example.com", "https://"},
		{"file:///etc/passwd", "not a valid URL"},
		{"unix:///run/x.sock", "not a valid URL"},
		{"//mcp.example.com", "https://"},
		{"mcp.example.com", "not a valid URL"},
		{"https:mcp.example.com", "not a valid URL"},
		{"", "not a valid URL"},
		{"https://", "not a valid URL"},
		{"https://mcp.example.com:", "port"},
		{"https://mcp.example.com:0", "port"},
		{"https://mcp.example.com:99999", "port"},
		{"https://bücher.example", "punycode"},
		{"https://mcp。example。com", "punycode"},
		{"https://2130706433", "not allowed"},
		{"https://0x7f.1", "not allowed"},
		{"https://[::ffff:127.0.0.1]:8080", "scheme and the port"},
		{"https://[fe80::1%25eth0]/", "zone"},
		{"https://mcp.example.com/\r\nX: y", "not a valid URL"},
		{"https://mcp.example.com/" + strings.Repeat("x", 5000), "not a valid URL"},
	} {
		err := c.Allow(tt.url)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.url, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error %v, want one with %q", tt.url, err, tt.want)
		case err != nil && strings.Contains(err.Error(), "secretword"):
			t.Errorf("%s: the error contains the password", tt.url)
		}

		if tt.want != "" { // a server that is not allowed is not asked
			if r := do(t, c, &tools.Server{Label: "x", URL: tt.url}, "", ""); r.Error != fmt.Sprint(err) {
				t.Errorf("%s: result %q", tt.url, r.Error)
			}
		}
	}
}

func TestParseHost(t *testing.T) {
	for _, entry := range []string{"", "*", "*.", "a b", "http://", "ftp://a", "a/b", "https://a/", "user@a", "a:", "a:x", "a:70000", "*.10.0.0.1", "*.*.a", "a.*", "a?b", "bücher.example", "a#b", "[fe80::1%25e]"} {
		if h, err := tools.ParseHost(entry); err == nil {
			t.Errorf("%q: %+v, want an error", entry, h)
		}
	}
}

// No request reaches an address that is neither public nor allowed, in any
// notation.
func TestAddresses(t *testing.T) {
	c := newClient(t, tools.Options{AllowedNetworks: networks(t, "10.1.0.0/16", "fd00:1::/64")})
	for address, want := range map[string]bool{
		"93.184.216.34": true, "8.8.8.8": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true,
		"64:ff9b::808:808": true, // NAT64 of 8.8.8.8
		"10.1.2.3":         true, "fd00:1::5": true, "::ffff:10.1.2.3": true, "64:ff9b::a01:203": true,
		"172.15.0.1": true, "172.32.0.1": true, "100.128.0.1": true, "169.253.0.1": true,

		"10.2.0.1": false, "10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false,
		"127.0.0.1": false, "127.255.255.254": false, "::1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
		"169.254.169.254": false, "169.254.170.2": false, "fe80::1": false, "fe80::1%eth0": false, "168.63.129.16": false,
		"100.64.0.1": false, "100.100.100.200": false, "192.0.0.192": false, "fd00:ec2::254": false, "fd20:ce::254": false,
		"224.0.0.1": false, "239.1.1.1": false, "ff02::1": false, "ff0e::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"192.31.196.1": false, "192.175.48.1": false, "2620:4f:8000::1": false, "::ffff:0:7f00:1": false, "::ffff:0:a9fe:a9fe": false,
		"198.18.0.1": false, "192.0.2.1": false, "198.51.100.1": false, "203.0.113.1": false, "192.88.99.1": false,
		"fc00::1": false, "fd00:2::1": false, "fec0::1": false, "2001:db8::1": false, "100::1": false, "5f00::1": false, "3fff::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:10.0.0.1": false, "::127.0.0.1": false, "::a9fe:a9fe": false,
		"64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b::a00:1": false, "64:ff9b:1::808:808": false,
		"2002:7f00:1::": false, "2002:a9fe:a9fe::1": false, "2001::1": false,
	} {
		network := "tcp4"
		if strings.Contains(address, ":") {
			network = "tcp6"
		}
		err := tools.Control(c, network, netip.AddrPortFrom(netip.MustParseAddr(address), 443).String())
		if (err == nil) != want {
			t.Errorf("%s: %v, want reachable: %v", address, err, want)
		}
	}

	for _, bad := range []string{"", "8.8.8.8", "host:443", "/run/x.sock"} {
		if tools.Control(c, "tcp", bad) == nil {
			t.Errorf("%q is reachable", bad)
		}
	}

	if tools.Control(c, "udp", "8.8.8.8:53") == nil {
		t.Error("udp is reachable")
	}
}

// An allowed host name that resolves to an address that is not allowed is rejected.
func TestResolvedAddress(t *testing.T) {
	f := newFixture()
	var seen atomic.Int32
	h := f.streamable()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		r.Host = "127.0.0.1" // the SDK's servers on loopback accept no other host
		h.ServeHTTP(w, r)
	}))

	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	o := tools.Options{
		AllowedHosts: hosts(t, "*.example.com:"+port), // example.com is in httptest's certificate
		Resolver:     resolver(t, netip.MustParseAddr("127.0.0.1")),
		TLS:          &tls.Config{RootCAs: pool, ServerName: "example.com"},
	}

	s := &tools.Server{Label: "named", URL: "https://mcp.example.com:" + port}

	r := do(t, newClient(t, o), s, "echo", "{}")
	if !strings.Contains(r.Error, "tools.allowed_networks") || strings.Contains(r.Error, "127.0.0.1") || r.Cause == nil || !strings.Contains(r.Cause.Error(), "127.0.0.1") {
		t.Errorf("error %q, cause %v", r.Error, r.Cause)
	}

	if seen.Load() != 0 {
		t.Error("the server was reached")
	}

	o.AllowedNetworks = networks(t, "127.0.0.1/32")
	wantText(t, do(t, newClient(t, o), s, "echo", "{}"), "{}")
}

// resolver answers every DNS query with one address.
func resolver(t *testing.T, address netip.Addr) *net.Resolver {
	t.Helper()
	return resolverOf(t, func() netip.Addr { return address })
}

// resolverOf answers a DNS query for an IPv4 address with what current returns then.
func resolverOf(t *testing.T, current func() netip.Addr) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(answer(b[:n], current), from)
		}
	}()

	var open sync.WaitGroup // a query that has no answer goes on for seconds
	t.Cleanup(func() { open.Wait(); _ = server.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &query{UDPConn: conn.(*net.UDPConn), done: open.Done}, nil //nolint:forcetypeassert // of a UDP address
	}}
}

// query is a connection to a DNS server. done is called when it is closed. It is a
// [net.PacketConn], by which the resolver sees that it is not a stream.
type query struct {
	*net.UDPConn
	done func()
	once sync.Once
}

func (q *query) Close() error {
	q.once.Do(q.done)
	return q.UDPConn.Close()
}

// answer returns the reply to a DNS query: an A record, or no record for another
// type.
func answer(query []byte, current func() netip.Addr) []byte {
	end := 12 + slices.Index(query[12:], 0) + 5 // the name, the type and the class
	reply := append([]byte(nil), query[:end]...)
	reply[2], reply[3] = 0x81, 0x80
	records := uint16(0)
	if binary.BigEndian.Uint16(query[end-4:]) == 1 {
		records = 1
		reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		reply = append(reply, current().AsSlice()...)
	}
	binary.BigEndian.PutUint16(reply[6:], records)
	binary.BigEndian.PutUint16(reply[8:], 0)
	binary.BigEndian.PutUint16(reply[10:], 0)
	return reply
}

// A proxy of the environment would bypass the address check.
func TestNoProxy(t *testing.T) {
	for _, transport := range tools.Transports(newClient(t, tools.Options{})) {
		if transport.Proxy != nil {
			t.Error("the transport uses a proxy")
		}
	}
}

// countRequests is a server that counts its requests.
func countRequests(t *testing.T) (string, *atomic.Int32) {
	var seen atomic.Int32
	return serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) })), &seen
}

// A redirect to another origin is an error: no request, and so no header, reaches
// it.
func TestRedirects(t *testing.T) {
	elsewhere, seen := countRequests(t)
	f := newFixture()
	h := f.streamable()

	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, trust := range []bool{false, true} {
			url := serve(t, http.RedirectHandler(elsewhere+"/mcp", status))
			c := newClient(t, tools.Options{AllowedHosts: hosts(t, url, elsewhere), AllowedNetworks: networks(t, "127.0.0.0/8")})
			s := &tools.Server{Label: "x", URL: url, Header: http.Header{"Authorization": {"Bearer hidden-token"}}, Trusted: trust}
			if r := do(t, c, s, "", ""); !strings.Contains(r.Error, "redirects to another origin") {
				t.Errorf("%d: error %q (%v)", status, r.Error, r.Cause)
			}
		}
	}

	if seen.Load() != 0 {
		t.Error("the other origin was reached")
	}

	within := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			http.Redirect(w, r, "/mcp/", http.StatusTemporaryRedirect)
			return
		}
		h.ServeHTTP(w, r)
	}))

	wantText(t, do(t, newClient(t, tools.Options{}), trusted(within+"/mcp"), "echo", "{}"), "{}")
	loop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	}))
	if r := do(t, newClient(t, tools.Options{}), trusted(loop), "", ""); !strings.Contains(r.Error, "redirects") {
		t.Errorf("error %q", r.Error)
	}
}

// An SSE server must name an endpoint at its own origin.
func TestEndpointOfOtherOrigin(t *testing.T) {
	elsewhere, seen := countRequests(t)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: endpoint\ndata: %s/messages\n\n", elsewhere)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	c := newClient(t, tools.Options{AllowedHosts: hosts(t, url, elsewhere), AllowedNetworks: networks(t, "127.0.0.0/8")})
	s := &tools.Server{Label: "x", URL: url, Transport: tools.TransportSSE, Header: http.Header{"Authorization": {"Bearer hidden-token"}}}
	if r := do(t, c, s, "", ""); !strings.Contains(r.Error, "redirects to another origin") {
		t.Errorf("error %q (%v)", r.Error, r.Cause)
	}
	if seen.Load() != 0 {
		t.Error("the other origin was reached")
	}
}

func TestCheckHeader(t *testing.T) {
	many := http.Header{}
	for i := range 40 {
		many.Set(fmt.Sprint("X-", i), "1")
	}

	for _, tt := range []struct {
		name   string
		header http.Header
		want   string
	}{
		{"good", http.Header{"Authorization": {"Bearer x"}, "X-Api-Key": {"k"}, "Cookie": {"a=b"}, "user-agent": {"x"}}, ""},
		{"none", nil, ""},
		{"host", http.Header{"Host": {"x"}}, `"Host" cannot be set by requests`},
		{"case", http.Header{"hOsT": {"x"}}, "cannot be set"},
		{"hop by hop", http.Header{"Connection": {"x"}}, "cannot be set"},
		{"te", http.Header{"Transfer-Encoding": {"chunked"}}, "cannot be set"},
		{"length", http.Header{"Content-Length": {"1"}}, "cannot be set"},
		{"proxy", http.Header{"Proxy-Authorization": {"x"}}, "cannot be set"},
		{"session", http.Header{"Mcp-Session-Id": {"x"}}, "cannot be set"},
		{"retry", http.Header{"Idempotency-Key": {"x"}}, "cannot be set"},
		{"crlf", http.Header{"X": {"hidden-value\r\nHost: evil"}}, `"X" contains a character`},
		{"nul", http.Header{"X": {"hidden-value\x00"}}, "contains a character"},
		{"name", http.Header{"X Y": {"1"}}, "not a valid HTTP header name"},
		{"name crlf", http.Header{"X\r\nY": {"1"}}, "not a valid HTTP header name"},
		{"empty name", http.Header{"": {"1"}}, "not a valid HTTP header name"},
		{"many", many, "too many"},
		{"long", http.Header{"X": {strings.Repeat("x", 17<<10)}}, "too many"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tools.CheckHeader(tt.header)
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hidden")) {
				t.Errorf("error %v, want %q", err, tt.want)
			}

			url, seen := countRequests(t)
			c := newClient(t, tools.Options{AllowedHosts: hosts(t, url), AllowedNetworks: networks(t, "127.0.0.0/8")})
			r := do(t, c, &tools.Server{Label: "x", URL: url, Header: tt.header}, "", "")
			if tt.want != "" && (r.Error != fmt.Sprint(err) || seen.Load() != 0) {
				t.Errorf("result %q", r.Error)
			}
		})
	}
}

// A configured server accepts only the headers that the operator allows, and its
// own values win. A process accepts none.
func TestAddHeader(t *testing.T) {
	own := http.Header{"X-Own": {"operator"}}
	remote := tools.Server{Label: "docs", URL: "https://a", Header: own, Trusted: true, RequestHeaders: []string{"Authorization", "X-Own"}}
	ofRequest := tools.Server{Label: "own", URL: "https://a"}
	local := tools.Server{Label: "local", Command: []string{"true"}, Trusted: true}

	for _, tt := range []struct {
		name   string
		server tools.Server
		header http.Header
		// "": the headers are added.
		want string
		sent http.Header
	}{
		{"allowed", remote, http.Header{"Authorization": {"x"}}, "", http.Header{"Authorization": {"x"}, "X-Own": {"operator"}}},
		{"the operator's stays", remote, http.Header{"X-Own": {"x"}}, "", own},
		{"nothing", remote, nil, "", own},
		{"not allowed", remote, http.Header{"X-Forwarded-User": {"root"}}, `does not accept the header "X-Forwarded-User" from requests`, own},
		{"one of two", remote, http.Header{"Authorization": {"x"}, "Cookie": {"a=b"}}, "tools.servers[].request_headers", own},
		{"HTTP's own", remote, http.Header{"Host": {"x"}}, "cannot be set", own},
		{"a request's server", ofRequest, http.Header{"Cookie": {"a=b"}}, "", http.Header{"Cookie": {"a=b"}}},
		{"a process", local, http.Header{"Authorization": {"x"}}, "is a process", nil},
		{"nothing for a process", local, http.Header{}, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.server
			err := s.AddHeader(tt.header)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if diff := cmp.Diff(tt.sent, s.Header); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

// Requests cannot start processes.
func TestProcessOfRequest(t *testing.T) {
	c := newClient(t, tools.Options{AllowedHosts: hosts(t, "mcp.example.com")})
	for _, s := range []*tools.Server{
		{Label: "x", Command: []string{"true"}},
		{Label: "x", Transport: tools.TransportStdio},
		{Label: "x", URL: "https://mcp.example.com", Transport: tools.TransportStdio},
		{Label: "x", URL: "https://mcp.example.com", Command: []string{"true"}},
		{Label: "x", URL: "https://mcp.example.com", Env: map[string]string{"A": "b"}},
	} {
		if r := do(t, c, s, "", ""); !strings.Contains(r.Error, "only the configuration") {
			t.Errorf("%v: %q", s, r.Error)
		}
	}
	if r := c.Do(context.Background(), tools.Job{}); r.Error == "" {
		t.Error("a job without a server succeeded")
	}
}

// Errors and logs contain no secrets, even if servers repeat them.
func TestSecrets(t *testing.T) {
	const bearer, query, variable, session = "sk-top/secret+token", "query-secret", "variable-secret", "session-secret"
	log, out := debugLog()
	hello := scripted(map[string]string{"tools/call": `{"isError":true,"content":[{"type":"text","text":"you sent ` + bearer + `"}]}`})
	echo := func(status int, kind, format string) string {
		return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+bearer {
				t.Error("the header is missing")
			}

			w.Header().Set("Content-Type", kind)
			w.Header().Set("Mcp-Session-Id", session)
			if r.Header.Get("Mcp-Session-Id") == "" && status != 401 {
				hello(w, r)
				return
			}

			body, _ := io.ReadAll(r.Body)
			if !strings.Contains(string(body), "tools/call") && status != 401 {
				hello(w, &http.Request{Body: io.NopCloser(strings.NewReader(string(body)))})
				return
			}

			w.WriteHeader(status)
			fmt.Fprintf(w, format, r.Header.Get("Authorization")+" "+r.URL.String())
		}))
	}

	rpc := `{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"refused: %s"}}`
	var errorTexts strings.Builder

	for _, target := range []string{
		echo(401, "text/plain", "%s"), echo(401, "application/json", rpc), echo(400, "application/json", rpc), echo(200, "application/json", rpc),
		echo(500, "text/plain", "%s"), echo(200, "text/html", "%s"), echo(200, "application/json", "%s"), echo(200, "text/event-stream", "%s\n\n"),
		serve(t, hello), "http://127.0.0.1:1", "http://nowhere.invalid", "https://127.0.0.1:1",
	} {
		for _, transport := range []string{tools.TransportHTTP, tools.TransportSSE, ""} {
			s := trusted(target + "/path-secret?key=" + url.QueryEscape(query))
			s.Transport = transport
			s.Header = http.Header{"Authorization": {"Bearer " + bearer}}
			c := newClient(t, tools.Options{Log: log, ListTimeout: 5 * time.Second, CallTimeout: 5 * time.Second})

			for _, tool := range []string{"", "x"} {
				r := do(t, c, s, tool, "{}")
				if r.Error == "" && tool != "" {
					t.Errorf("%s %s: no error", target, transport)
				}
				fmt.Fprintf(&errorTexts, "%s\n%v\n%+v\n", r.Error, r.Cause, errors.Unwrap(r.Cause))
			}

			fmt.Fprintf(&errorTexts, "%v %+v %#v %s %q\n%v %+v %#v\n", s, s, s, s, s, *s, *s, *s)
		}
	}

	p := process("server", map[string]string{"TOKEN": variable})
	c := newClient(t, tools.Options{Log: log})
	do(t, c, p, "exit", "{}")
	c.Close()
	fmt.Fprintf(&errorTexts, "%v %+v %#v\n", p, *p, *p)
	if !strings.Contains(out.String(), "hello from the process, [hidden]") {
		t.Errorf("the log lacks the stderr of the process: %s", out)
	}

	all := errorTexts.String() + out.String()
	for _, secret := range []string{bearer, url.QueryEscape(bearer), query, variable, session, "path-secret"} {
		if i := strings.Index(all, secret); i >= 0 {
			t.Errorf("%s is in: …%s…", secret, all[max(0, i-200):i+len(secret)])
		}
	}
}

// A server that repeats its secrets does not reveal them to clients or to the
// model.
func TestSecretsInResults(t *testing.T) {
	const bearer, variable = "sk-top/secret<token>", "variable-secret"
	result := `{"content":[{"type":"text","text":"you sent ` + bearer + `, true"},{"type":"resource_link","uri":"https://a/?key=` + url.QueryEscape(bearer) + `","name":"` + bearer + `"},` +
		`{"type":"resource","resource":{"uri":"file:///a","text":"` + bearer + `"}}],"structuredContent":{"z":"sk-top\/secret\u003ctoken\u003e","` + bearer + `":[1,true,"a\\"]}}`
	address := serve(t, scripted(map[string]string{"tools/call": result}))
	c := newClient(t, tools.Options{AllowedHosts: hosts(t, address), AllowedNetworks: networks(t, "127.0.0.0/8")})

	for _, trusted := range []bool{true, false} {
		r := do(t, c, &tools.Server{Label: "a", URL: address, Trusted: trusted, Header: http.Header{"Authorization": {"Bearer " + bearer}, "X-Debug": {"true"}}}, "x", "{}")
		output := fmt.Sprintf("%s %+v %s", r.Text, r.Content, r.Structured)
		if strings.Contains(output, "token") || string(r.Structured) != `{"z":"[hidden]","[hidden]":[1,true,"a\\"]}` || !strings.HasPrefix(r.Text, "you sent [hidden], true\n") {
			t.Errorf("trusted %v: a secret is revealed: %s", trusted, output)
		}
	}

	query := tools.Server{Label: "a", URL: address + "?key=" + url.QueryEscape(bearer), Trusted: true}
	if r := do(t, c, &query, "x", "{}"); strings.Contains(fmt.Sprintf("%s %+v %s", r.Text, r.Content, r.Structured), "token") {
		t.Errorf("a secret of the URL is revealed: %+v", r)
	}

	listing := `{"tools":[{"name":"a","title":"` + bearer + `","description":"you sent ` + bearer + `","inputSchema":{"type":"object","description":"sk-top\/secret\u003ctoken\u003e"},"annotations":{"title":"` + bearer + `"}}]}`
	address = serve(t, scripted(map[string]string{"tools/list": listing}))
	c = newClient(t, tools.Options{AllowedHosts: hosts(t, address), AllowedNetworks: networks(t, "127.0.0.0/8")})

	for _, trusted := range []bool{true, false} {
		r := do(t, c, &tools.Server{Label: "a", URL: address, Trusted: trusted, Header: http.Header{"Authorization": {"Bearer " + bearer}}}, "", "")
		want := []tools.Tool{{
			Name: "a", Title: "[hidden]", Description: "you sent [hidden]",
			InputSchema: json.RawMessage(`{"type":"object","description":"[hidden]"}`), Annotations: json.RawMessage(`{"title":"[hidden]"}`),
		}}
		if diff := cmp.Diff(want, r.Tools); diff != "" {
			t.Errorf("trusted %v: tools (-want +got):\n%s", trusted, diff)
		}
	}

	p := process("server", map[string]string{"TOKEN": variable})
	if r := do(t, c, p, "env", "{}"); !strings.Contains(r.Text, "TOKEN=[hidden]") || strings.Contains(fmt.Sprint(r), variable) {
		t.Errorf("a secret is revealed: %+v", r)
	}
}
