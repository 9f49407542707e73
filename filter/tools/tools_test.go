package tools_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

// Every transport lists and calls tools. A transport that is not configured is
// detected.
func TestTransports(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server func(t *testing.T) *tools.Server
	}{
		{"http", func(t *testing.T) *tools.Server {
			s := trusted(serve(t, newFixture().streamable()))
			s.Transport = tools.TransportHTTP
			return s
		}},
		{"sse", func(t *testing.T) *tools.Server {
			s := trusted(serve(t, newFixture().sse()))
			s.Transport = tools.TransportSSE
			return s
		}},
		{"http detected", func(t *testing.T) *tools.Server { return trusted(serve(t, newFixture().streamable())) }},
		{"sse detected", func(t *testing.T) *tools.Server { return trusted(serve(t, newFixture().sse())) }},
		{"stateless", func(t *testing.T) *tools.Server {
			f := newFixture()
			return trusted(serve(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return f.server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})))
		}},
		{"stdio", func(*testing.T) *tools.Server { return process("server", nil) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, s := newClient(t, tools.Options{}), tt.server(t)
			listed := do(t, c, s, "", "")
			if listed.Error != "" || len(listed.Tools) != 8 {
				t.Fatalf("%d tools, error %q (%v)", len(listed.Tools), listed.Error, listed.Cause)
			}

			for _, tool := range listed.Tools {
				if want := `{"type":"object","properties":{"zulu":{"type":"string"},"alpha":{"type":"string"}}}`; string(tool.InputSchema) != want {
					t.Errorf("schema of %s: %s, want the server's order: %s", tool.Name, tool.InputSchema, want)
				}
			}

			wantText(t, do(t, c, s, "echo", `{"zulu": "x"}`), `{"zulu":"x"}`)
			wantText(t, do(t, c, s, "echo", ` `), `{}`)
			wantText(t, do(t, c, s, "ask", `{}`), "true | true | true <nil>")
			if r := do(t, c, s, "fail", `{}`); r.Error != "no such page" || r.Text != "" {
				t.Errorf("error %q, text %q", r.Error, r.Text)
			}

			if r := do(t, c, s, "nope", `{}`); !strings.Contains(r.Error, "nope") {
				t.Errorf("error %q does not name the tool", r.Error)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	f := newFixture()
	c, s := newClient(t, tools.Options{}), trusted(serve(t, f.streamable()))
	for _, arguments := range []string{`[]`, `"x"`, `{`, `{"a":1}{"b":2}`, `{"a":}`, `null`, `1`, `{} x`} {
		if r := do(t, c, s, "echo", arguments); !strings.Contains(r.Error, "not a JSON object") {
			t.Errorf("%s: error %q", arguments, r.Error)
		}
	}
	if f.initialized.Load() != 0 {
		t.Error("a request reached the server")
	}
}

// Concurrent jobs share one session, and its calls run concurrently.
func TestOneSession(t *testing.T) {
	f := newFixture()
	c, s := newClient(t, tools.Options{}), trusted(serve(t, f.streamable()))
	const n = 40
	var group sync.WaitGroup
	for range n {
		group.Go(func() { wantText(t, do(t, c, s, "block", "{}"), "done") })
	}
	for range n {
		receive(t, f.started, "all calls run")
	}
	close(f.release)
	group.Wait()
	if got := f.initialized.Load(); got != 1 {
		t.Errorf("%d sessions, want 1", got)
	}
}

// Every field that is part of the session key separates sessions.
func TestSessionKey(t *testing.T) {
	f := newFixture()
	url := serve(t, f.streamable())
	c := newClient(t, tools.Options{AllowedHosts: hosts(t, url), AllowedNetworks: networks(t, "127.0.0.0/8")})
	sessions := int32(0)

	for _, tt := range []struct {
		name   string
		change func(s *tools.Server)
		same   bool
	}{
		{"first", func(*tools.Server) {}, false},
		{"same", func(*tools.Server) {}, true},
		{"label", func(s *tools.Server) { s.Label = "other" }, true},
		{"tenant", func(s *tools.Server) { s.Tenant = "a" }, false},
		{"session", func(s *tools.Server) { s.Session = "a" }, false},
		{"expected tools", func(s *tools.Server) { s.Expects = []string{"echo"} }, false},
		{"header", func(s *tools.Server) { s.Header = http.Header{"Authorization": {"a"}} }, false},
		{"header value", func(s *tools.Server) { s.Header = http.Header{"Authorization": {"b"}} }, false},
		{"url", func(s *tools.Server) { s.URL += "/x" }, false},
		{"trust", func(s *tools.Server) { s.Trusted = false }, false},
		{"the first again", func(*tools.Server) {}, true},
	} {
		s := trusted(url)
		tt.change(s)
		wantText(t, do(t, c, s, "echo", "{}"), "{}")
		if !tt.same {
			sessions++
		}
		if got := f.initialized.Load(); got != sessions {
			t.Errorf("%s: %d sessions, want %d", tt.name, got, sessions)
		}
	}
}

// An idle session is closed, at the server as well.
func TestIdleSession(t *testing.T) {
	f := newFixture()
	deleted := make(chan struct{}, 10)
	h := f.streamable()
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted <- struct{}{}
		}
		h.ServeHTTP(w, r)
	}))

	open := make(chan int, 10)
	c := newClient(t, tools.Options{IdleTimeout: 20 * time.Millisecond, Metrics: tools.Metrics{Sessions: func(n int) { open <- n }}})
	wantText(t, do(t, c, trusted(url), "echo", "{}"), "{}")
	receive(t, deleted, "the end of the session")
	if a, b := receive(t, open, "the first count"), receive(t, open, "the second count"); a != 1 || b != 0 {
		t.Errorf("sessions: %d, then %d", a, b)
	}

	wantText(t, do(t, c, trusted(url), "echo", "{}"), "{}")
	if got := f.initialized.Load(); got != 2 {
		t.Errorf("%d sessions, want 2", got)
	}
}

