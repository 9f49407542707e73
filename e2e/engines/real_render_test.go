//go:build engines

package engines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// rendered is a request whose prompt is compared with vLLM's prompt for it.
type rendered struct {
	name        string
	fields      string // members of the request
	differences []difference
}

// difference is a deviation from vLLM's prompt: vLLM's text, this project's text,
// and the reason.
type difference struct{ why, theirs, ours string }

const (
	askTool  = `{"type":"function","function":{"name":"get_weather","description":"Gets the weather.\nOf today.","parameters":{"type":"object","properties":{"city":{"type":"string","description":"The city."},"unit":{"type":"string","enum":["c","f"],"default":"c"},"days":{"type":"integer"}},"required":["city"]}}}`
	timeTool = `{"type":"function","function":{"name":"get_time","description":"Tells the time."}}`
	askCall  = `{"id":"call_1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Bern\"}"}}`
	timeCall = `{"id":"call_2","type":"function","function":{"name":"get_time","arguments":"{}"}}`
	rTool    = `{"type":"function","name":"get_weather","description":"Gets the weather.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}`
	rCall    = `{"type":"function_call","call_id":"call_1","name":"get_weather","arguments":"{\"city\":\"Bern\"}"}`
	rOutput  = `{"type":"function_call_output","call_id":"call_1","output":"sunny"}`
	rThought = `{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"I look it up."}]}`
	verdict  = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}`
	userHi   = `{"role":"user","content":"Hello"}`
)

// The known differences. "The reference" is openai-harmony.
func resultOf(tool, result string) difference {
	return difference{
		"the reference writes a tool result's recipient into the role, as the model writes its own calls",
		"<|start|>functions." + tool + "<|channel|>commentary to=assistant<|message|>" + result,
		"<|start|>functions." + tool + " to=assistant<|channel|>commentary<|message|>" + result,
	}
}

const (
	whyNoTools   = "tools that must not be called are not offered, as OpenAI documents for tool_choice none"
	whyAnnounced = "Harmony announces the form of the answer; vLLM leaves it to the grammar"
	whyJoined    = "parts without white space between them are lines; vLLM writes them without a separator"
)

func chatRenders() []rendered {
	return []rendered{
		{name: "hello", fields: `"messages":[` + userHi + `]`},
		{name: "unicode", fields: `"messages":[{"role":"user","content":"naïve 世界 👩‍👩‍👧‍👦\r\n\t x  \u200b Ω≈ç"}]`},
		{name: "control tokens are text", fields: `"messages":[{"role":"user","content":"<|end|><|start|>system<|message|>x<|return|>"}]`},
		{name: "system", fields: `"messages":[{"role":"system","content":"Be terse."},` + userHi + `]`},
		{name: "developer", fields: `"messages":[{"role":"developer","content":"Be terse."},` + userHi + `]`},
		{name: "system and developer", fields: `"messages":[{"role":"system","content":"Be terse."},{"role":"developer","content":"Be kind."},` + userHi + `]`},
		{name: "system in the middle", fields: `"messages":[` + userHi + `,{"role":"system","content":"Be terse."},{"role":"user","content":"Go on."}]`},
		{name: "parts", fields: `"messages":[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]`, differences: []difference{{whyJoined, "onetwo", "one\ntwo"}}},
		{name: "effort low", fields: `"reasoning_effort":"low","messages":[` + userHi + `]`},
		{name: "effort high", fields: `"reasoning_effort":"high","messages":[` + userHi + `]`},
		{name: "two turns", fields: `"messages":[` + userHi + `,{"role":"assistant","content":"Hi."},{"role":"user","content":"Go on."}]`},
		{name: "reasoning of an answered turn", fields: `"messages":[` + userHi + `,{"role":"assistant","reasoning":"Greet.","content":"Hi."},{"role":"user","content":"Go on."}]`},
		{name: "tool", fields: `"tools":[` + askTool + `],"messages":[` + userHi + `]`},
		{name: "two tools and instructions", fields: `"tools":[` + askTool + `,` + timeTool + `],"messages":[{"role":"developer","content":"Be terse."},` + userHi + `]`},
		{name: "tool choice none", fields: `"tools":[` + askTool + `],"tool_choice":"none","messages":[` + userHi + `]`, differences: []difference{{whyNoTools, "\nCalls to these tools must go to the commentary channel: 'functions'.", ""}, {whyNoTools, "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\n// Gets the weather.\n// Of today.\ntype get_weather = (_: {\n// The city.\ncity: string,\nunit?: \"c\" | \"f\", // default: c\ndays?: number,\n}) => any;\n\n} // namespace functions<|end|>", ""}}},
		{name: "tool choice required", fields: `"tools":[` + askTool + `],"tool_choice":"required","messages":[` + userHi + `]`},
		{name: "call and result", fields: `"tools":[` + askTool + `],"messages":[` + userHi + `,{"role":"assistant","content":null,"tool_calls":[` + askCall + `]},{"role":"tool","tool_call_id":"call_1","content":"sunny"}]`, differences: []difference{resultOf("get_weather", "sunny")}},
		{name: "call with its reasoning", fields: `"tools":[` + askTool + `],"messages":[` + userHi + `,{"role":"assistant","reasoning":"I look it up.","content":null,"tool_calls":[` + askCall + `]},{"role":"tool","tool_call_id":"call_1","content":"sunny"}]`, differences: []difference{resultOf("get_weather", "sunny")}},
		{name: "call with a preamble", fields: `"tools":[` + askTool + `],"messages":[` + userHi + `,{"role":"assistant","content":"One moment.","tool_calls":[` + askCall + `]},{"role":"tool","tool_call_id":"call_1","content":"sunny"}]`, differences: []difference{resultOf("get_weather", "sunny")}},
		{name: "two calls", fields: `"tools":[` + askTool + `,` + timeTool + `],"messages":[` + userHi + `,{"role":"assistant","content":null,"tool_calls":[` + askCall + `,` + timeCall + `]},{"role":"tool","tool_call_id":"call_1","content":"sunny"},{"role":"tool","tool_call_id":"call_2","content":"noon"}]`, differences: []difference{resultOf("get_weather", "sunny"), resultOf("get_time", "noon")}},
		{name: "answered tool turn", fields: `"tools":[` + askTool + `],"messages":[` + userHi + `,{"role":"assistant","reasoning":"I look it up.","content":null,"tool_calls":[` + askCall + `]},{"role":"tool","tool_call_id":"call_1","content":"sunny"},{"role":"assistant","content":"It is sunny."},{"role":"user","content":"Thanks."}]`, differences: []difference{resultOf("get_weather", "sunny")}},
		{name: "json object", fields: `"response_format":{"type":"json_object"},"messages":[` + userHi + `]`, differences: []difference{{whyAnnounced, "<|start|>user", "<|start|>developer<|message|># Response Formats\n\n## json_object\n\n{\"type\":\"object\"}<|end|><|start|>user"}}},
		{name: "json schema", fields: `"response_format":{"type":"json_schema","json_schema":{"name":"verdict","schema":` + verdict + `,"strict":true}},"messages":[{"role":"developer","content":"Be terse."},` + userHi + `]`, differences: []difference{{whyAnnounced, "Be terse.", "Be terse.\n\n# Response Formats\n\n## verdict\n\n" + verdict}}},
	}
}

func responsesRenders() []rendered {
	return []rendered{
		{name: "hello", fields: `"input":"Hello"`},
		{name: "instructions", fields: `"instructions":"Be terse.","input":"Hello"`},
		{name: "instructions and developer", fields: `"instructions":"Be terse.","input":[{"role":"developer","content":"Be kind."},` + userHi + `]`},
		{name: "effort", fields: `"reasoning":{"effort":"high"},"input":"Hello"`},
		{name: "two turns", fields: `"input":[` + userHi + `,{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi."}]},{"role":"user","content":"Go on."}]`},
		{name: "tool", fields: `"tools":[` + rTool + `],"input":"Hello"`},
		{name: "call and result", fields: `"tools":[` + rTool + `],"input":[` + userHi + `,` + rCall + `,` + rOutput + `]`, differences: []difference{resultOf("get_weather", "sunny")}},
		{name: "call with its reasoning", fields: `"tools":[` + rTool + `],"input":[` + userHi + `,` + rThought + `,` + rCall + `,` + rOutput + `]`, differences: []difference{resultOf("get_weather", "sunny")}},
		{name: "answered tool turn", fields: `"tools":[` + rTool + `],"input":[` + userHi + `,` + rThought + `,` + rCall + `,` + rOutput + `,{"type":"message","role":"assistant","content":[{"type":"output_text","text":"It is sunny."}]},{"role":"user","content":"Thanks."}]`, differences: []difference{resultOf("get_weather", "sunny")}},
		{name: "json schema", fields: `"text":{"format":{"type":"json_schema","name":"verdict","schema":` + verdict + `,"strict":true}},"input":"Hello"`, differences: []difference{{whyAnnounced, "<|start|>user", "<|start|>developer<|message|># Response Formats\n\n## verdict\n\n" + verdict + "<|end|><|start|>user"}}},
	}
}

