package replies

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

const (
	webSearch = `{"type":"web_search"}`
	runCode   = `{"type":"code_interpreter","container":{"type":"auto"}}`
)

func TestBuiltinTools(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: stack.ServeBuiltins(t)})
	for _, model := range stack.HarmonyModels {
		t.Run(model, func(t *testing.T) {
			stack.InBothWays(t, d, func(t *testing.T, c *stack.ResponsesClient) {
				ask := func(t *testing.T, text, tool string, more ...any) gjson.Result {
					t.Helper()
					body := map[string]any{"model": model, "input": text, "tools": stack.JSONArray(tool)}
					for i := 0; i < len(more); i += 2 {
						body[more[i].(string)] = more[i+1]
					}
					return c.Create(t, "completed", body)
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

					prompts := c.Prompts(t)
					stack.WantPrompt(t, prompts[0], "## browser", "namespace browser {", "<|start|>user<|message|>")
					stack.WantPrompt(t, prompts[3], "<|start|>assistant<|channel|>analysis to=browser.search code<|message|>{\"query\":\"cats\"}<|call|><|start|>browser.search to=assistant<|channel|>analysis<|message|>[0] cats",
						"<|start|>browser.open to=assistant<|channel|>analysis<|message|>[1] The shop", "<|start|>browser.find to=assistant", "<|end|><|start|>assistant")
					if c.Stream && !strings.Contains(c.Sse, "event: response.output_text.annotation.added\n") {
						t.Errorf("no event has the citation:\n%s", c.Sse)
					}
				})

				t.Run("a search that fails", func(t *testing.T) {
					r := ask(t, "NOTHINK\nCALL browser.search {}\nSAY Sorry.", webSearch)
					wantKinds(t, r, "web_search_call:failed message")
					stack.WantPrompt(t, c.Prompts(t)[1], "There is no query.<|end|>")
				})

				t.Run("code", func(t *testing.T) {
					outputs := []any{"include", stack.JSONArray(`"code_interpreter_call.outputs"`)}
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
					stack.WantPrompt(t, c.Prompts(t)[1], "<|start|>assistant<|channel|>analysis to=python code<|message|>x<|call|><|start|>python to=assistant<|channel|>analysis<|message|>NameError")
				})

				t.Run("not configured", func(t *testing.T) {
					r := ask(t, "NOTHINK\nSAY Fine.", `{"type":"image_generation"}`)
					wantKinds(t, r, "message")
					if code, _ := c.Post(t, map[string]any{"model": model, "input": "hi", "tools": stack.JSONArray(`{"type":"image_generation"}`), "tool_choice": map[string]any{"type": "image_generation"}}); code != http.StatusBadRequest {
						t.Errorf("tool_choice of a tool that is not configured has status %d", code)
					}
				})
			})
		})
	}
}

// openai-python parses the items and events of built-in tools.
func TestBuiltinToolsPython(t *testing.T) {
	if _, err := os.Stat(stack.Python); err != nil {
		t.Fatal("there are no Python clients: run make venv")
	}
	d := stack.Start(t, stack.Options{Config: stack.ServeBuiltins(t)})
	cmd := exec.CommandContext(t.Context(), stack.Python, "python/builtin_tools.py")
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+d.CheckedURL(t)+"/v1", "OPENAI_API_KEY=none", "MODEL="+stack.SGLangModel)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