func TestMaxSessions(t *testing.T) {
	f := newFixture()
	url := serve(t, f.streamable())
	c := newClient(t, tools.Options{MaxSessions: 2})
	server := func(session string) *tools.Server { s := trusted(url); s.Session = session; return s }
	opened := func(session string, want int32) {
		t.Helper()
		wantText(t, do(t, c, server(session), "echo", "{}"), "{}")
		if got := f.initialized.Load(); got != want {
			t.Fatalf("%s: %d sessions opened, want %d", session, got, want)
		}
	}

	opened("a", 1)
	opened("b", 2)
	opened("a", 2)
	opened("c", 3) // evicts b, the least recently used
	opened("a", 3)
	opened("b", 4)

	var group sync.WaitGroup
	for _, session := range []string{"a", "b"} {
		group.Go(func() { wantText(t, do(t, c, server(session), "block", "{}"), "done") })
		receive(t, f.started, "the start of the call")
	}

	if r := do(t, c, server("d"), "echo", "{}"); !strings.Contains(r.Error, "Too many sessions") {
		t.Errorf("error %q, text %q", r.Error, r.Text)
	}

	close(f.release)
	group.Wait()
	if r := do(t, c, server("d"), "echo", "{}"); r.Error != "" {
		t.Error(r.Error)
	}
}

// A tenant that fills the pool evicts its own sessions, not those of other tenants.
// Sessions in use are never evicted.
func TestMaxSessionsOfTenants(t *testing.T) {
	f := newFixture()
	url := serve(t, f.streamable())
	c := newClient(t, tools.Options{MaxSessions: 4})
	server := func(tenant, session string) *tools.Server {
		s := trusted(url)
		s.Tenant, s.Session = tenant, session
		return s
	}

	use := func(tenant, session string, opened int32) {
		t.Helper()
		wantText(t, do(t, c, server(tenant, session), "echo", "{}"), "{}")
		if got := f.initialized.Load(); got != opened {
			t.Fatalf("%s %s: %d sessions opened, want %d", tenant, session, got, opened)
		}
	}

	use("small", "a", 1)
	for i, session := range []string{"a", "b", "c", "d", "e", "f"} {
		use("large", session, int32(i)+2)
	}

	use("small", "a", 7)
	use("large", "f", 7)

	var group sync.WaitGroup

	for i, session := range []string{"f", "g"} { // half of all places
		group.Go(func() { wantText(t, do(t, c, server("large", session), "block", "{}"), "done") })
		receive(t, f.started, "the start of the call")
		use("small", "a", 7+int32(i))
	}

	if r := do(t, c, server("large", "h"), "echo", "{}"); !strings.Contains(r.Error, "Too many of your sessions") {
		t.Errorf("error %q, text %q", r.Error, r.Text)
	}

	group.Go(func() { wantText(t, do(t, c, server("small", "a"), "block", "{}"), "done") })
	receive(t, f.started, "the start of the call")
	use("third", "a", 9) // evicts an idle session of large
	use("third", "b", 10)
	close(f.release)
	group.Wait()
	if n := f.calls.Load(); n != 16 {
		t.Errorf("%d calls", n)
	}
}

