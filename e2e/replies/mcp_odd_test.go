package replies

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// serveToolList is an MCP server with tools that no SDK would list. A call returns
// the tool's name.
func serveToolList(t *testing.T, tools ...string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}

		if err := json.NewDecoder(q.Body).Decode(&m); err != nil || m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}

		result := `{}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}`
		case "tools/list":
			result = `{"tools":[` + strings.Join(tools, ",") + `]}`
		case "tools/call":
			name, _ := json.Marshal("called " + m.Params.Name)
			result = fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, name)
		}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))

	t.Cleanup(s.Close)
	return s.URL
}

func listedTool(name, schema string) string {
	return fmt.Sprintf(`{"name":%q,"description":"Does.","inputSchema":%s}`, name, schema)
}

// An invalid tool affects neither the other tools nor the request. It is offered
// under another name or left out.
func TestMCPOddTools(t *testing.T) {
	const object = `{"type":"object"}`
	good := listedTool("good", object)
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 80) + `{"type":"string"}` + strings.Repeat(`}}`, 80)

	cases := []struct {
		name  string
		tools []string
		calls [][2]string // name that the model uses, name that is called
		gone  string      // log message about a tool that is left out
	}{
		{"collide", []string{listedTool("a.b", object), listedTool("a_b", object), good}, [][2]string{{"a_b", "a.b"}, {"a_b_2", "a_b"}, {"good", "good"}}, ""},
		{"not ASCII", []string{listedTool("поиск", object), listedTool("найти", object), good}, [][2]string{{"поиск", "поиск"}, {"найти", "найти"}, {"good", "good"}}, ""},
		{"signs", []string{listedTool("🔧", object), listedTool("🔨", object), good}, [][2]string{{"_", "🔧"}, {"__2", "🔨"}, {"good", "good"}}, ""},
		{"twice", []string{good, good}, [][2]string{{"good", "good"}}, "It is listed twice"},
		{"no name", []string{`{"inputSchema":{}}`, good}, [][2]string{{"good", "good"}}, "A tool has no name"},
		{"long name", []string{listedTool(strings.Repeat("n", 300), object), good}, [][2]string{{"good", "good"}}, "longer than 256 bytes"},
		{"deep schema", []string{listedTool("deep", deep), good}, [][2]string{{"good", "good"}}, "more than 64 levels deep"},
		{"huge schema", []string{listedTool("huge", `{"type":"object","description":"`+strings.Repeat("x", 300<<10)+`"}`), good}, [][2]string{{"good", "good"}}, "larger than 262144 bytes"},
	}

	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		for i := range cases {
			c.Tools.Servers = append(c.Tools.Servers, config.ToolServer{Label: fmt.Sprint("s", i), URL: serveToolList(t, cases[i].tools...)})
		}
	}})

	for i, odd := range cases {
		t.Run(odd.name, func(t *testing.T) {
			stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
				label := fmt.Sprint("s", i)
				var script strings.Builder
				for _, call := range odd.calls {
					fmt.Fprintf(&script, "CALL %s.%s {}\n", label, call[0])
				}

				body := map[string]any{"input": "NOTHINK\n" + script.String(), "tools": stack.JSONArray(fmt.Sprintf(`{"type":"mcp","server_label":%q}`, label))}
				for range 2 { // the second request has the tools from the chain
					r := c.Create(t, "completed", body)
					calls := stack.ItemsOfType(r, "mcp_call")
					if len(calls) != len(odd.calls) {
						t.Fatalf("the output is %s", r.Get("output"))
					}
					for i, call := range odd.calls {
						if calls[i].Get("name").Str != call[1] || calls[i].Get("output").Str != "called "+call[1] {
							t.Errorf("%s is %s", call[0], calls[i])
						}
					}

					prompts := c.Prompts(t)
					for _, call := range odd.calls {
						stack.WantPrompt(t, prompts[len(prompts)-1], "to="+label+"."+call[0]+" <|constrain|>", "called "+call[1]+"<|end|>")
					}
					body["previous_response_id"] = r.Get("id").Str
				}
			})

			if odd.gone == "" {
				return
			}
			for deadline := time.Now().Add(stack.Patience); !strings.Contains(d.Logs.String(), odd.gone); time.Sleep(10 * time.Millisecond) { // the log line may follow the reply
				if time.Now().After(deadline) {
					t.Fatalf("the log lacks: %s", odd.gone)
				}
			}
		})
	}
}

// If a server is down, a call that must be made is an error that names the server.
// If the model makes a call anyway, it gets an error that only it sees.
func TestMCPServerIsDown(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) {
		c.Tools.Servers = append(c.Tools.Servers, config.ToolServer{Label: "gone", URL: "http://127.0.0.1:1/mcp"})
	}})
	gone := stack.JSONArray(`{"type":"mcp","server_label":"gone"}`)

	stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
		for _, choice := range []string{`"required"`, `{"type":"mcp","server_label":"gone"}`} {
			code, r := c.Post(t, map[string]any{"input": "NOTHINK\nSAY hi", "tools": gone, "tool_choice": json.RawMessage(choice)})
			if code != http.StatusFailedDependency || r.Get("error.code").Str != "tool_unavailable" || !strings.Contains(r.Get("error.message").Str, `"gone" could not be listed`) {
				t.Errorf("tool_choice %s: status %d: %s", choice, code, r)
			}
		}

		for name, body := range map[string]map[string]any{
			"of the server":          {"tools": gone},
			"without tools":          {},
			"though none is allowed": {"tools": gone, "tool_choice": "none"},
		} {
			body["input"] = "NOTHINK\nCALL gone.search {\"q\":\"x\"}\nSAY sorry"
			r := c.Create(t, "completed", body)
			prompts := c.Prompts(t)
			if len(stack.ItemsOfType(r, "message")) != 1 || stack.LastText(r) != "sorry" || len(prompts) != 2 {
				t.Fatalf("%s: %d model calls: %s", name, len(prompts), r.Get("output"))
			}
			stack.WantPrompt(t, prompts[1], "gone_search", `There is no tool "gone_search"`)
		}
	})
}
