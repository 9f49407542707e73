package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// serveTools serves tools over streamable HTTP. newServer makes the server of each
// session.
func serveTools(t testing.TB, newServer func() *mcp.Server) string {
	t.Helper()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newServer() }, nil)
	s := httptest.NewServer(handler)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// newBrowser returns an MCP server that simulates a browser with the pages of a
// shop. Each page that it shows has a cursor, which is counted per session.
func newBrowser() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "browser", Version: "1"}, nil)
	var mu sync.Mutex
	cursor := -1
	show := func(title, url, text string) (*mcp.CallToolResult, error) {
		mu.Lock()
		defer mu.Unlock()
		cursor++
		return toolText(fmt.Sprintf("[%d] %s (%s)\n**viewing lines [0 - 1] of 1**\n\nL0: %s", cursor, title, url, text)), nil
	}
	addTool(s, "search", `{}`, func(_ context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		query := gjson.GetBytes(q.Params.Arguments, "query").Str
		if query == "" {
			r := toolText("There is no query.")
			r.IsError = true
			return r, nil
		}
		return show(query, "https://shop.example/find?"+query, "【0†The shop】")
	})
	addTool(s, "open", `{}`, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return show("The shop", "https://shop.example/", "Cats are 3 €.")
	})
	addTool(s, "find", `{}`, func(_ context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return show("The shop", "https://shop.example/", "match "+gjson.GetBytes(q.Params.Arguments, "pattern").Str)
	})
	return s
}

// newPython returns an MCP server that simulates an interpreter: "NAME = TEXT" sets
// a variable of the session, "NAME" returns it.
func newPython() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "python", Version: "1"}, nil)
	var mu sync.Mutex
	variables := map[string]string{}
	addTool(s, "python", `{}`, func(_ context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		mu.Lock()
		defer mu.Unlock()
		name, value, sets := strings.Cut(gjson.GetBytes(q.Params.Arguments, "code").Str, " = ")
		if sets {
			variables[name] = value
			return toolText(""), nil
		}
		if value, ok := variables[name]; ok {
			return toolText(value), nil
		}
		r := toolText("NameError: name '" + name + "' is not defined")
		r.IsError = true
		return r, nil
	})
	return s
}

// serveBuiltins configures the servers of the browser and the interpreter.
func serveBuiltins(t testing.TB) func(*config.Config) {
	browser, python := serveTools(t, newBrowser), serveTools(t, newPython)
	return func(c *config.Config) {
		c.Tools.Servers = append(c.Tools.Servers, config.ToolServer{Label: "web", URL: browser}, config.ToolServer{Label: "interpreter", URL: python})
		c.Tools.WebSearch, c.Tools.CodeInterpreter = "web", "interpreter"
	}
}

const (
	webSearch = `{"type":"web_search"}`
	runCode   = `{"type":"code_interpreter","container":{"type":"auto"}}`
)

