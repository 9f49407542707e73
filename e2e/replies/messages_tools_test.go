package replies

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// served is a reply of the Messages API, and the prompts of its model calls.
type served struct {
	gjson.Result
	prompts []string
}

// serve sends a request of the Messages API. Of a stream it returns the message that
// its events add up to.
func serve(t *testing.T, d *stack.Dataplane, stream bool, text, more string) served {
	t.Helper()
	if stream {
		more += `,"stream":true`
	}
	resp, reply := message(t, d, "/v1/messages", stack.HarmonyModels[0], text, more)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, reply)
	}
	s := served{Result: gjson.Parse(reply)}
	if stream {
		s.Result = gjson.Parse(joinMessage(t, reply))
	}
	for _, r := range d.EngineRequests(t, resp.Header.Get("X-Request-Id")) {
		s.prompts = append(s.prompts, r.Prompt)
	}
	return s
}

// joinMessage returns {"content":[…],"stop_reason":…,"usage":…} of a stream. The inputs
// of calls are texts.
func joinMessage(t *testing.T, stream string) string {
	t.Helper()
	var content, input, said strings.Builder
	end, text := "", ""

	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}

		switch e := gjson.Parse(data); e.Get("type").Str {
		case "content_block_start":
			if content.Len() > 0 {
				content.WriteByte(',')
			}
			text = strings.TrimSpace(e.Get("content_block").Raw)
			input.Reset()
			said.Reset()
		case "content_block_delta":
			input.WriteString(e.Get("delta.partial_json").Str)
			said.WriteString(e.Get("delta.text").Str)
		case "content_block_stop":
			if input.Len() > 0 {
				text = strings.Replace(text, `"input":{}`, `"input":`+input.String(), 1)
			}
			if said.Len() > 0 {
				text = strings.Replace(text, `"text":""`, `"text":`+strconv.Quote(said.String()), 1)
			}
			content.WriteString(text)
		case "message_delta":
			end = `,"stop_reason":` + e.Get("delta.stop_reason").Raw + `,"usage":` + e.Get("usage").Raw
		}
	}

	if end == "" || !strings.HasSuffix(stream, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n") {
		t.Fatalf("the stream has no end:\n%s", stream)
	}
	return `{"content":[` + content.String() + `]` + end + `}`
}

// Tools that the filter runs for messages, through Envoy, as an object and as a stream.
func TestMessageTools(t *testing.T) {
	server, configure := stack.MessageTools(t)
	d := stack.Start(t, stack.Options{Config: configure})

	for name, stream := range map[string]bool{"whole": false, "streamed": true} {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				name, text, more, kinds string
				want                    map[string]string
				prompt                  []string // of the last model call, in this order
			}{
				{
					"web search", "NOTHINK\nCALL browser.search {\"query\":\"cats\"}\nCALL browser.open {\"id\":0}\nSAY 3 €.", `,"tools":[{"type":"web_search_20250305","name":"web_search"}]`,
					"server_tool_use web_search_tool_result server_tool_use web_search_tool_result text",
					map[string]string{
						"content.0.name": "web_search", "content.0.input.query": "cats", "content.3.content.0.url": "https://shop.example/", "content.3.content.0.title": "The shop",
						"content.4.text": "3 €.", "stop_reason": "end_turn", "usage.server_tool_use.web_search_requests": "1",
					},
					[]string{"## browser", "<|channel|>analysis to=browser.search code<|message|>{\"query\":\"cats\"}<|call|>", "<|start|>browser.open to=assistant<|channel|>analysis<|message|>[1] The shop"},
				},
				{
					"code", "NOTHINK\nCALL python x = 4\nCALL python x\nSAY four", `,"tools":[{"type":"code_execution_20250825","name":"code_execution"}]`,
					"server_tool_use code_execution_tool_result server_tool_use code_execution_tool_result text",
					map[string]string{"content.2.input.code": "x", "content.3.content.stdout": "4", "content.3.content.return_code": "0", "content.4.text": "four"},
					[]string{"## python", "<|start|>python to=assistant<|channel|>analysis<|message|>4<|end|>"},
				},
				{
					"an MCP server", "NOTHINK\nCALL docs.search {\"q\":\"ü\"}\nCALL docs.delete-all {}\nSAY done", `,"mcp_servers":[{"type":"url","name":"docs","url":"` + server.URL + `"}]`,
					"mcp_tool_use mcp_tool_result mcp_tool_use mcp_tool_result text",
					map[string]string{"content.0.server_name": "docs", "content.1.content.0.text": "found ü", "content.1.is_error": "false", "content.3.is_error": "true", "content.4.text": "done"},
					[]string{"namespace docs {", "<|start|>docs.search to=assistant<|channel|>commentary<|message|>found ü<|end|>", "It is forbidden.<|end|>"},
				},
			} {
				t.Run(tt.name, func(t *testing.T) {
					s := serve(t, d, stream, tt.text, tt.more)
					content := s.Get("content.#.type").Array()
					kinds := make([]string, 0, len(content))
					for _, kind := range content {
						kinds = append(kinds, kind.Str)
					}
					if got := strings.Join(kinds, " "); got != tt.kinds {
						t.Fatalf("%s, want %s: %s", got, tt.kinds, s.Raw)
					}

					for path, want := range tt.want {
						if got := s.Get(path).String(); got != want {
							t.Errorf("%s is %q, want %q", path, got, want)
						}
					}

					if len(s.prompts) != 3 {
						t.Fatalf("%d model calls", len(s.prompts))
					}
					for i := range s.prompts[1:] {
						if before := strings.TrimSuffix(s.prompts[i], "<|start|>assistant"); !strings.HasPrefix(s.prompts[i+1], before) {
							t.Errorf("prompt %d does not begin with the one before:\n%s", i+1, s.prompts[i+1])
						}
					}

					stack.WantPrompt(t, s.prompts[2], tt.prompt...)
				})
			}
		})
	}
}

