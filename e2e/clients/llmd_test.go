package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// What the router of llm-d sends to a render service, from the source of its plugin
// token-producer (commit ebab687, 2026-08-21): its module is not to be had for the tests.
// The first two are its warm-up, after which it counts the service as there.
const (
	llmdWarmUp  = `{"messages":[{"content":[{"text":"warmup","type":"text"}],"role":"user"}],"model":%q}`
	llmdPicture = `{"messages":[{"content":[{"text":"warmup","type":"text"},{"image_url":{"url":"data:image/png;base64,` +
		`iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="},` +
		`"type":"image_url"}],"role":"user"}],"model":%q}`
)

// llmdCases are requests with what the router makes of them.
var llmdCases = []struct {
	name, path, body string

	// asked is what the router asks; empty: the body, read into a map and written again.
	asked string
	// differs is how the filter's prompt goes on where the router's tokens differ; empty: they
	// are the same.
	differs string
}{
	{
		name: "chat", path: "/v1/chat/completions",
		body: `{"seed":9007199254740993,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"SAY Grüße & <b>."}],"model":%q}`,
	},
	{
		name: "chat with a history", path: "/v1/chat/completions",
		body: `{"model":%q,"messages":[{"role":"user","content":[{"type":"text","text":"Weather?"}]},{"role":"assistant","content":"",` +
			`"reasoning":"I look.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather",` +
			`"arguments":"{\"unit\":\"c\",\"city\":\"Bern\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"12 °C"},` +
			`{"role":"user","content":"SAY Thanks."}],"tools":[{"type":"function","function":{"name":"get_weather",` +
			`"parameters":{"properties":{"city":{"type":"string"},"unit":{"type":"string"}},"type":"object"}}}]}`,
	},
	{
		name: "chat with a tool whose parameters are not in alphabetical order", path: "/v1/chat/completions",
		body: `{"model":%q,"messages":[{"role":"user","content":"SAY Hi."}],"tools":[{"type":"function","function":{"name":"get_weather",` +
			`"parameters":{"type":"object","properties":{"unit":{"type":"string"},"city":{"type":"string"}}}}}]}`,
		differs: "unit?: string",
	},
	{
		name: "Messages", path: "/v1/messages",
		body:  `{"model":%q,"max_tokens":100,"system":[{"type":"text","text":"You are"},{"type":"text","text":" brief."}],"messages":[{"role":"user","content":"SAY Hi."}]}`,
		asked: `{"messages":[{"role":"system","content":"You are brief."},{"role":"user","content":"SAY Hi."}],"model":%q}`,
	},
	{
		name: "Messages with a call", path: "/v1/messages",
		body: `{"model":%q,"max_tokens":100,"messages":[{"role":"user","content":"Weather?"},{"role":"assistant","content":[` +
			`{"type":"tool_use","id":"toolu_1","name":"get_weather","input":{"unit":"c","city":"Bern"}}]},{"role":"user","content":[` +
			`{"type":"tool_result","tool_use_id":"toolu_1","content":"12"},{"type":"text","text":"SAY Hi."}]}],"tools":[{"name":"get_weather",` +
			`"input_schema":{"type":"object","properties":{"unit":{"type":"string"},"city":{"type":"string"}}}}]}`,
		asked: `{"messages":[{"role":"user","content":"Weather?"},{"role":"assistant","tool_calls":[{"function":` +
			`{"arguments":"{\"unit\": \"c\", \"city\": \"Bern\"}","name":"get_weather"},"id":"toolu_1","type":"function"}]},` +
			`{"role":"tool","content":"12","tool_call_id":"toolu_1"},{"role":"user","content":"SAY Hi."}],"model":%q,` +
			`"tools":[{"function":{"name":"get_weather","parameters":{"type":"object","properties":{"unit":{"type":"string"},` +
			`"city":{"type":"string"}}}},"type":"function"}]}`,
		differs: `"c","city":"Bern"}`,
	},
}

// The tokens that the render service gives to llm-d's router are those of the filter's prompt,
// where the router asks for what the client has sent.
func TestLLMDRouter(t *testing.T) {
	const date = "2026-11-26"
	d := stack.Start(t, stack.Options{Config: func(c *config.Config) { c.Date = date }})
	p := stack.LaunchProgram(t, d.Logs, "rendering", "render", "--listen", "127.0.0.1:0", "--set", "date="+date)
	service := &stack.Dataplane{URL: "http://" + p.Address, Client: d.Client}

	ask := func(t *testing.T, body string) gjson.Result {
		t.Helper()
		return gjson.Parse(service.Answer(t, "/v1/chat/completions/render", body))
	}

	for _, body := range []string{llmdWarmUp, llmdPicture} {
		if ids := ask(t, fmt.Sprintf(body, stack.VLLMModel)).Get("token_ids").Array(); len(ids) == 0 {
			t.Errorf("the warm-up has no tokens: %s", body)
		}
	}

	for _, tt := range llmdCases {
		t.Run(tt.name, func(t *testing.T) {
			body := fmt.Sprintf(tt.body, stack.VLLMModel)
			asked := sortedMembers(t, body)
			if tt.asked != "" {
				asked = fmt.Sprintf(tt.asked, stack.VLLMModel)
			}
			got := ask(t, asked)

			before := len(d.EngineRequests(t, ""))
			d.Answer(t, tt.path, body)
			want := d.EngineRequests(t, "")[before]

			at := 0
			for text := got.Get("text").Str; at < min(len(text), len(want.Prompt)) && text[at] == want.Prompt[at]; {
				at++
			}
			same := got.Get("token_ids").Raw == mustMarshal(t, want.PromptIDs)
			if differs := want.Prompt[at:]; same != (tt.differs == "") || !strings.HasPrefix(differs, tt.differs) {
				t.Errorf("the same tokens: %t; the filter's prompt goes on with %.200q, want %q", same, differs, tt.differs)
			}
		})
	}

	// The router goes on without tokens.
	resp := service.Do(t, http.MethodPost, "/v1/completions/render", "application/json", strings.NewReader(`{"model":"gpt-oss-20b","prompt":"Hi"}`))
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("completions are answered with status %d", resp.StatusCode)
	}
}

// sortedMembers reads a body into a map, as the router does with a chat request, and writes
// it: the members of all objects are in alphabetical order, and numbers are floats.
func sortedMembers(t *testing.T, body string) string {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		t.Fatal(err)
	}
	return mustMarshal(t, members)
}

func mustMarshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