// Calls of servers that requests have brought cannot take the places of configured
// servers, nor of other tenants.
func TestSessionsOfRequestsServers(t *testing.T) {
	for _, tenants := range [][2]string{{"", ""}, {"a", "a"}, {"a", "b"}} {
		t.Run(strings.Join(tenants[:], " and "), func(t *testing.T) {
			f := newFixture()
			url := serve(t, f.streamable())
			c := newClient(t, tools.Options{MaxSessions: 3, AllowedHosts: hosts(t, url), AllowedNetworks: networks(t, "127.0.0.0/8")})
			own := func(n int) *tools.Server {
				return &tools.Server{Label: "own", URL: url, Tenant: tenants[0], Header: http.Header{"X-Session": {strconv.Itoa(n)}}}
			}

			var group sync.WaitGroup
			for i := range 2 {
				group.Go(func() { wantText(t, do(t, c, own(i), "block", "{}"), "done") })
				receive(t, f.started, "the start of the call")
			}

			if r := do(t, c, own(3), "echo", "{}"); !strings.Contains(r.Error, "Too many of your sessions") {
				t.Errorf("error %q, text %q", r.Error, r.Text)
			}

			configured := trusted(url)
			configured.Tenant = tenants[1]
			wantText(t, do(t, c, configured, "echo", "{}"), "{}")
			close(f.release)
			group.Wait()
			wantText(t, do(t, c, own(3), "echo", "{}"), "{}")
		})
	}
}

// A restarted server does not know the session. The job runs in a new session, and
// the tool runs once.
func TestRestartedServer(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			first, second := newFixture(), newFixture()
			h := newSwitchHandler(first.streamable())
			c, s := newClient(t, tools.Options{}), trusted(serve(t, h))
			wantText(t, do(t, c, s, "echo", "{}"), "{}")
			fresh := second.streamable()
			h.set(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				recorder := httptest.NewRecorder()
				fresh.ServeHTTP(recorder, r)
				if recorder.Code == http.StatusNotFound && status == http.StatusBadRequest {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(status)
					fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
					return
				}

				for name, values := range recorder.Header() {
					w.Header()[name] = values
				}

				w.WriteHeader(recorder.Code)
				_, _ = recorder.Body.WriteTo(w)
			}))

			var group sync.WaitGroup
			for range 8 {
				group.Go(func() { wantText(t, do(t, c, s, "echo", "{}"), "{}") })
			}

			group.Wait()
			if a, b, n := first.calls.Load(), second.calls.Load(), second.initialized.Load(); a != 1 || b != 8 || n != 1 {
				t.Errorf("calls: %d before, %d after in %d sessions; want 1, 8, 1", a, b, n)
			}
		})
	}
}

