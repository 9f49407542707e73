package replies

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// A request can send only the headers that the operator allows to a configured
// server, and cannot start processes.
func TestMCPRequestHeaders(t *testing.T) {
	server, registry := stack.NewToolServer(t), prometheus.NewRegistry()
	d := stack.Start(t, stack.Options{Metrics: registry, Config: func(c *config.Config) {
		server.Serve(c)
		c.Tools.Servers = append(c.Tools.Servers, stack.Process(t, "local"), config.ToolServer{Label: "open", URL: server.URL, RequestHeaders: []string{"x-user"}})
	}})

	stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
		server.Reset()
		r := c.Create(t, "completed", map[string]any{
			"input": "NOTHINK\nCALL docs.search {\"q\":\"a\"}",
			"tools": stack.JSONArray(`{"type":"mcp","server_label":"docs","authorization":"bearer-secret","headers":{}}`),
		})
		wantKinds(t, r, "mcp_list_tools mcp_call message")
		server.CheckHeader(t, "Authorization", "Bearer bearer-secret")

		server.Reset()
		r = c.Create(t, "completed", map[string]any{
			"input": "NOTHINK\nCALL open.search {\"q\":\"a\"}",
			"tools": stack.JSONArray(`{"type":"mcp","server_label":"open","headers":{"X-User":"somebody"}}`),
		})
		wantKinds(t, r, "mcp_list_tools mcp_call message")
		server.CheckHeader(t, "X-User", "somebody")

		sessions := stack.Gather(t, registry)["harmony_mcp_sessions{}"]
		for i, tt := range []struct{ tool, param, says string }{
			{`{"type":"mcp","server_label":"local","headers":{"X-N":"1"}}`, "tools[0].headers", "is a process"},
			{`{"type":"mcp","server_label":"local","authorization":"1"}`, "tools[0].authorization", "is a process"},
			{`{"type":"mcp","server_label":"docs","headers":{"X-Forwarded-User":"root"}}`, "tools[0].headers", `"X-Forwarded-User"`},
			{`{"type":"mcp","server_label":"docs","authorization":"1","headers":{"Cookie":"a=b"}}`, "tools[0].headers", "request_headers"},
			{`{"type":"mcp","server_label":"open","authorization":"1"}`, "tools[0].authorization", `"Authorization"`},
		} {
			code, e := c.Post(t, map[string]any{"input": "NOTHINK\nSAY hi", "tools": stack.JSONArray(tt.tool)})
			if code != http.StatusBadRequest || e.Get("error.param").Str != tt.param || !strings.Contains(e.Get("error.message").Str, tt.says) {
				t.Errorf("%d: status %d, %s", i, code, e)
			}
		}

		if n := stack.Gather(t, registry)["harmony_mcp_sessions{}"]; n != sessions {
			t.Errorf("%v sessions, want %v", n, sessions)
		}
	})
}

// Secrets that a server repeats reach neither the client, nor the model, nor the
// store.
func TestMCPSecretsAreHidden(t *testing.T) {
	server := stack.NewFixedServer(t, `[{"name":"whoami","title":"HEADER","description":"You are HEADER.","inputSchema":{"type":"object","description":"HEADER"},"annotations":{"title":"HEADER"}}]`,
		func(_ string, r *http.Request) string {
			return stack.ToolResult("you sent "+r.Header.Get("Authorization")+r.Header.Get("X-Operator")+r.Header.Get("X-Own"), false)
		})

	url := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Tools.Servers = []config.ToolServer{{Label: "docs", URL: server.URL, Headers: map[string]string{"X-Operator": "operator-secret"}}}
		c.Tools.AllowedHosts = []string{url}
		c.Tools.AllowedNetworks = []string{"127.0.0.0/8", "::1/128"}
	}})

	stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
		for _, tool := range []string{
			stack.DocsTool,
			fmt.Sprintf(`{"type":"mcp","server_label":"own","server_url":%q,"require_approval":"never","authorization":"bearer-secret","headers":{"X-Own":"header-secret"}}`, url),
		} {
			r := c.Create(t, "completed", map[string]any{"input": "NOTHINK\nCALL " + gjson.Get(tool, "server_label").Str + ".whoami {}", "tools": stack.JSONArray(tool)})
			wantKinds(t, r, "mcp_list_tools mcp_call message")
			if listed := r.Get("output.0.tools.0"); listed.Get("description").Str != "You are [hidden]." || listed.Get("input_schema.description").Str != "[hidden]" {
				t.Errorf("the tool is %s", listed)
			}

			stored := c.Do(t, http.MethodGet, "/v1/responses/"+r.Get("id").Str, "", http.NoBody)
			object, err := io.ReadAll(stored.Body)
			if err != nil || stored.StatusCode != http.StatusOK {
				t.Fatalf("status %d: %v", stored.StatusCode, err)
			}

			all := r.Raw + c.Sse + string(object) + d.Logs.String() + strings.Join(c.Prompts(t), "")
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
	server := stack.NewFixedServer(t, `[{"name":"pay",`+stack.AnyObject+`}]`, func(string, *http.Request) string {
		return `{"code":-32602,"message":"order 17 was placed, but not paid"}`
	})
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Tools.Servers = []config.ToolServer{{Label: "docs", URL: server.URL}}
	}})
	calls := 0
	for _, status := range []int{http.StatusBadRequest, http.StatusNotFound} {
		server.Status = status
		stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
			r := c.Create(t, "completed", map[string]any{"input": "NOTHINK\nCALL docs.pay {}", "tools": stack.JSONArray(stack.DocsTool)})
			wantKinds(t, r, "mcp_list_tools mcp_call:failed message")
			if e := r.Get("output.1.error.content.0.text").Str; !strings.Contains(e, "order 17 was placed, but not paid") {
				t.Errorf("error %q", e)
			}
			if calls++; server.Count("tools/call") != calls {
				t.Errorf("%d calls, want %d", server.Count("tools/call"), calls)
			}
		})
	}
}

// If a server lacks tools of a built-in tool, calls of them fail and a warning is
// logged.
func TestBuiltinServerWithoutItsTools(t *testing.T) {
	server := stack.NewFixedServer(t, `[{"name":"search",`+stack.AnyObject+`}]`, func(name string, _ *http.Request) string {
		return stack.ToolResult("no tool "+name, name != "search")
	})
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Tools.Servers = []config.ToolServer{{Label: "wrong", URL: server.URL}}
		c.Tools.WebSearch, c.Tools.CodeInterpreter = "wrong", "wrong"
	}})
	stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
		r := c.Create(t, "completed", map[string]any{"input": "NOTHINK\nCALL python x\nSAY Sorry.", "tools": stack.JSONArray(runCode)})
		wantKinds(t, r, "code_interpreter_call:failed message")
		stack.WantPrompt(t, c.Prompts(t)[1], `The MCP server "wrong" has no tool "python".`)
		r = c.Create(t, "completed", map[string]any{"input": "NOTHINK\nCALL browser.search {\"query\":\"cats\"}\nCALL browser.open {\"id\":0}\nSAY Sorry.", "tools": stack.JSONArray(webSearch)})
		wantKinds(t, r, "web_search_call web_search_call:failed message")
	})
	if n := strings.Count(d.Logs.String(), "has no tool find, open, python"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if n := server.Count("tools/call"); n != 2 {
		t.Errorf("%d calls, want one search each way", n)
	}
}
