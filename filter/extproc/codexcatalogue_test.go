package extproc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// testdata/codex has requests of codex-cli 0.169.0 as it sends them for a model of its
// catalogue with use_responses_lite and supports_search_tool (search, parent, child), and
// with the feature multi_agent_v2 (parent, child, plain-parent, plain-child). Texts,
// descriptions and ids are shortened.

// readCodexRequest returns a request of testdata/codex.
func readCodexRequest(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "codex", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// promptOf decodes the prompt of a request to the engine.
func promptOf(t *testing.T, request gjson.Result) (tokens []harmony.Token, text string) {
	t.Helper()
	for _, v := range request.Get("prompt").Array() {
		tokens = append(tokens, harmony.Token(v.Uint()))
	}
	decoded, err := harmony.AppendDecode(nil, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return tokens, string(decoded)
}

// wantTools checks that a prompt has every function of a list of tools, in its
// namespace.
func wantTools(t *testing.T, name, prompt string, tools gjson.Result) int {
	t.Helper()
	n := 0
	for _, tool := range tools.Array() {
		switch tool.Get("type").Str {
		case "namespace":
			if !strings.Contains(prompt, "\nnamespace "+tool.Get("name").Str+" {\n") {
				t.Errorf("%s: there is no namespace %s", name, tool.Get("name"))
			}
			n += wantTools(t, name, prompt, tool.Get("tools"))
		case "function", "custom", "tool_search":
			shown := tool.Get("name").Str
			if shown == "" {
				shown = "tool_search"
			}
			if !strings.Contains(prompt, "\ntype "+shown+" = (") {
				t.Errorf("%s: there is no tool %s", name, shown)
			}
			n++
		}
	}
	return n
}

// TestCodexCatalogueRequests shows that requests of Codex for models of its catalogue,
// and with its agents, are accepted, and that the prompt has all their tools and texts.
func TestCodexCatalogueRequests(t *testing.T) {
	t.Parallel()
	for name, tools := range map[string]int{"search": 13, "parent": 18, "child": 18, "plain-parent": 17, "plain-child": 11} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := readCodexRequest(t, name)
			script(t, nil, func(s *scripted) {
				s.postTo("/v1/responses", body)
				_, prompt := promptOf(t, s.toEngine())
				n := wantTools(t, name, prompt, gjson.Get(body, "tools"))
				for _, item := range gjson.Get(body, "input").Array() {
					n += wantTools(t, name, prompt, item.Get("tools"))
					texts := append(item.Get("content.#.text").Array(), item.Get("content.#.encrypted_content").Array()...)
					texts = append(texts, item.Get("arguments|@ugly")) // an object is written without spaces
					if output := item.Get("output"); output.IsArray() {
						texts = append(texts, output.Get("#.text").Array()...)
					} else {
						texts = append(texts, output)
					}
					for _, text := range texts {
						if !strings.Contains(prompt, strings.TrimSpace(text.String())) {
							t.Errorf("the prompt does not have %s of %s", text.Raw, item.Get("type"))
						}
					}
				}
				if n != tools {
					t.Errorf("the request has %d tools, want %d", n, tools)
				}
			})
		})
	}
}

// TestCodexSearchPrefix shows that the prompts of a turn in which Codex searches for a
// tool begin with each other, and that the tool that it finds is called by its name.
func TestCodexSearchPrefix(t *testing.T) {
	t.Parallel()
	body := readCodexRequest(t, "search")
	items := gjson.Get(body, "input")
	script(t, nil, func(s *scripted) {
		var before []harmony.Token
		for i, n := range []int{5, 8, 10} { // the question, the tool is found, it has answered
			raw := make([]string, 0, n)
			for _, item := range items.Array()[:n] {
				raw = append(raw, item.Raw)
			}
			if i > 0 {
				s.next()
			}
			request := strings.Replace(body, items.Raw, "["+strings.Join(raw, ",")+"]", 1)
			s.postTo("/v1/responses", strings.Replace(request, `"stream": true`, `"stream": false`, 1))
			tokens, _ := promptOf(t, s.toEngine())
			if !slices.Equal(before, tokens[:min(len(before), len(tokens))]) {
				t.Errorf("prompt %d does not begin with the one before it", i+1)
			}
			before = tokens
			object := s.engineAnswers([]string{
				"<|channel|>commentary to=functions.tool_search json<|message|>{\"query\":\"reverse text\",\"limit\":4}<|call|>",
				"<|channel|>commentary to=mcp__texts.reverse json<|message|>{\"text\":\"harmony\"}<|call|>",
				codexAnswer,
			}[i])
			for path, want := range []map[string]string{
				{"output.0.type": "tool_search_call", "output.0.execution": "client", "output.0.arguments.query": "reverse text"},
				{"output.0.type": "function_call", "output.0.name": "reverse", "output.0.namespace": "mcp__texts"},
				{"output.0.type": "message"},
			}[i] {
				if got := object.Get(path).String(); got != want {
					t.Errorf("%s of reply %d is %q, want %q", path, i+1, got, want)
				}
			}
		}
	})
}
