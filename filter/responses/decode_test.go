package responses

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const user = `{"role":"user","content":"Hi"}`
	call := func(id string) string {
		return `{"type":"function_call","call_id":"` + id + `","name":"f","arguments":"{}"}`
	}
	out := func(id string) string { return `{"type":"function_call_output","call_id":"` + id + `","output":"x"}` }
	tool := func(list string) string { return ask(`,"tools":[` + list + `]`) }
	for _, c := range []struct{ name, body, param, message string }{
		{"not JSON", `{`, "", "not valid JSON"},
		{"twice", `{"model":"a","model":"b"}`, "model", "more than once"},
		{"no model", `{"input":"Hi"}`, "model", "missing"},
		{"long model", `{"model":"` + strings.Repeat("m", 257) + `"}`, "model", "longer than 256"},
		{"no input", `{"model":"m"}`, "input", "missing"},
		{"null input", `{"model":"m","input":null}`, "input", "missing"},
		{"empty input", askItems(``), "input", "nothing for the model"},
		{"input of a wrong type", `{"model":"m","input":7}`, "input", "a text or a list"},
		{"null item", askItems(`null`), "input[0]", "an object"},
		{"item without type", askItems(`{"content":"Hi"}`), "input[0].type", "no type"},
		{"call with an action without id", askItems(user + `,{"type":"computer_call","id":"a"}`), "input[1].call_id", "no call_id"},
		{"call with an action without output", askItems(user + `,{"type":"shell_call","call_id":"a","action":{"commands":[]}}`), "input[1]", `"a" has no output`},
		{"agent message without content", askItems(`{"type":"agent_message","author":"a","recipient":"b"}`), "input[0].content", "no content"},
		{"effort of an update", askItems(user + `,{"type":"configuration_update","reasoning":{"effort":"huge"}}`), "input[1].reasoning.effort", "one of"},
		{"format of an update", askItems(user + `,{"type":"configuration_update","text":{"format":{"type":"xml"}}}`), "input[1].text.format", "must be text"},
		{"type of a wrong type", askItems(`{"type":7}`), "input[0].type", "must be a string"},
		{"no role", askItems(`{"type":"message","content":"Hi"}`), "input[0].role", "no role"},
		{"unknown role", askItems(`{"role":"tool","content":"Hi"}`), "input[0].role", "must be system"},
		{"unknown phase", askItems(`{"role":"assistant","phase":"x","content":"Hi"}`), "input[0].phase", "commentary"},
		{"no content", askItems(`{"role":"user","content":null}`), "input[0].content", "no content"},
		{"content of a wrong type", askItems(`{"role":"user","content":{}}`), "input[0].content", "must be a string"},
		{"unknown part", askItems(`{"role":"user","content":[{"type":"input_audio"}]}`), "input[0].content[0].type", "parts"},
		{"part without text", askItems(`{"role":"user","content":[{"type":"input_text"}]}`), "input[0].content[0].text", "must be a string"},
		{"file", askItems(`{"role":"user","content":[{"type":"input_file","file_id":"x"}]}`), "input[0].content[0]", "cannot read files"},
		{"reference", askItems(`{"type":"item_reference","id":"msg_1"}`), "input[0]", "No responses are stored"},
		{"reference without type", askItems(`{"id":"msg_1"}`), "input[0]", "No responses are stored"},
		{"compaction", askItems(user + `,{"type":"compaction","encrypted_content":"x"}`), "input[1].encrypted_content", "not made by this service"},
		{"empty compaction", askItems(user + `,{"type":"compaction"}`), "input[1].encrypted_content", "no encrypted_content"},
		{"compaction without a key", askItems(user + `,{"type":"compaction_trigger"}`), "input", "not configured"},
		{"compaction_trigger", askItems(`{"type":"compaction_trigger"},` + user), "input[1]", "the last one"},
		{"approval", askItems(`{"type":"mcp_approval_response","approval_request_id":"a","approve":true}`), "input[0].approval_request_id", "mcp_approval_request"},
		{"call without id", askItems(`{"type":"function_call","name":"f","arguments":"{}"}`), "input[0].call_id", "no call_id"},
		{"call without name", askItems(`{"type":"function_call","call_id":"a"}`), "input[0].name", "no name"},
		{"custom call without name", askItems(`{"type":"custom_tool_call","call_id":"a"}`), "input[0].name", "no name"},
		{"custom call with an object", askItems(`{"type":"custom_tool_call","call_id":"a","name":"f","input":{}}`), "input[0].input", "must be a string"},
		{"arguments of a wrong type", askItems(`{"type":"function_call","call_id":"a","name":"f","arguments":7}`), "input[0].arguments", "must be a string"},
		{"long call id", askItems(call(strings.Repeat("a", 257))), "input[0]", "longer than 256"},
		{"calls without outputs", askItems(user + "," + call("a") + "," + call("b") + `,{"type":"shell_call","call_id":"c","action":{"commands":[]}}`), "input[1]", `ids "a", "b" and "c" have no outputs`},
		{"outputs without calls", askItems(user + `,{"type":"function_call_output","call_id":"a","output":"x"},{"type":"function_call_output","call_id":"b","output":"x"}`), "input[1]", `ids "a" and "b"`},
		{"approvals of no calls", askItems(user + `,{"type":"mcp_approval_response","approval_request_id":"a","approve":true},{"type":"mcp_approval_response","approval_request_id":"b","approve":true}`), "input[1].approval_request_id", `There are no mcp_approval_requests with the ids "a" and "b".`},
		{"approvals twice", askItems(user + strings.Repeat(`,{"type":"mcp_approval_response","approval_request_id":"a","approve":true},{"type":"mcp_approval_response","approval_request_id":"b","approve":true}`, 2)), "input[3].approval_request_id", `The mcp_approval_requests "a" and "b" have been answered already.`},
		{"allowed tools", ask(`,"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"},{"type":"function","name":"f"},{"type":"function","name":"h"}]}`), "tool_choice", `The tools "g" and "h"`},
		{"call without output", askItems(user + "," + call("a")), "input[1]", `"a" has no output`},
		{"output without call", askItems(user + "," + out("b")), "input[1]", `"b"`},
		{"two outputs", askItems(call("a") + "," + out("a") + "," + out("a")), "input[2]", `"a"`},
		{"output without id", askItems(`{"type":"function_call_output","output":"x"}`), "input[0].call_id", "no call_id"},
		{"output without output", askItems(`{"type":"function_call_output","call_id":"a"}`), "input[0].output", "missing"},
		{"MCP call without server", askItems(`{"type":"mcp_call","id":"a","name":"f"}`), "input[0].server_label", "server_label"},

		{"background", ask(`,"background":true`), "background", "must be stored"},
		{"conversation", ask(`,"conversation":"conv_1"`), "conversation", "No conversations are stored"},
		{"conversation id", ask(`,"conversation":{"id":""}`), "conversation.id", "empty"},
		{"conversation without id", ask(`,"conversation":{}`), "conversation.id", "must be a string"},
		{"conversation and previous", ask(`,"conversation":"conv_1","previous_response_id":"resp_1"`), "conversation", "one of them"},
		{"previous response", ask(`,"previous_response_id":"resp_1"`), "previous_response_id", "No responses are stored"},
		{"prompt", ask(`,"prompt":{"id":"p"}`), "prompt", "templates"},
		{"min_tokens", ask(`,"min_tokens":6,"max_output_tokens":5`), "min_tokens", "raise max_output_tokens"},
		{"stop", ask(`,"stop":[""]`), "stop[0]", "empty"},
		{"chat's field", ask(`,"max_tokens":5`), "max_tokens", "max_output_tokens"},
		{"too many top_logprobs", ask(`,"top_logprobs":21`), "top_logprobs", "20"},
		{"logprobs of chat", ask(`,"logprobs":true`), "logprobs", "Use include with message.output_text.logprobs"},
		{"unknown include", ask(`,"include":["everything"]`), "include[0]", "not one of"},
		{"include of a wrong type", ask(`,"include":"all"`), "include", "an array"},
		{"format", ask(`,"text":{"format":{"type":"xml"}}`), "text.format", "must be text"},
		{"format of a wrong type", ask(`,"text":{"format":"json_object"}`), "text.format", "must be text"},
		{"format without name", ask(`,"text":{"format":{"type":"json_schema","schema":{}}}`), "text.format", "no name"},
		{"name of a format", ask(`,"text":{"format":{"type":"json_schema","name":"a b","schema":{}}}`), "text.format", "letters"},
		{"format without schema", ask(`,"text":{"format":{"type":"json_schema","name":"x"}}`), "text.format", "no schema"},
		{"schema of a format", ask(`,"text":{"format":{"type":"json_schema","name":"x","schema":{"$ref":"#"}}}`), "text.format", "leads back"},
		{"strict schema of a format", ask(`,"text":{"format":{"type":"json_schema","name":"x","strict":true,"schema":{"type":"string","pattern":"(?=a)b"}}}`), "text.format", "lookaround"},
		{"two formats", ask(`,"text":{"format":{"type":"json_object"}},"structured_outputs":{"regex":"a"}`), "structured_outputs", "more than one"},
		{"two structured outputs", ask(`,"structured_outputs":{"json_object":true,"regex":"a"}`), "structured_outputs.regex", "more than one"},
		{"structural tag", ask(`,"structured_outputs":{"structural_tag":"{}"}`), "structured_outputs.structural_tag", "not for clients"},
		{"verbosity", ask(`,"text":{"verbosity":"max"}`), "text.verbosity", "one of"},
		{"truncation", ask(`,"truncation":"middle"`), "truncation", "must be"},
		{"effort", ask(`,"reasoning":{"effort":"most"}`), "reasoning.effort", "one of"},
		{"summary", ask(`,"reasoning":{"summary":"none"}`), "reasoning.summary", "one of"},
		{"temperature", ask(`,"temperature":2.1`), "temperature", "between 0 and 2"},
		{"max_output_tokens", ask(`,"max_output_tokens":0`), "max_output_tokens", "between"},
		{"metadata", ask(`,"metadata":{"a":1}`), "metadata", "must be strings"},
		{"long metadata", ask(`,"metadata":{"a":"` + strings.Repeat("ä", 513) + `"}`), "metadata", "longer than 512"},
		{"long metadata key", ask(`,"metadata":{"` + strings.Repeat("ä", 65) + `":"a"}`), "metadata", "longer than 64"},
		{"much metadata", ask(`,"metadata":{` + manyMembers(17) + `}`), "metadata", "more than 16"},
		{"long cache key", ask(`,"prompt_cache_key":"` + strings.Repeat("k", 257) + `"`), "prompt_cache_key", "longer than 256"},

		{"required without tools", ask(`,"tool_choice":"required"`), "tool_choice", "no tools"},
		{"unknown tool", ask(weatherTool + `,"tool_choice":{"type":"function","name":"f"}`), "tool_choice", "not one of the tools"},
		{"unknown allowed tool", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}`), "tool_choice", "not one of the tools"},
		{"allowed hosted tool", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"f"}]}`), "tool_choice.tools[0]", "not one of the tools"},
		{"mode of allowed tools", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","mode":"none","tools":[]}`), "tool_choice.mode", "auto or required"},
		{"no allowed tools", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}`), "tool_choice.tools", "no tools"},
		{"allowed tools that are missing", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","mode":"required"}`), "tool_choice.tools", "no tools"},
		{"choice without name", ask(weatherTool + `,"tool_choice":{"type":"function"}`), "tool_choice.name", "a string"},
		{"hosted choice", ask(mixedTools + `,"tool_choice":{"type":"web_search"}`), "tool_choice", "built-in tool"},
		{"strict tool", tool(`{"type":"function","name":"f","strict":true,"parameters":{"$dynamicRef":"#a","$defs":{"a":{"$dynamicAnchor":"a"}}}}`), "tools", `"$dynamicRef"`},
		{"unknown tool_choice", ask(`,"tool_choice":"any"`), "tool_choice", "must be"},
		{"tool without type", tool(`{"name":"f"}`), "tools[0].type", "no type"},
		{"MCP server", tool(`{"type":"mcp","server_label":"a","server_url":"https://x"}`), "tools[0].type", "MCP"},
		{"tool without name", tool(`{"type":"function"}`), "tools[0].name", "no name"},
		{"tool parameters", tool(`{"type":"function","name":"f","parameters":[]}`), "tools[0].parameters", "object"},
		{"custom format", tool(`{"type":"custom","name":"f","format":"text"}`), "tools[0].format", "an object"},
		{"namespace without name", tool(`{"type":"namespace","tools":[]}`), "tools[0].name", "no name"},
		{"namespace without tools", tool(`{"type":"namespace","name":"a"}`), "tools[0].tools", "an array"},
		{"tool of a namespace", tool(`{"type":"namespace","name":"a","tools":[{"type":"function"}]}`), "tools[0].tools[0].name", "no name"},
		{"two namespaces", tool(`{"type":"namespace","name":"a.b","tools":[{"type":"function","name":"f"}]},{"type":"namespace","name":"a b","tools":[{"type":"function","name":"f"}]}`), "tools", "Two tool namespaces"},
		{"tools with one name", tool(`{"type":"function","name":"a.b"},{"type":"custom","name":"a b"}`), "tools", "Two tools"},
		{"many tools", tool(strings.Repeat(`{"type":"function","name":"f"},`, turn.DefaultLimits().Tools) + `{}`), "tools", "More than 512"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := (&API{}).decode([]byte(c.body), apitest.NewContext())
			if err == nil {
				t.Fatal("accepted")
			}
			if err.Status != 400 || err.Param != c.param || !strings.Contains(err.Message, c.message) {
				t.Errorf("got %d, param %q, %q; want param %q, %q", err.Status, err.Param, err.Message, c.param, c.message)
			}
		})
	}
}