// An HTTP error with a JSON-RPC answer to the call is the result: the tool has run.
// An HTTP error without one means that the session has ended.
func TestErrorStatuses(t *testing.T) {
	answer := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32602,"message":"order 17 was placed"}}`
	}

	for _, tt := range []struct {
		name   string
		status int
		// ID is replaced by the id of the request.
		body string
		// "": the call is repeated in a new session.
		message string
		// Sessions after one more call.
		opened int
	}{
		{"400 answers", 400, answer("ID"), "HTTP 400. Its message: order 17 was placed", 1},
		{"404 answers", 404, answer("ID"), "Its message: order 17 was placed", 2},
		{"500 answers", 500, answer("ID"), "HTTP 500. Its message: order 17 was placed", 1},
		{"400 answers at length", 400, answer("ID") + strings.Repeat(" ", 1<<20), "order 17 was placed", 1},
		{"400 ends early", 400, "CUT" + answer("ID"), "disconnected before it answered, or sent something that is not MCP. The call may have been executed.", 2},
		{"400 of no request", 400, answer("null"), "", 2},
		{"400 of another request", 400, answer(`"server-error"`), "", 2},
		{"400 empty", 400, "", "", 2},
		{"400 text", 400, "no valid session", "", 2},
		{"404 of no request", 404, answer("null"), "", 2},
		{"404 text", 404, "session not found", "", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var opened, calls int
			hello := scripted(map[string]string{"tools/call": `{"content":[]}`})
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var m struct {
					ID     json.RawMessage `json:"id"`
					Method string          `json:"method"`
				}

				_ = json.Unmarshal(body, &m)
				w.Header().Set("Mcp-Session-Id", "s")

				switch m.Method {
				case "initialize":
					opened++
				case "tools/call":
					if calls++; calls == 1 {
						body, cut := strings.CutPrefix(strings.Replace(tt.body, "ID", string(m.ID), 1), "CUT")
						w.Header().Set("Content-Type", "application/json")
						if cut {
							w.Header().Set("Content-Length", "1000")
						}
						w.WriteHeader(tt.status)
						fmt.Fprint(w, body)
						return
					}
				}

				r.Body = io.NopCloser(bytes.NewReader(body))
				hello(w, r)
			}))

			c, s := newClient(t, tools.Options{}), trusted(url)
			r := do(t, c, s, "pay", "{}")
			if tt.message == "" {
				wantText(t, r, "")
			} else if !strings.Contains(r.Error, tt.message) {
				t.Errorf("error %q (%v)", r.Error, r.Cause)
			}

			wantText(t, do(t, c, s, "pay", "{}"), "")
			want := 2
			if tt.message == "" {
				want = 3
			}

			if calls != want || opened != tt.opened {
				t.Errorf("%d calls in %d sessions, want %d in %d", calls, opened, want, tt.opened)
			}
		})
	}
}

// Only the error of a call says that the call may have been executed.
func TestInvalidAnswer(t *testing.T) {
	for _, method := range []string{"initialize", "tools/list"} {
		hello := scripted(nil)
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(`"`+method+`"`)) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, "{{{")
				return
			}
			hello(w, r)
		}))
		if r := do(t, newClient(t, tools.Options{}), trusted(url), "", ""); !strings.Contains(r.Error, "not MCP") || strings.Contains(r.Error, "may have been executed") {
			t.Errorf("%s: error %q (%v)", method, r.Error, r.Cause)
		}
	}
}

// Missing tools of a server are logged once. Calls of them fail without a request.
func TestExpectedTools(t *testing.T) {
	f := newFixture()
	log, out := debugLog()
	c := newClient(t, tools.Options{Log: log})
	url := serve(t, f.streamable())

	for _, session := range []string{"a", "b"} {
		s := trusted(url)
		s.Session, s.Expects = session, []string{"echo", "open", "python"}
		wantText(t, do(t, c, s, "echo", "{}"), "{}")
		for _, tool := range []string{"open", "python"} {
			if r := do(t, c, s, tool, "{}"); r.Error != fmt.Sprintf(`The MCP server "fixture" has no tool %q.`, tool) || r.Answered || r.Content != nil {
				t.Errorf("%+v", r)
			}
		}
	}

	if n := f.calls.Load(); n != 2 {
		t.Errorf("%d calls", n)
	}

	if n := strings.Count(out.String(), "has no tool open, python"); n != 1 || strings.Count(out.String(), "level=warning") != 1 {
		t.Errorf("logged %d times:\n%s", n, out)
	}
}

// If the connection breaks after the tool may have run, the job fails and the tool
// is not called again.
func TestServerDiesInCall(t *testing.T) {
	for _, transport := range []string{tools.TransportHTTP, tools.TransportSSE} {
		t.Run(transport, func(t *testing.T) {
			f := newFixture()
			h := f.streamable()
			if transport == tools.TransportSSE {
				h = f.sse()
			}

			server := httptest.NewServer(h)
			defer server.Close()
			c, s := newClient(t, tools.Options{}), trusted(server.URL)
			s.Transport = transport
			result := make(chan tools.Result, 1)
			go func() { result <- do(t, c, s, "block", "{}") }()
			receive(t, f.started, "the start of the call")
			server.CloseClientConnections()
			defer close(f.release)
			if r := receive(t, result, "the result"); !strings.Contains(r.Error, "may have been executed") || r.Cause == nil {
				t.Errorf("error %q, cause %v", r.Error, r.Cause)
			}

			if got := f.calls.Load(); got != 1 {
				t.Errorf("%d calls, want 1", got)
			}

			wantText(t, do(t, c, s, "echo", "{}"), "{}")
			server.CloseClientConnections()
		})
	}
}

// If the request of a call is cancelled, the call is cancelled at the server, and
// the session goes on.
func TestCancel(t *testing.T) {
	for _, stdio := range []bool{false, true} {
		t.Run(fmt.Sprintf("stdio %v", stdio), func(t *testing.T) {
			f := newFixture()
			c, s := newClient(t, tools.Options{}), trusted(serve(t, f.streamable()))
			if stdio {
				s = process("server", nil)
			}

			if r := do(t, c, s, "", ""); r.Error != "" {
				t.Fatal(r.Error)
			}

			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			result := make(chan tools.Result, 1)
			go func() { result <- c.Do(ctx, tools.Job{Server: s, Tool: "wait"}) }()
			if !stdio {
				receive(t, f.started, "the start of the call")
			}

			cancel()
			if r := receive(t, result, "the result"); !strings.Contains(r.Error, "was cancelled") {
				t.Errorf("error %q", r.Error)
			}

			if !stdio {
				checkCancelled(t, f)
			}

			wantText(t, do(t, c, s, "echo", "{}"), "{}")
			if n := f.initialized.Load(); !stdio && n != 1 {
				t.Errorf("%d sessions, want 1", n)
			}
		})
	}
}

// A call that reaches its deadline is cancelled at the server, and the session goes
// on. Calls get longer deadlines until one has begun at the server before it ends.
func TestCallTimeout(t *testing.T) {
	for _, stdio := range []bool{false, true} {
		t.Run(fmt.Sprintf("stdio %v", stdio), func(t *testing.T) {
			f := newFixture()
			c, s := newClient(t, tools.Options{}), trusted(serve(t, f.streamable()))
			if stdio {
				s = process("server", nil)
			}

			if r := do(t, c, s, "", ""); r.Error != "" {
				t.Fatal(r.Error)
			}

			for timeout := time.Second; ; timeout *= 2 {
				tools.SetCallTimeout(c, timeout)
				want := fmt.Sprintf("did not answer within %s (tools.call_timeout)", timeout)
				if r := do(t, c, s, "wait", ""); !strings.Contains(r.Error, want) {
					t.Fatalf("error %q, want %q", r.Error, want)
				}

				tools.SetCallTimeout(c, patience)
				wantText(t, do(t, c, s, "echo", "{}"), "{}")
				if stdio || len(f.started) > 0 {
					break
				}
			}

			if !stdio {
				checkCancelled(t, f)
			}

			if n := f.initialized.Load(); !stdio && n != 1 {
				t.Errorf("%d sessions, want 1", n)
			}
		})
	}
}

// checkCancelled waits for the end of a call of the tool wait, and checks its cause.
func checkCancelled(t *testing.T, f *fixture) {
	t.Helper()
	if err := receive(t, f.ended, "the end of the tool's context"); !errors.Is(err, context.Canceled) {
		t.Errorf("the tool's context ended with %v", err)
	}
}

// A server that never answers delays a job only until its deadline, and does not
// delay Close.
func TestSilentServer(t *testing.T) {
	silent := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice the end of the connection
		<-r.Context().Done()
	}))
	for name, s := range map[string]*tools.Server{"http": trusted(silent), "process": process("neverReads", nil)} {
		t.Run(name, func(t *testing.T) {
			c := tools.New(tools.Options{ListTimeout: 200 * time.Millisecond, CallTimeout: 30 * time.Second})
			if r := do(t, c, s, "", ""); !strings.Contains(r.Error, "did not answer within 200ms") {
				t.Errorf("error %q", r.Error)
			}
			c.Close()
			if r := do(t, c, s, "", ""); r.Error != "The service is shutting down." {
				t.Errorf("error %q", r.Error)
			}
		})
	}
}

// Close cancels running jobs.
func TestClose(t *testing.T) {
	f := newFixture()
	c := tools.New(tools.Options{ListTimeout: patience, CallTimeout: patience})
	s := trusted(serve(t, f.streamable()))
	result := make(chan tools.Result, 1)
	go func() { result <- do(t, c, s, "wait", "{}") }()
	receive(t, f.started, "the start of the call")
	c.Close()
	if r := receive(t, result, "the result"); r.Error != "The service is shutting down." {
		t.Errorf("error %q", r.Error)
	}
}

// A listing is bounded in tools, in bytes and in pages.
func TestListingBounds(t *testing.T) {
	page := func(n int, description, cursor string) string {
		list := make([]map[string]any, n)
		for i := range list {
			list[i] = map[string]any{"name": fmt.Sprint("t", i), "description": description, "inputSchema": map[string]any{"type": "object"}}
		}
		text, _ := json.Marshal(map[string]any{"tools": list, "nextCursor": cursor})
		return string(text)
	}

	for _, tt := range []struct{ name, result, want string }{
		{"fits", page(5, "", ""), ""},
		{"tools", page(6, "", ""), "too many tools: at most 5 (tools.max_listed)"},
		{"bytes", page(5, strings.Repeat("x", 300<<10), ""), "1048576 bytes"},
		{"pages", page(0, "", "more"), "too many tools"},
		{"no list", `{"tools":7}`, "not valid in MCP"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t, tools.Options{MaxListed: 5})
			r := do(t, c, trusted(serve(t, scripted(map[string]string{"tools/list": tt.result}))), "", "")
			if (r.Error == "") != (tt.want == "") || !strings.Contains(r.Error, tt.want) {
				t.Errorf("error %q (%v), want %q", r.Error, r.Cause, tt.want)
			}
			if tt.want != "" && len(r.Tools) > 0 {
				t.Error("an error comes with tools")
			}
		})
	}
}

// scripted returns a streamable HTTP server without sessions that answers each
// method with a fixed result.
func scripted(results map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		result := results[m.Method]
		if m.Method == "initialize" {
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		}
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
}

// Every request after initialize carries the negotiated protocol version.
func TestVersionHeader(t *testing.T) {
	versions := make(chan string, 10)
	h := scripted(map[string]string{"tools/call": `{"content":[]}`})
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		versions <- r.Header.Get("Mcp-Protocol-Version")
		h(w, r)
	}))
	wantText(t, do(t, newClient(t, tools.Options{}), trusted(url), "x", "{}"), "")
	for _, want := range []string{"", "2025-06-18", "2025-06-18"} {
		if got := receive(t, versions, "a request"); got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
}

// A server that supports only protocol versions without initialize is supported.
func TestServerWithoutInitialize(t *testing.T) {
	f := newFixture()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return f.server }, &mcp.StreamableHTTPOptions{Stateless: true})
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") == "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"unsupported protocol version","data":{"supported":["2026-07-28"]}}}`)
			return
		}
		h.ServeHTTP(w, r)
	}))

	c := newClient(t, tools.Options{})
	wantText(t, do(t, c, trusted(url), "echo", `{"a":1}`), `{"a":1}`)

	for range 2 {
		if r := do(t, c, trusted(url), "", ""); len(r.Tools) != 8 {
			t.Errorf("%d tools, error %q", len(r.Tools), r.Error)
		}
	}

	if n := f.initialized.Load(); n != 0 {
		t.Errorf("%d initialize requests", n)
	}
}

