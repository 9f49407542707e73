package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// fixedServer is an MCP server with fixed answers, which can deviate from the
// protocol.
type fixedServer struct {
	*httptest.Server
	tools  string                                    // result of tools/list
	call   func(name string, r *http.Request) string // returns the result of a call
	status int                                       // HTTP status of the answer to a call; from 400 on call returns an error

	mu      sync.Mutex
	methods map[string]int // number of requests by method
}

// newFixedServer serves a JSON list of tools.
func newFixedServer(t *testing.T, tools string, call func(name string, r *http.Request) string) *fixedServer {
	s := &fixedServer{tools: tools, call: call, status: http.StatusOK, methods: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// ServeHTTP implements [http.Handler].
func (s *fixedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // an unreadable body has no method
	m := gjson.ParseBytes(body)
	method, member, value, status := m.Get("method").Str, "result", "{}", http.StatusOK
	s.mu.Lock()
	s.methods[method]++
	s.mu.Unlock()
	switch method {
	case "initialize":
		value = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"plain","version":"1"}}`
	case "tools/list":
		value = strings.ReplaceAll(`{"tools":`+s.tools+`}`, "HEADER", r.Header.Get("X-Operator")+r.Header.Get("X-Own"))
	case "tools/call":
		value, status = s.call(m.Get("params.name").Str, r), s.status
		if status >= http.StatusBadRequest {
			member = "error"
		}
	default:
		status = http.StatusAccepted
	}
	w.Header().Set("Mcp-Session-Id", "one")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if m.Get("id").Exists() {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%q:%s}`, m.Get("id").Raw, member, value)
	}
}

func (s *fixedServer) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.methods[method]
}

// toolResult returns the result of a call as JSON.
func toolResult(text string, isError bool) string {
	b, _ := json.Marshal(map[string]any{"isError": isError, "content": []any{map[string]any{"type": "text", "text": text}}}) // always marshals
	return string(b)
}

const anyObject = `"inputSchema":{"type":"object"}`

// A request can send only the headers that the operator allows to a configured
// server, and cannot start processes.
func TestMCPRequestHeaders(t *testing.T) {
	server, registry := newToolServer(t), prometheus.NewRegistry()
	d := start(t, options{metrics: registry, config: func(c *config.Config) {
		server.serve(c)
		c.Tools.Servers = append(c.Tools.Servers, process(t, "local"), config.ToolServer{Label: "open", URL: server.URL, RequestHeaders: []string{"x-user"}})
	}})
	inBothWays(t, d, func(t *testing.T, c *client) {
		server.reset()
		r := c.create(t, "completed", map[string]any{
			"input": "NOTHINK\nCALL docs.search {\"q\":\"a\"}",
			"tools": list(`{"type":"mcp","server_label":"docs","authorization":"bearer-secret","headers":{}}`),
		})
		wantKinds(t, r, "mcp_list_tools mcp_call message")
		server.checkHeader(t, "Authorization", "Bearer bearer-secret")
		server.reset()
		r = c.create(t, "completed", map[string]any{
			"input": "NOTHINK\nCALL open.search {\"q\":\"a\"}",
			"tools": list(`{"type":"mcp","server_label":"open","headers":{"X-User":"somebody"}}`),
		})
		wantKinds(t, r, "mcp_list_tools mcp_call message")
		server.checkHeader(t, "X-User", "somebody")
		sessions := gather(t, registry)["harmony_mcp_sessions{}"]
		for i, tt := range []struct{ tool, param, says string }{
			{`{"type":"mcp","server_label":"local","headers":{"X-N":"1"}}`, "tools[0].headers", "is a process"},
			{`{"type":"mcp","server_label":"local","authorization":"1"}`, "tools[0].authorization", "is a process"},
			{`{"type":"mcp","server_label":"docs","headers":{"X-Forwarded-User":"root"}}`, "tools[0].headers", `"X-Forwarded-User"`},
			{`{"type":"mcp","server_label":"docs","authorization":"1","headers":{"Cookie":"a=b"}}`, "tools[0].headers", "request_headers"},
			{`{"type":"mcp","server_label":"open","authorization":"1"}`, "tools[0].authorization", `"Authorization"`},
		} {
			code, e := c.post(t, map[string]any{"input": "NOTHINK\nSAY hi", "tools": list(tt.tool)})
			if code != http.StatusBadRequest || e.Get("error.param").Str != tt.param || !strings.Contains(e.Get("error.message").Str, tt.says) {
				t.Errorf("%d: status %d, %s", i, code, e)
			}
		}
		if n := gather(t, registry)["harmony_mcp_sessions{}"]; n != sessions {
			t.Errorf("%v sessions, want %v", n, sessions)
		}
	})
}