func manyMembers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	return strings.Join(list, ",")
}

func TestDecodeMaps(t *testing.T) {
	t.Parallel()
	got := mustDecode(t, ask(`,"max_output_tokens":7.0,"temperature":0.5,"top_p":0.9,"top_k":40,"frequency_penalty":-1,"presence_penalty":1,
		"seed":-5,"cache_salt":"s","priority":-2,"background":false,"top_logprobs":0,"tool_choice":null,"reasoning":null,"conversation":null`)).Engine()
	number := func(f float64) *float64 { return &f }
	seed, topK, priority := int64(-5), 40, -2
	want := &engine.Request{
		ID: engine.CallID{Unique: "5feceb66", Number: 1, Request: "resp_req-1"}, Model: "gpt-oss-20b", Prompt: got.Prompt, N: 1, MaxTokens: 7, Temperature: number(0.5), TopP: number(0.9), TopK: &topK,
		FrequencyPenalty: number(-1), PresencePenalty: number(1), Seed: &seed, CacheSalt: "s", Priority: &priority, Whole: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestEcho shows what a response object repeats of its request.
func TestEcho(t *testing.T) {
	t.Parallel()
	r := reply(t, `,"instructions":"Be \"brief\".","tool_choice":"none","parallel_tool_calls":false,"max_tool_calls":3,"max_output_tokens":50,"truncation":"auto",
		"reasoning":{"effort":"minimal","summary":"detailed"},"text":{"verbosity":"high"},"temperature":0,"top_p":1e-1,"frequency_penalty":0.25,"presence_penalty":-2,
		"metadata":{"a" : "b\u2028"},"safety_identifier":"s","prompt_cache_key":"k"`+mixedTools, "<|channel|>final<|message|>x<|return|>", "stop")
	for field, want := range map[string]string{
		"instructions": `"Be \"brief\"."`, "tool_choice": `"none"`, "parallel_tool_calls": `false`, "max_tool_calls": `3`, "max_output_tokens": `50`,
		"truncation": `"auto"`, "reasoning": `{"effort":"minimal","summary":"detailed"}`, "text": `{"format":{"type":"text"},"verbosity":"high"}`,
		"temperature": `0`, "top_p": `0.1`, "frequency_penalty": `0.25`, "presence_penalty": `-2`, "metadata": `{"a":"b\u2028"}`,
		"safety_identifier": `"s"`, "prompt_cache_key": `"k"`, "tools.#": "4", "tools.0.strict": "null", "tools.0.description": "null",
		"tools.1": `{"type":"custom","name":"apply_patch","description":"Edit files."}`, "tools.2.tools.0.strict": "false",
	} {
		if got := r.Get(field).Raw; got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
}

func TestIgnored(t *testing.T) {
	t.Parallel()
	body := `{"model":"m","user":"u","service_tier":"flex","made_up":{"a":1},"client_metadata":{},"metadata":null,"input":[{"role":"user","id":"x","made_up":1,"content":"Hi"}],
		"include":["reasoning.encrypted_content"],"text":{"verbosity":"low"},"reasoning":{"context":"x"},
		"tools":[{"type":"function","name":"f","strict":true},{"type":"function","name":"g","strict":false},{"type":"web_search"},{"type":"code_interpreter"},
		{"type":"custom","name":"c","format":{"type":"grammar","syntax":"regex","definition":"(?=x)"}}]}`
	want := []string{
		"user", "service_tier", "made_up", "client_metadata", "include.reasoning.encrypted_content", "reasoning.context",
		"tools.web_search", "tools.code_interpreter", "tools.format", "input.made_up",
	}
	if diff := cmp.Diff(want, mustDecode(t, body).Ignored()); diff != "" {
		t.Error(diff)
	}
}

// TestPhases shows how texts of the assistant without a phase are read.
func TestPhases(t *testing.T) {
	t.Parallel()
	const (
		user   = `{"role":"user","content":"u"}`
		text   = `{"role":"assistant","content":"t"}`
		reason = `{"type":"reasoning","summary":[{"type":"summary_text","text":"r"}]}`
		call   = `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`
		result = `{"type":"function_call_output","call_id":"a","output":"o"}`
	)
	for _, c := range []struct{ items, want string }{
		{user + "," + text, "final"},
		{text + "," + user, "final"},
		{user + "," + text + "," + call + "," + result, "commentary"},
		{user + "," + text + "," + reason + "," + call + "," + result, "commentary"},
		{user + "," + call + "," + result + "," + text, "final"},
		{user + "," + text + "," + user + "," + call + "," + result, "final"},
		{user + `,{"role":"assistant","phase":"final_answer","content":"t"},` + call + "," + result, "final"},
		{user + `,{"role":"assistant","phase":"commentary","content":"t"}`, "commentary"},
	} {
		prompt := apitest.Spell(t, mustDecode(t, askItems(c.items)).Engine().Prompt)
		if !strings.Contains(prompt, "<|start|>assistant<|channel|>"+c.want+"<|message|>t<|end|>") {
			t.Errorf("%s: text is not on channel %s:\n%s", c.items, c.want, prompt)
		}
	}
}

func TestContext(t *testing.T) {
	t.Parallel()
	list := make([]string, 20)
	for i := range list {
		list[i] = fmt.Sprintf(`{"role":"user","content":"question %d"},{"type":"function_call","call_id":"c%d","name":"f"},{"type":"function_call_output","call_id":"c%d","output":"o"},{"role":"assistant","content":"answer %d"}`, i, i, i, i)
	}
	turns := `{"role":"developer","content":"rules"},` + strings.Join(list, ",") +
		`,{"role":"system","content":"more rules"},{"role":"user","content":"context"},{"role":"user","content":"the last question"}`
	rc := apitest.NewContext()
	rc.Model.ContextLength = 600
	_, err := (&API{}).decode([]byte(askItems(turns)), rc)
	if err == nil || err.Code != "context_length_exceeded" || err.Status != 400 || err.Param != "input" {
		t.Fatalf("a conversation beyond the context: %v", err)
	}
	request, err := (&API{}).decode([]byte(apitest.With(t, askItems(turns), "truncation", "auto")), rc)
	if err != nil {
		t.Fatal(err)
	}
	prompt := apitest.Spell(t, request.Engine().Prompt)
	for _, part := range []string{"rules", "more rules", "context", "the last question", "answer 19"} {
		if !strings.Contains(prompt, part) {
			t.Errorf("%q is dropped", part)
		}
	}
	if strings.Contains(prompt, "question 0") || !strings.Contains(prompt, "more rules<|end|><|start|>user<|message|>context") {
		t.Errorf("not the oldest turns are dropped:\n%s", prompt)
	}
	if n := strings.Count(prompt, "question "); n != strings.Count(prompt, "answer ") || len(request.Engine().Prompt) > 600-600/8 {
		t.Errorf("turns are not dropped whole:\n%s", prompt)
	}
	rc.Model.ContextLength = 60
	if _, err = (&API{}).decode([]byte(apitest.With(t, askItems(turns), "truncation", "auto")), rc); err == nil {
		t.Error("a last turn beyond the context is accepted")
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	const part = `[{"type":"input_image","image_url":"https://x"}]`
	user := askItems(`{"role":"user","content":` + part + `}`)
	tool := askItems(`{"type":"function_call","call_id":"a","name":"f"},{"type":"function_call_output","call_id":"a","output":` + part + `}`)
	testAPI.Images(t, user, "input[0].content[0]", tool)
}

// TestSpecialText shows that text which spells control tokens stays text,
// wherever a request can have text.
func TestSpecialText(t *testing.T) {
	t.Parallel()
	// system, two developers, user, analysis, preamble, two calls, two results, and the reply's start
	want := map[harmony.Token]int{harmony.TokenStart: 11, harmony.TokenMessage: 10, harmony.TokenEnd: 8, harmony.TokenCall: 2, harmony.TokenChannel: 6}
	testAPI.SpecialText(t, func(evil string) string {
		return `{"model":"m","instructions":` + evil + `,"input":[{"role":"system","content":` + evil + `},{"role":"user","content":[{"type":"input_text","text":` + evil + `}]},
		{"type":"reasoning","content":[{"type":"reasoning_text","text":` + evil + `}]},{"role":"assistant","content":` + evil + `},
		{"type":"function_call","call_id":` + evil + `,"namespace":` + evil + `,"name":` + evil + `,"arguments":` + evil + `},
		{"type":"custom_tool_call","call_id":"b","name":` + evil + `,"input":` + evil + `},
		{"type":"function_call_output","call_id":` + evil + `,"output":` + evil + `},{"type":"custom_tool_call_output","call_id":"b","output":` + evil + `}],
		"tools":[{"type":"function","name":` + evil + `,"description":` + evil + `,"parameters":{"type":"object","properties":{` + evil + `:{"description":` + evil + `}}}},
		{"type":"namespace","name":` + evil + `,"description":` + evil + `,"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":` + evil + `,"definition":` + evil + `}}]}]}`
	}, want)
}