func TestResults(t *testing.T) {
	for _, tt := range []struct{ name, result, text, err string }{
		{"texts", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "a\nb", ""},
		{"nothing", `{"content":[]}`, "", ""},
		{"image", `{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}`, "[image image/png, 3 bytes]", ""},
		{"audio", `{"content":[{"type":"audio","mimeType":"audio/wav","data":"AAAA"}]}`, "[audio audio/wav, 3 bytes]", ""},
		{"resource text", `{"content":[{"type":"resource","resource":{"uri":"file:///a","text":"inside"}}]}`, "inside", ""},
		{"resource blob", `{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":"x/y","blob":"AAAA"}}]}`, "[resource file:///a x/y, 3 bytes]", ""},
		{"link", `{"content":[{"type":"resource_link","uri":"https://a/b","name":"B","description":"a page"}]}`, "[resource B https://a/b: a page]", ""},
		{"structured alone", `{"content":[],"structuredContent":{"z":1,"a":2}}`, `{"z":1,"a":2}`, ""},
		{"structured, in another spelling", `{"content":[],"structuredContent":{"z": "\u0418\/", "a": 2.50}}`, `{"z":"И/","a":2.50}`, ""},
		{"structured with text", `{"content":[{"type":"text","text":"t"}],"structuredContent":{"z":1}}`, "t", ""},
		{"error", `{"isError":true,"content":[{"type":"text","text":"bad input"}]}`, "", "bad input"},
		{"error without text", `{"isError":true,"content":[]}`, "", "without an error message"},
		{"unknown content", `{"content":[{"type":"text","text":"a"},{"type":"video","data":"AAAA"},{"type":"text","text":"b"}]}`, "a\n[content of an unknown type]\nb", ""},
		{"bad base64", `{"content":[{"type":"image","mimeType":"image/png","data":"!!!"},{"type":"text","text":"b"}]}`, "[content of an unknown type]\nb", ""},
		{"null part", `{"content":[null,{"type":"text","text":"b"}]}`, "[content of an unknown type]\nb", ""},
		{"no text", `{"content":[{"type":"text","text":7},{"type":"text","text":"b"}]}`, "[content of an unknown type]\nb", ""},
		{"asks for input", `{"resultType":"input_required","inputRequests":{}}`, "", "asks for user input"},
		{"no object", `[]`, "", "not valid in MCP"},
		{"null", `null`, "", "not valid in MCP"},
		{"no list", `{"content":7}`, "", "not valid in MCP"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := do(t, newClient(t, tools.Options{}), trusted(serve(t, scripted(map[string]string{"tools/call": tt.result}))), "x", "{}")
			if r.Text != tt.text || (r.Error == "") != (tt.err == "") || !strings.Contains(r.Error, tt.err) {
				t.Errorf("text %q, error %q (%v); want %q, %q", r.Text, r.Error, r.Cause, tt.text, tt.err)
			}
		})
	}
}