func TestBuiltinTools(t *testing.T) {
	d := start(t, options{config: serveBuiltins(t)})
	for _, model := range harmonyModels {
		t.Run(model, func(t *testing.T) {
			inBothWays(t, d, func(t *testing.T, c *client) {
				ask := func(t *testing.T, text, tool string, more ...any) gjson.Result {
					t.Helper()
					body := map[string]any{"model": model, "input": text, "tools": list(tool)}
					for i := 0; i < len(more); i += 2 {
						body[more[i].(string)] = more[i+1]
					}
					return c.create(t, "completed", body)
				}
				t.Run("web search", func(t *testing.T) {
					r := ask(t, "NOTHINK\nCALL browser.search {\"query\":\"cats\"}\nCALL browser.open {\"id\":0}\nCALL browser.find {\"pattern\":\"Cats\"}\nSAY Ü: 3 € 【1†L0】.", webSearch)
					wantKinds(t, r, "web_search_call web_search_call web_search_call message")
					for path, want := range map[string]string{
						"output.0.action.type": "search", "output.0.action.query": "cats",
						"output.1.action.type": "open_page", "output.1.action.url": "https://shop.example/",
						"output.2.action.type": "find_in_page", "output.2.action.pattern": "Cats", "output.2.action.url": "https://shop.example/",
						"output.3.content.0.annotations.#":     "1",
						"output.3.content.0.annotations.0.url": "https://shop.example/", "output.3.content.0.annotations.0.title": "The shop",
						"output.3.content.0.annotations.0.start_index": "7", "output.3.content.0.annotations.0.end_index": "13",
					} {
						if got := r.Get(path).String(); got != want {
							t.Errorf("%s is %q, want %q", path, got, want)
						}
					}
					prompts := c.prompts(t)
					wantPrompt(t, prompts[0], "## browser", "namespace browser {", "<|start|>user<|message|>")
					wantPrompt(t, prompts[3], "<|start|>assistant to=browser.search<|channel|>analysis code<|message|>{\"query\":\"cats\"}<|call|><|start|>browser.search to=assistant<|channel|>analysis<|message|>[0] cats",
						"<|start|>browser.open to=assistant<|channel|>analysis<|message|>[1] The shop", "<|start|>browser.find to=assistant", "<|end|><|start|>assistant")
					if c.stream && !strings.Contains(c.sse, "event: response.output_text.annotation.added\n") {
						t.Errorf("no event has the citation:\n%s", c.sse)
					}
				})
				t.Run("a search that fails", func(t *testing.T) {
					r := ask(t, "NOTHINK\nCALL browser.search {}\nSAY Sorry.", webSearch)
					wantKinds(t, r, "web_search_call:failed message")
					wantPrompt(t, c.prompts(t)[1], "There is no query.<|end|>")
				})
				t.Run("code", func(t *testing.T) {
					outputs := []any{"include", list(`"code_interpreter_call.outputs"`)}
					first := ask(t, "NOTHINK\nCALL python x = 42\nSAY Set.", runCode, outputs...)
					wantKinds(t, first, "code_interpreter_call message")
					if code := first.Get("output.0.code").Str; code != "x = 42" {
						t.Errorf("the code is %q", code)
					}
					next := ask(t, "NOTHINK\nCALL python x\nSAY Shown.", runCode, outputs[0], outputs[1], "previous_response_id", first.Get("id").Str)
					if call := next.Get("output.0"); call.Get("outputs.0.logs").Str != "42" || call.Get("container_id").Str != first.Get("output.0.container_id").Str {
						t.Errorf("the second code did not run in the session of the first: %s", call)
					}
					other := ask(t, "NOTHINK\nCALL python x\nSAY Shown.", runCode, outputs...)
					wantKinds(t, other, "code_interpreter_call message")
					wantPrompt(t, c.prompts(t)[1], "<|start|>assistant to=python<|channel|>analysis code<|message|>x<|call|><|start|>python to=assistant<|channel|>analysis<|message|>NameError")
				})
				t.Run("not configured", func(t *testing.T) {
					r := ask(t, "NOTHINK\nSAY Fine.", `{"type":"image_generation"}`)
					wantKinds(t, r, "message")
					if code, _ := c.post(t, map[string]any{"model": model, "input": "hi", "tools": list(`{"type":"image_generation"}`), "tool_choice": map[string]any{"type": "image_generation"}}); code != http.StatusBadRequest {
						t.Errorf("tool_choice of a tool that is not configured has status %d", code)
					}
				})
			})
		})
	}
}

// openai-python parses the items and events of built-in tools.
func TestBuiltinToolsPython(t *testing.T) {
	if _, err := os.Stat(python); err != nil {
		t.Fatal("there are no Python clients: run make venv")
	}
	d := start(t, options{config: serveBuiltins(t)})
	cmd := exec.CommandContext(t.Context(), python, "python/builtin_tools.py")
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+d.checkedURL(t)+"/v1", "OPENAI_API_KEY=none", "MODEL="+sglangModel)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