// A count has the tools of MCP servers, which are asked. Servers that require approval
// and hosts that are not allowed are errors, and nothing is called.
func TestMessageToolsCountAndErrors(t *testing.T) {
	server, configure := stack.MessageTools(t)
	d := stack.Start(t, stack.Options{Config: configure})

	more := `,"mcp_servers":[{"type":"url","name":"docs"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]`
	_, counted := message(t, d, "/v1/messages/count_tokens", stack.HarmonyModels[0], "SAY yes", more)
	usage := serve(t, d, false, "SAY yes", more).Get("usage")
	if want := usage.Get("input_tokens").Int() + usage.Get("cache_read_input_tokens").Int(); gjson.Get(counted, "input_tokens").Int() != want || want < 300 {
		t.Errorf("%s, want %d", counted, want)
	}

	calls := server.Count("tools/call")
	for name, tt := range map[string]struct{ server, says string }{
		"approval":    {`{"type":"url","name":"guarded"}`, "guarded"},
		"not allowed": {`{"type":"url","name":"docs","url":"https://evil.example/mcp"}`, "evil.example"},
	} {
		resp, reply := message(t, d, "/v1/messages", stack.HarmonyModels[0], "CALL "+name, `,"mcp_servers":[`+tt.server+`]`)
		if resp.StatusCode != http.StatusBadRequest || gjson.Get(reply, "error.type").Str != "invalid_request_error" || !strings.Contains(reply, tt.says) {
			t.Errorf("%s: %s: %s", name, resp.Status, reply)
		}
	}

	if got := server.Count("tools/call"); got != calls {
		t.Errorf("%d calls were made", got-calls)
	}
}

// Without the loopback listener the tools are ignored, and the header names them.
func TestMessageToolsWithoutLoopback(t *testing.T) {
	_, configure := stack.MessageTools(t)
	d := stack.Start(t, stack.Options{Direct: true, Config: configure})
	resp, reply := message(t, d, "/v1/messages", stack.HarmonyModels[0], "SAY yes", `,"mcp_servers":[{"type":"url","name":"docs"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]`)
	if resp.StatusCode != http.StatusOK || gjson.Get(reply, "content.#(type==text).text").Str != "yes" {
		t.Fatalf("%s: %s", resp.Status, reply)
	}
	if got := resp.Header.Get("X-Harmony-Ignored"); !strings.Contains(got, "mcp_servers") || !strings.Contains(got, "tools.web_search_20250305") {
		t.Errorf("ignored: %q", got)
	}
}