// Content parts and the structured result are returned unchanged.
func TestParts(t *testing.T) {
	result := `{"content":[{"type":"image","mimeType":"image/png","data":"AQID"},{"type":"resource_link","uri":"https://a/b","name":"B"}],"structuredContent":{"z":1,"a":2}}`
	r := do(t, newClient(t, tools.Options{}), trusted(serve(t, scripted(map[string]string{"tools/call": result}))), "x", "{}")
	want := []tools.Part{{Type: "image", MIME: "image/png", Data: []byte{1, 2, 3}}, {Type: "resource_link", URI: "https://a/b", Name: "B"}}
	if fmt.Sprint(r.Content) != fmt.Sprint(want) || string(r.Structured) != `{"z":1,"a":2}` {
		t.Errorf("content %v, structured %s", r.Content, r.Structured)
	}
}

// Content and the structured result are limited to 4 MiB. What does not fit is
// omitted, and the last part says so.
func TestContentBound(t *testing.T) {
	const limit = 4 << 20
	text := func(n int) string { return `{"type":"text","text":"` + strings.Repeat("x", n) + `"}` }
	image := func(n int) string {
		return `{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("AAAA", n/3) + `"}`
	}

	structured := func(n int) string { return `{"a":"` + strings.Repeat("y", n) + `"}` }
	for _, tt := range []struct {
		name       string
		parts      []string
		structured string
		kinds      string
		// Prefix of the last part's text.
		dropped string
	}{
		{"all fits", []string{text(limit / 2), image(limit / 4)}, structured(10), "text image +structured", ""},
		{"one is too large, what follows is not", []string{image(limit + 3), text(5), image(3)}, `null`, "text image text", "[1 parts of the result are omitted"},
		{"the last ones do not fit", []string{text(limit / 2), text(limit / 2), image(limit)}, `null`, "text text", "[2 parts"},
		{"no room for the structured result", []string{text(limit - 1024)}, structured(2048), "text", ""},
		{"a large structured result alone", nil, structured(limit), "", ""},
		{"many without anything in them", slices.Repeat([]string{text(0)}, 100_000), `null`, strings.Repeat("text ", limit/128+1), "[67232 parts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result := `{"content":[` + strings.Join(tt.parts, ",") + `],"structuredContent":` + tt.structured + `}`
			r := do(t, newClient(t, tools.Options{MaxMessageBytes: 16 << 20}), trusted(serve(t, scripted(map[string]string{"tools/call": result}))), "x", "{}")
			var kinds []string
			size := len(r.Structured)
			for _, p := range r.Content {
				kinds = append(kinds, p.Type)
				size += len(p.Text) + len(p.Data)
			}

			if r.Structured != nil {
				kinds = append(kinds, "+structured")
			}

			if r.Error != "" || strings.Join(kinds, " ") != strings.TrimSpace(tt.kinds) || size > limit+1024 {
				t.Errorf("error %q, %d bytes in %d parts: %.100s", r.Error, size, len(kinds), kinds)
			}

			last := ""
			if len(r.Content) > 0 {
				last = r.Content[len(r.Content)-1].Text
			}

			if tt.dropped != "" && !strings.HasPrefix(last, tt.dropped) {
				t.Errorf("the last part is %.100q, want %q", last, tt.dropped)
			}
		})
	}
}