// Secrets that a server repeats reach neither the client, nor the model, nor the
// store.
func TestMCPSecretsAreHidden(t *testing.T) {
	server := newFixedServer(t, `[{"name":"whoami","title":"HEADER","description":"You are HEADER.","inputSchema":{"type":"object","description":"HEADER"},"annotations":{"title":"HEADER"}}]`,
		func(_ string, r *http.Request) string {
			return toolResult("you sent "+r.Header.Get("Authorization")+r.Header.Get("X-Operator")+r.Header.Get("X-Own"), false)
		})
	url := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	d := start(t, options{config: func(c *config.Config) {
		c.Tools.Servers = []config.ToolServer{{Label: "docs", URL: server.URL, Headers: map[string]string{"X-Operator": "operator-secret"}}}
		c.Tools.AllowedHosts = []string{url}
		c.Tools.AllowedNetworks = []string{"127.0.0.0/8", "::1/128"}
	}})
	inBothWays(t, d, func(t *testing.T, c *client) {
		for _, tool := range []string{
			docsTool,
			fmt.Sprintf(`{"type":"mcp","server_label":"own","server_url":%q,"require_approval":"never","authorization":"bearer-secret","headers":{"X-Own":"header-secret"}}`, url),
		} {
			r := c.create(t, "completed", map[string]any{"input": "NOTHINK\nCALL " + gjson.Get(tool, "server_label").Str + ".whoami {}", "tools": list(tool)})
			wantKinds(t, r, "mcp_list_tools mcp_call message")
			if listed := r.Get("output.0.tools.0"); listed.Get("description").Str != "You are [hidden]." || listed.Get("input_schema.description").Str != "[hidden]" {
				t.Errorf("the tool is %s", listed)
			}
			stored := c.do(t, http.MethodGet, "/v1/responses/"+r.Get("id").Str, "", http.NoBody)
			object, err := io.ReadAll(stored.Body)
			if err != nil || stored.StatusCode != http.StatusOK {
				t.Fatalf("status %d: %v", stored.StatusCode, err)
			}
			all := r.Raw + c.sse + string(object) + d.log.String() + strings.Join(c.prompts(t), "")
			for _, secret := range []string{"operator-secret", "bearer-secret", "header-secret"} {
				if i := strings.Index(all, secret); i >= 0 {
					t.Errorf("%s is revealed: …%.200s…", secret, all[max(0, i-100):])
				}
			}
		}
	})
}

// If the answer to a call has an HTTP error status, the call was made: it is not
// repeated, and the model reads the answer.
func TestMCPAnswerWithHTTPError(t *testing.T) {
	server := newFixedServer(t, `[{"name":"pay",`+anyObject+`}]`, func(string, *http.Request) string {
		return `{"code":-32602,"message":"order 17 was placed, but not paid"}`
	})
	d := start(t, options{config: func(c *config.Config) {
		c.Tools.Servers = []config.ToolServer{{Label: "docs", URL: server.URL}}
	}})
	calls := 0
	for _, status := range []int{http.StatusBadRequest, http.StatusNotFound} {
		server.status = status
		inBothWays(t, d, func(t *testing.T, c *client) {
			r := c.create(t, "completed", map[string]any{"input": "NOTHINK\nCALL docs.pay {}", "tools": list(docsTool)})
			wantKinds(t, r, "mcp_list_tools mcp_call:failed message")
			if e := r.Get("output.1.error.content.0.text").Str; !strings.Contains(e, "order 17 was placed, but not paid") {
				t.Errorf("error %q", e)
			}
			if calls++; server.count("tools/call") != calls {
				t.Errorf("%d calls, want %d", server.count("tools/call"), calls)
			}
		})
	}
}

// If a server lacks tools of a built-in tool, calls of them fail and a warning is
// logged.
func TestBuiltinServerWithoutItsTools(t *testing.T) {
	server := newFixedServer(t, `[{"name":"search",`+anyObject+`}]`, func(name string, _ *http.Request) string {
		return toolResult("no tool "+name, name != "search")
	})
	d := start(t, options{config: func(c *config.Config) {
		c.Tools.Servers = []config.ToolServer{{Label: "wrong", URL: server.URL}}
		c.Tools.WebSearch, c.Tools.CodeInterpreter = "wrong", "wrong"
	}})
	inBothWays(t, d, func(t *testing.T, c *client) {
		r := c.create(t, "completed", map[string]any{"input": "NOTHINK\nCALL python x\nSAY Sorry.", "tools": list(runCode)})
		wantKinds(t, r, "code_interpreter_call:failed message")
		wantPrompt(t, c.prompts(t)[1], `The MCP server "wrong" has no tool "python".`)
		r = c.create(t, "completed", map[string]any{"input": "NOTHINK\nCALL browser.search {\"query\":\"cats\"}\nCALL browser.open {\"id\":0}\nSAY Sorry.", "tools": list(webSearch)})
		wantKinds(t, r, "web_search_call web_search_call:failed message")
	})
	if n := strings.Count(d.log.String(), "has no tool find, open, python"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if n := server.count("tools/call"); n != 2 {
		t.Errorf("%d calls, want one search each way", n)
	}
}