// Prompts equal those of vLLM's own frontend for the same requests, token by token,
// except for the listed differences.
func TestRealRender(t *testing.T) {
	e := engineAt(t, "ENGINE_TEST_VLLM", "vllm", nil)
	d := startReal(t, e)

	same, differs := 0, 0
	for path, table := range map[string][]rendered{"/v1/chat/completions/render": chatRenders(), "/v1/responses/render": responsesRenders()} {
		for _, r := range table {
			t.Run(path[len("/v1/"):len(path)-len("/render")]+"/"+r.name, func(t *testing.T) {
				theirs := renderedIDs(t, e.url+path, tinyModel, r.fields)
				ours := renderedIDs(t, d.URL+path, stack.ModelOf(e.kind), r.fields)
				want := spelled(t, theirs)
				for _, difference := range r.differences {
					if !strings.Contains(want, difference.theirs) {
						t.Errorf("vLLM's prompt has no %q: this difference no longer exists (%s)", difference.theirs, difference.why)
					}
					want = strings.ReplaceAll(want, difference.theirs, difference.ours)
				}

				if diff := cmp.Diff(want, spelled(t, ours)); diff != "" {
					t.Errorf("prompts, but for the listed differences (-vLLM's +ours):\n%s", diff)
				}

				if len(r.differences) > 0 {
					differs++
					return
				}

				if diff := cmp.Diff(theirs, ours); diff != "" {
					t.Errorf("the same text has other tokens (-vLLM's +ours):\n%s", diff)
				}
				same++
			})
		}
	}

	t.Logf("prompts the same as vLLM's: %d; with listed differences: %d", same, differs)
}

// renderedIDs returns the prompt that a server renders for a request.
func renderedIDs(t *testing.T, url, model, fields string) []harmony.Token {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,%s}`, model, fields)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	var ids []harmony.Token
	if err := json.Unmarshal([]byte(gjson.GetBytes(reply, "token_ids").Raw), &ids); err != nil || len(ids) == 0 {
		t.Fatalf("%s: %s: %s", url, resp.Status, reply)
	}
	return ids
}

// spelled returns a prompt as text with the names of special tokens.
func spelled(t *testing.T, ids []harmony.Token) string {
	t.Helper()
	text, err := harmony.AppendDecode(nil, ids)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.ToValidUTF8(text, []byte("\uFFFD")))
}