// A long result is truncated between characters, has a note about it, and keeps the
// limit.
func TestTruncatedResult(t *testing.T) {
	const limit = 1024
	for offset := range 4 {
		long := strings.Repeat("x", offset) + strings.Repeat("😀", 5000)
		for _, isError := range []bool{false, true} {
			text, _ := json.Marshal(map[string]any{"isError": isError, "content": []any{map[string]any{"type": "text", "text": long}}})
			r := do(t, newClient(t, tools.Options{MaxResultBytes: limit}), trusted(serve(t, scripted(map[string]string{"tools/call": string(text)}))), "x", "{}")
			got := r.Text + r.Error
			kept, note, _ := strings.Cut(got, "\n")
			if len(got) > limit || len(got) < limit-4 || !strings.HasPrefix(long, kept) || !utf8.ValidString(kept) || !strings.Contains(note, "truncated") || (r.Error != "") != isError {
				t.Errorf("%d bytes, end %q", len(got), got[len(got)-100:])
			}
		}
	}
}

// calling is a server that answers tool calls with another handler.
func calling(call http.HandlerFunc) http.HandlerFunc {
	hello := scripted(nil)
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case bytes.Contains(body, []byte(`"method":"tools/call"`)):
			call(w, r)
		case bytes.Contains(body, []byte(`"method"`)):
			r.Body = io.NopCloser(bytes.NewReader(body))
			hello(w, r)
		default: // an answer to a request of the server: it is not accepted
			<-r.Context().Done()
		}
	}
}

// An answer that is too large is an error in every encoding, and is not read to its
// end.
func TestTooLarge(t *testing.T) {
	pad := strings.Repeat("x", 64<<10)
	for _, tt := range []struct{ name, kind, start, more string }{
		{"json", "application/json", `{"jsonrpc":"2.0","id":2,"result":"`, pad},
		{"event", "text/event-stream", "data: ", pad},
		{"events", "text/event-stream", "", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"" + pad + "\"}}\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := serve(t, calling(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", tt.kind)
				fmt.Fprint(w, tt.start)
				for r.Context().Err() == nil {
					if _, err := fmt.Fprint(w, tt.more); err != nil {
						return
					}
				}
			}))

			r := do(t, newClient(t, tools.Options{}), trusted(url), "x", "{}")
			if !strings.Contains(r.Error, "more than 8388608 bytes (tools.max_message_bytes). The call may have been executed.") {
				t.Errorf("error %q (%v)", r.Error, r.Cause)
			}
		})
	}
}

// The number of concurrent requests of a server is limited.
func TestFlood(t *testing.T) {
	url := serve(t, calling(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; r.Context().Err() == nil; i++ {
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"s%d\",\"method\":\"roots/list\"}\n\n", i)
			w.(http.Flusher).Flush()
		}
	}))
	r := do(t, newClient(t, tools.Options{}), trusted(url), "x", "{}")
	if !strings.Contains(r.Error, "disconnected") || !strings.Contains(fmt.Sprint(r.Cause), "too many requests") {
		t.Errorf("error %q (%v)", r.Error, r.Cause)
	}
}

func TestConfiguredServer(t *testing.T) {
	f := newFixture()
	o := tools.Options{Servers: []tools.Server{{Label: "a", URL: serve(t, f.streamable()), Header: http.Header{"X": {"1"}}, Trusted: true}}}
	c := newClient(t, o)
	s, ok := c.Server("a")
	if !ok {
		t.Fatal("no server")
	}
	s.Header.Set("X", "2")
	if again, _ := c.Server("a"); again.Header.Get("X") != "1" {
		t.Error("Server returned the configured server itself")
	}
	if _, ok := c.Server("b"); ok {
		t.Error("a server that is not configured was found")
	}
	wantText(t, do(t, c, s, "echo", "{}"), "{}")
}

func TestMetrics(t *testing.T) {
	f := newFixture()
	var observed []string
	c := newClient(t, tools.Options{Metrics: tools.Metrics{Done: func(j tools.Job, took time.Duration, r tools.Result) {
		observed = append(observed, fmt.Sprint(j.Server.Label, " ", j.Tool, " ", took, " ", r.Answered, " ", r.Error != ""))
	}}, Now: tickingClock()})
	s := trusted(serve(t, f.streamable()))
	do(t, c, s, "echo", "{}")
	do(t, c, s, "fail", "{}")
	do(t, c, s, "made up", "{}")
	if got, want := fmt.Sprint(observed), "[fixture echo 2s true false fixture fail 2s true true fixture made up 2s false true]"; got != want {
		t.Errorf("observed %s, want %s", got, want)
	}
}

// tickingClock is a clock that advances by one second whenever it is read.
func tickingClock() func() time.Time {
	var mu sync.Mutex
	now := time.Unix(0, 0)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

// A client of another configuration uses the sessions of the one before. Networks that
// are not allowed any more cannot be reached by either.
func TestWith(t *testing.T) {
	opened := 0
	var mu sync.Mutex
	metrics := tools.Metrics{Sessions: func(open int) {
		mu.Lock()
		defer mu.Unlock()
		opened = max(opened, open)
	}}

	network := netip.MustParsePrefix("10.0.0.0/8")
	c := newClient(t, tools.Options{Metrics: metrics, AllowedNetworks: []netip.Prefix{network}, Servers: []tools.Server{{Label: "a"}}})
	s := process("server", nil)
	wantText(t, do(t, c, s, "echo", `{"n":1}`), `{"n":1}`)
	next := c.With(tools.Options{Metrics: metrics, Servers: []tools.Server{{Label: "b"}}})
	wantText(t, do(t, next, s, "echo", `{"n":2}`), `{"n":2}`)
	wantText(t, do(t, c, s, "echo", `{"n":3}`), `{"n":3}`)
	mu.Lock()
	defer mu.Unlock()
	if opened != 1 {
		t.Errorf("%d sessions were open", opened)
	}

	if _, known := next.Server("a"); known {
		t.Error("the next client has a server of the one before")
	}

	for name, client := range map[string]*tools.Client{"client": c, "next": next} {
		if tools.Control(client, "tcp", "10.1.2.3:80") == nil {
			t.Errorf("%s: a network that is not allowed any more is reached", name)
		}
	}
}
