package chat

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// largeTools returns strict tools with a schema of 200 KB each.
func largeTools(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = `{"type":"function","function":{"name":"f` + strconv.Itoa(i) + `","strict":true,"parameters":{"description":"` + strings.Repeat("a", 200_000) + `"}}}`
	}
	return strings.Join(list, ",")
}

func TestDecodeRejects(t *testing.T) {
	t.Parallel()
	const user = `{"role":"user","content":"Hi"}`
	messages := func(list string) string { return `{"model":"m","messages":[` + list + `]}` }
	call := func(id string) string {
		return `{"role":"assistant","tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	}
	tool := func(list string) string { return ask(`,"tools":[` + list + `]`) }
	for _, c := range []struct{ name, body, param, message string }{
		{"not JSON", `{`, "", "not valid JSON"},
		{"not an object", `[]`, "", "JSON object"},
		{"not UTF-8", "{\"model\":\"\xff\"}", "", "UTF-8"},
		{"deep", strings.Repeat("[", 1<<20), "", "levels deep"},
		{"twice", `{"model":"a","model":"b"}`, "model", "more than once"},
		{"no model", `{"messages":[` + user + `]}`, "model", "missing"},
		{"null model", `{"model":null,"messages":[` + user + `]}`, "model", "missing"},
		{"model of a wrong type", `{"model":1}`, "model", "must be a string"},
		{"long model", `{"model":"` + strings.Repeat("m", 257) + `"}`, "model", "longer than 256"},
		{"long call id", messages(call(strings.Repeat("a", 257))), "messages[0].tool_calls[0]", "longer than 256"},
		{"no messages", `{"model":"m"}`, "messages", "at least one"},
		{"empty messages", messages(``), "messages", "at least one"},
		{"messages of a wrong type", `{"model":"m","messages":"Hi"}`, "messages", "an array"},
		{"null message", messages(`null`), "messages[0]", "an object"},
		{"no role", messages(`{"content":"Hi"}`), "messages[0].role", "no role"},
		{"unknown role", messages(`{"role":"critic","content":"Hi"}`), "messages[0].role", "must be system"},
		{"no content", messages(`{"role":"user","content":null}`), "messages[0].content", "no content"},
		{"content of a wrong type", messages(`{"role":"user","content":7}`), "messages[0].content", "must be a string"},
		{"unknown part", messages(`{"role":"user","content":[{"type":"input_audio"}]}`), "messages[0].content[0].type", "parts"},
		{"part without text", messages(`{"role":"user","content":[{"type":"text"}]}`), "messages[0].content[0].text", "must be a string"},
		{"empty assistant", messages(user + `,{"role":"assistant"}`), "messages[1]", "neither"},
		{"calls of the user", messages(`{"role":"user","content":"Hi","tool_calls":[{"id":"a","function":{"name":"f"}}]}`), "messages[0].tool_calls", "Only assistant"},
		{"legacy call without name", messages(user + `,{"role":"assistant","function_call":{"arguments":"{}"}}`), "messages[1].function_call.name", "no name"},
		{"legacy call of the user", messages(`{"role":"user","content":"Hi","function_call":{"name":"f"}}`), "messages[0].tool_calls", "Only assistant"},
		{"legacy result without call", messages(user + `,{"role":"function","name":"f","content":"x"}`), "messages[1].name", "No function_call"},
		{"legacy result of another", messages(user + `,{"role":"assistant","function_call":{"name":"f"}},{"role":"function","name":"g","content":"x"}`), "messages[2].name", "No function_call"},
		{"two legacy results", messages(user + `,{"role":"assistant","function_call":{"name":"f"}},{"role":"function","name":"f","content":"x"},{"role":"function","name":"f","content":"x"}`), "messages[3].name", "No function_call"},
		{"call without id", messages(`{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}`), "messages[0].tool_calls[0].id", "no id"},
		{"call without name", messages(`{"role":"assistant","tool_calls":[{"id":"a"}]}`), "messages[0].tool_calls[0].function.name", "no function name"},
		{"call of another type", messages(`{"role":"assistant","tool_calls":[{"id":"a","type":"mcp"}]}`), "messages[0].tool_calls[0].type", "function"},
		{"custom call without name", messages(`{"role":"assistant","tool_calls":[{"id":"a","type":"custom","custom":{"input":"x"}}]}`), "messages[0].tool_calls[0].custom.name", "no function name"},
		{"call without output", messages(user + "," + call("a")), "messages[1].tool_calls[0]", `"a" has no output`},
		{"calls without outputs", messages(user + "," + call("a") + "," + call("b") + `,{"role":"tool","tool_call_id":"b","content":"x"},` + call("c") + "," + call("d")), "messages[1].tool_calls[0]", `The tool calls with the ids "a", "c" and "d" have no outputs.`},
		{"outputs without calls", messages(user + `,{"role":"tool","tool_call_id":"a","content":"x"},{"role":"tool","tool_call_id":"b","content":"x"},` + user), "messages[1]", `ids "a" and "b"`},
		{"tools of one name", tool(`{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g h"}},{"type":"function","function":{"name":"g_h"}}`), "tools", `names "f" and "g_h"`},
		{"calls with one id", messages(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"a","function":{"name":"g"}}]}`), "messages[0].tool_calls[1]", `id "a"`},
		{"output without call", messages(user + `,{"role":"tool","tool_call_id":"b","content":"x"}`), "messages[1]", `id "b"`},
		{"two outputs", messages(call("a") + `,{"role":"tool","tool_call_id":"a","content":"x"},{"role":"tool","tool_call_id":"a","content":"x"}`), "messages[2]", `id "a"`},
		{"output without id", messages(`{"role":"tool","content":"x"}`), "messages[0].tool_call_id", "no tool_call_id"},

		{"logprobs of a wrong type", ask(`,"logprobs":2`), "logprobs", "a boolean"},
		{"top_logprobs alone", ask(`,"top_logprobs":2`), "top_logprobs", "logprobs: true"},
		{"many top_logprobs", ask(`,"logprobs":true,"top_logprobs":21`), "top_logprobs", "between 0 and 20"},
		{"logprobs of the prompt", ask(`,"prompt_logprobs":2`), "prompt_logprobs", "are not supported"},
		{"ignore_eos", ask(`,"ignore_eos":true`), "ignore_eos", "Send max_completion_tokens"},
		{"format", ask(`,"response_format":{"type":"xml"}`), "response_format", "must be text"},
		{"format of a wrong type", ask(`,"response_format":"json"`), "response_format", "must be text"},
		{"json_schema without one", ask(`,"response_format":{"type":"json_schema"}`), "response_format.json_schema", "an object"},
		{"format without name", ask(`,"response_format":{"type":"json_schema","json_schema":{"schema":{}}}`), "response_format.json_schema", "no name"},
		{"format without schema", ask(`,"response_format":{"type":"json_schema","json_schema":{"name":"a"}}`), "response_format.json_schema", "no schema"},
		{"schema of a format", ask(`,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"$ref":"#"}}}`), "response_format.json_schema", "leads back"},
		{"deep schema", ask(`,"guided_json":"` + strings.Repeat("[", 100) + `"`), "guided_json", "levels deep"},
		{"large schema", ask(`,"guided_json":"` + strings.Repeat(" ", 300<<10) + `"`), "guided_json", "larger than"},
		{"guided_json of a wrong type", ask(`,"guided_json":[]`), "guided_json", "JSON Schema"},
		{"two formats", ask(`,"response_format":{"type":"json_object"},"guided_regex":"a"`), "guided_regex", "more than one"},
		{"regex", ask(`,"guided_regex":"(?=a)"`), "guided_regex", "lookaround"},
		{"choice", ask(`,"guided_choice":[]`), "guided_choice", "is empty"},
		{"choice of a wrong type", ask(`,"guided_choice":[1]`), "guided_choice[0]", "a string"},
		{"grammar", ask(`,"ebnf":"root ::= Token(200002)"`), "ebnf", "macro"},
		{"structural tag", ask(`,"structural_tag":"{}"`), "structural_tag", "not for clients"},
		{"structural tag inside", ask(`,"structured_outputs":{"structural_tag":"{}"}`), "structured_outputs.structural_tag", "not for clients"},
		{"continued", `{"model":"m","messages":[` + user + `,{"role":"assistant","content":"a"}],"continue_final_message":true,"response_format":{"type":"json_object"}}`, "continue_final_message", "cannot be continued"},
		{"tools and functions", ask(`,"functions":[{"name":"f"}],"tools":[{"type":"function","function":{"name":"g"}}]`), "functions", "Send all of them in tools"},
		{"functions and tools", ask(`,"tools":[{"type":"function","function":{"name":"g"}}],"functions":[{"name":"f"}]`), "functions", "Send all of them in tools"},
		{"function without name", ask(`,"functions":[{}]`), "functions[0].name", "no name"},
		{"function_call of tools", ask(`,"function_call":"required"`), "function_call", "none, auto"},
		{"function_call without a name", ask(`,"functions":[{"name":"f"}],"function_call":{}`), "function_call.name", "string"},
		{"custom tool of no form", tool(`{"type":"custom","custom":{"name":"c","format":{"type":"json"}}}`), "tools[0].custom.format.type", "text or grammar"},
		{"custom tool without grammar", tool(`{"type":"custom","custom":{"name":"c","format":{"type":"grammar"}}}`), "tools[0].custom.format.grammar", "definition and syntax"},
		{"custom tool with a definition of a wrong type", tool(`{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"syntax":"regex","definition":7}}}}`), "tools[0].custom.format.grammar.definition", "no string"},
		{"custom tool without syntax", tool(`{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"definition":"a"}}}}`), "tools[0].custom.format.grammar.syntax", "missing"},
		{"custom tool with a wrong grammar", tool(`{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"syntax":"regex","definition":"("}}}}`), "tools[0].custom.format.grammar.definition", "regular expression"},
		{"audio", ask(`,"modalities":["text","audio"]`), "modalities", "text"},
		{"required without tools", ask(`,"tool_choice":"required"`), "tool_choice", "no tools"},
		{"unknown tool", ask(weatherTool + `,"tool_choice":{"type":"function","function":{"name":"f"}}`), "tool_choice", "not one of the tools"},
		{"choice without name", ask(weatherTool + `,"tool_choice":{"type":"function"}`), "tool_choice.function.name", "a string"},
		{"choice of a wrong type", ask(weatherTool + `,"tool_choice":{"type":"web_search"}`), "tool_choice", "must be"},
		{"allowed tools", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools"}`), "tool_choice.allowed_tools", "an object"},
		{"mode of allowed tools", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"none","tools":[]}}`), "tool_choice.allowed_tools.mode", "auto or required"},
		{"required of no tools", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}`), "tool_choice.allowed_tools.tools", "no tools"},
		{"no allowed tools", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`), "tool_choice.allowed_tools.tools", "no tools"},
		{"allowed tools that are missing", ask(weatherTool + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}`), "tool_choice.allowed_tools.tools", "no tools"},
		{"large strict tools", tool(largeTools(3)), "tools", "524288 bytes in total"},
		{"strict tool", tool(`{"type":"function","function":{"name":"f","strict":true,"parameters":{"$dynamicRef":"#a","$defs":{"a":{"$dynamicAnchor":"a"}}}}}`), "tools", `"$dynamicRef"`},
		{"unknown tool_choice", ask(`,"tool_choice":"any"`), "tool_choice", "must be"},
		{"effort", ask(`,"reasoning_effort":"most"`), "reasoning_effort", "one of"},
		{"n", ask(`,"n":17`), "n", "between 1 and 16"},
		{"n 0", ask(`,"n":0`), "n", "between"},
		{"half a choice", ask(`,"n":1.5`), "n", "an integer"},
		{"temperature", ask(`,"temperature":2.1`), "temperature", "between 0 and 2"},
		{"temperature of a wrong type", ask(`,"temperature":"1"`), "temperature", "a number"},
		{"repetition_penalty", ask(`,"repetition_penalty":0`), "repetition_penalty", "greater than 0"},
		{"max_tokens", ask(`,"max_tokens":0`), "max_tokens", "between"},
		{"min_tokens", ask(`,"max_tokens":3,"min_tokens":4`), "min_tokens", "larger"},
		{"logit_bias id", ask(`,"logit_bias":{"x":1}`), "logit_bias", "token ids"},
		{"logit_bias value", ask(`,"logit_bias":{"5":101}`), "logit_bias", "numbers from -100 to 100"},
		{"empty stop", ask(`,"stop":["a",""]`), "stop[1]", "empty"},
		{"stop of a wrong type", ask(`,"stop":{}`), "stop", "a string or an array"},
		{"many stops", ask(`,"stop":[` + strings.Repeat(`"a",`, 64) + `"a"]`), "stop", "more than 64"},
		{"stop token", ask(`,"stop_token_ids":[201088]`), "stop_token_ids[0]", "between"},
		{"stream options without stream", ask(`,"stream_options":{"include_usage":true}`), "stream_options", "only for streams"},
		{"ids of hidden reasoning", ask(`,"return_token_ids":true,"include_reasoning":false`), "return_token_ids", "hides"},
		{"continue a user", ask(`,"continue_final_message":true`), "continue_final_message", "assistant"},
		{"two ways to go on", `{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"}],"continue_final_message":true,"add_generation_prompt":true}`, "add_generation_prompt", "Leave it out"},
		{"empty cache_salt", ask(`,"cache_salt":""`), "cache_salt", "is empty"},
		{"no generation prompt", ask(`,"add_generation_prompt":false`), "add_generation_prompt", "continue_final_message"},

		{"tool type", tool(`{"type":"mcp","mcp":{}}`), "tools[0].type", "function"},
		{"custom tool without name", tool(`{"type":"custom","custom":{}}`), "tools[0].custom.name", "no name"},
		{"tool without function", tool(`{"type":"function"}`), "tools[0]", "no field"},
		{"tool without name", tool(`{"type":"function","function":{}}`), "tools[0].function.name", "no name"},
		{"tool parameters", tool(`{"type":"function","function":{"name":"f","parameters":[]}}`), "tools[0].function.parameters", "object"},
		{"tools with one name", tool(`{"type":"function","function":{"name":"a.b"}},{"type":"function","function":{"name":"a b"}}`), "tools", "Two tools"},
		{"many tools", tool(strings.Repeat(`{"type":"function","function":{"name":"f"}},`, turn.DefaultLimits().Tools) + `{}`), "tools", "more than 512"},
		{"deep schema", tool(`{"type":"function","function":{"name":"f","parameters":` + strings.Repeat(`{"a":`, 65) + `1` + strings.Repeat(`}`, 65) + `}}`), "tools", "levels deep"},
		{"large schema", tool(`{"type":"function","function":{"name":"f","parameters":{"a":"` + strings.Repeat("x", 256<<10) + `"}}}`), "tools", "larger"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Decode(context.Background(), []byte(c.body), apitest.NewContext())
			if err == nil {
				t.Fatal("accepted")
			}
			if err.Status != 400 || err.Param != c.param || !strings.Contains(err.Message, c.message) {
				t.Errorf("got %d, param %q, %q; want param %q, %q", err.Status, err.Param, err.Message, c.param, c.message)
			}
		})
	}
}

// TestErrorsKeepSecrets shows that errors, which are logged, contain no text of the
// client, not even names.
func TestErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	const secret = "my secret prompt"
	twice := `"` + secret + `":1,"` + secret + `":2`
	for _, c := range []struct{ body, param string }{
		{`{` + twice + `}`, ""},
		{`{"model":"m","messages":[{` + twice + `}]}`, "messages[0]"},
		{`{"model":"m","messages":[{"role":"` + secret + `","content":""}]}`, "messages[0].role"},
		{ask(`,"tools":[{"type":"function","function":{` + twice + `}}]`), "tools[0].function"},
		{ask(`,"stream":true,"stream_options":{` + twice + `}`), "stream_options"},
		{ask(`,"logit_bias":{"` + secret + `":1}`), "logit_bias"},
		{ask(`,"logit_bias":{"12345":"` + secret + `"}`), "logit_bias"},
		{ask(`,"logit_bias":{"12345":1,"12345":2}`), "logit_bias"},
	} {
		_, err := Decode(context.Background(), []byte(c.body), apitest.NewContext())
		if err == nil || err.Param != c.param || strings.Contains(err.Message, secret) || strings.Contains(err.Message, "12345") {
			t.Errorf("%s: %v, param %q", c.body, err, err.Param)
		}
	}
}

// TestDecodeKeepsNoBody measures the memory of large requests that wait for their
// replies.
func TestDecodeKeepsNoBody(t *testing.T) {
	const size, count = 4 << 20, 4
	body := []byte(ask(weatherTool + `,"stop":["s"],"stop_token_ids":[1],"logit_bias":{"1":2},"cache_salt":"salt","mine":1,"user":"` + strings.Repeat("x", size) + `"`))
	calls := make([]*Request, 0, count)
	before := heap()
	for range count {
		request, err := Decode(context.Background(), body, apitest.NewContext())
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, request)
	}
	if kept := heap() - before; kept > size {
		t.Errorf("%d calls keep %d bytes", count, kept)
	}
	runtime.KeepAlive(calls)
	runtime.KeepAlive(body)
}

// heap returns how many bytes are reachable.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestDecodeMaps(t *testing.T) {
	t.Parallel()
	got := mustDecode(t, ask(`,"n":2,"max_tokens":5,"max_completion_tokens":7.0,"min_tokens":3,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,
		"frequency_penalty":-1,"presence_penalty":1,"repetition_penalty":1.1,"seed":-5,"logit_bias":{"13":-100},"cache_salt":"s","priority":-2,
		"stop_token_ids":[13,200007],"logprobs":false,"top_logprobs":null,"tool_choice":null,"response_format":{"type":"text"}`)).Engine()
	prompt := got.Prompt
	number := func(f float64) *float64 { return &f }
	seed, topK, priority := int64(-5), 40, -2
	want := &engine.Request{
		ID: engine.CallID{Unique: "5feceb66", Number: 1, Request: "chatcmpl-req-1"}, Model: "gpt-oss-20b", Prompt: prompt, N: 2, MaxTokens: 7, MinTokens: 3,
		Temperature: number(0.5), TopP: number(0.9), TopK: &topK, MinP: number(0.1), FrequencyPenalty: number(-1), PresencePenalty: number(1),
		RepetitionPenalty: number(1.1), Seed: &seed, LogitBias: map[harmony.Token]float64{13: -100}, CacheSalt: "s", Priority: &priority,
		StopTokens: []harmony.Token{13, 200007}, Whole: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := mustDecode(t, ask(`,"logprobs":true,"top_logprobs":20`)).Engine(); !got.Logprobs || got.TopLogprobs != 20 {
		t.Errorf("logprobs %v, top %d", got.Logprobs, got.TopLogprobs)
	}
}

func TestMaxTokens(t *testing.T) {
	t.Parallel()
	rc := apitest.NewContext()
	rc.Model.ContextLength = 100
	for _, c := range []struct{ members, want string }{
		{``, "left"},
		{`,"max_tokens":10`, "10"},
		{`,"max_completion_tokens":1000`, "left"},
	} {
		request := decodeWith(t, rc, ask(c.members))
		left := strconv.Itoa(100 - len(request.Engine().Prompt))
		if got := strconv.Itoa(request.Engine().MaxTokens); got != strings.Replace(c.want, "left", left, 1) {
			t.Errorf("%s: MaxTokens = %s, want %s", c.members, got, c.want)
		}
	}
	rc.Model.ContextLength = 20
	_, err := Decode(context.Background(), []byte(ask(``)), rc)
	if err == nil || err.Code != "context_length_exceeded" || err.Status != 400 {
		t.Errorf("a prompt beyond the context: %v", err)
	}
}

func TestIgnored(t *testing.T) {
	t.Parallel()
	body := `{"model":"m","user":"u","store":true,"made_up":{"a":1},"a\r\nb, ö":1,"metadata":null,
		"messages":[{"role":"user","name":"bob","content":"Hi"},{"role":"user","name":"eve","content":"Hi"}],
		"tools":[{"type":"function","function":{"name":"f","strict":true}},{"type":"function","function":{"name":"g","strict":false}}]}`
	want := []string{"user", "store", "made_up", "a??b???", "messages.name"}
	if diff := cmp.Diff(want, mustDecode(t, body).Ignored()); diff != "" {
		t.Error(diff)
	}
}

// Fields of nested objects that have no effect are listed as those of the request are.
func TestNestedIgnored(t *testing.T) {
	t.Parallel()
	const tools = `,"tools":[{"type":"function","function":{"name":"f"}}]`
	for _, c := range []struct {
		name, fields, content string
		want                  []string
	}{
		{"a text part", ``, `[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"},"annotations":null},{"type":"text","text":"you","cache_control":{}}]`, []string{"messages.content.cache_control"}},
		{"an image", ``, `[{"type":"image_url","image_url":{"url":"https://x","detail":"high"},"id":"i"}]`, []string{"messages.content.id", "messages.content.image_url.detail"}},
		{"a text format", `,"response_format":{"type":"text","strict":true}`, `"Hi"`, []string{"response_format.strict"}},
		{"a JSON format", `,"response_format":{"type":"json_object","schema":{"type":"object"}}`, `"Hi"`, nil},
		{"a schema", `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"x":1},"y":1}`, `"Hi"`, []string{"response_format.y", "response_format.json_schema.x"}},
		{"a choice", tools + `,"tool_choice":{"type":"function","function":{"name":"f","strict":true},"mode":"x"}`, `"Hi"`, []string{"tool_choice.mode", "tool_choice.function.strict"}},
		{"allowed tools", tools + `,"tool_choice":{"type":"allowed_tools","x":1,"allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"},"z":1}],"y":1}}`, `"Hi"`, []string{"tool_choice.x", "tool_choice.allowed_tools.tools.z", "tool_choice.allowed_tools.y"}},
		{"a stream", `,"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":true}`, `"Hi"`, []string{"stream_options.include_obfuscation"}},
	} {
		body := `{"model":"m","messages":[{"role":"user","content":` + c.content + `}]` + c.fields + `}`
		if diff := cmp.Diff(c.want, mustDecode(t, body).Ignored()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	const part = `[{"type":"image_url","image_url":{"url":"https://x"}}]`
	user := `{"model":"m","messages":[{"role":"user","content":` + part + `}]}`
	tool := `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}}]},{"role":"tool","tool_call_id":"a","content":` + part + `}]}`
	testAPI.Images(t, user, "messages[0].content[0]", tool)
}

// TestSpecialText shows that texts which spell control tokens remain texts, in all
// fields with texts.
func TestSpecialText(t *testing.T) {
	t.Parallel()
	// system, developer, user, analysis, preamble, call, result, and the reply's start
	want := map[harmony.Token]int{harmony.TokenStart: 8, harmony.TokenMessage: 7, harmony.TokenEnd: 6, harmony.TokenCall: 1, harmony.TokenChannel: 4}
	testAPI.SpecialText(t, func(evil string) string {
		return `{"model":"m","messages":[{"role":"system","content":` + evil + `},{"role":"user","content":[{"type":"text","text":` + evil + `}]},
		{"role":"assistant","content":` + evil + `,"reasoning":` + evil + `,"tool_calls":[{"id":` + evil + `,"function":{"name":` + evil + `,"arguments":` + evil + `}}]},
		{"role":"tool","tool_call_id":` + evil + `,"content":` + evil + `}],
		"tools":[{"type":"function","function":{"name":` + evil + `,"description":` + evil + `,"parameters":{"type":"object","properties":{` + evil + `:{"description":` + evil + `,"default":` + evil + `}}}}}]}`
	}, want)
}

// objects are the tables of the objects of a request, by their paths.
var objects = apitest.Objects(Fields())

// TestCompatibilityTable compares docs/compatibility.md with the decoder.
func TestCompatibilityTable(t *testing.T) {
	t.Parallel()
	const endpoint = "POST /v1/chat/completions"
	apitest.Documented(t, endpoint, "", objects[""])
	apitest.Documented(t, endpoint, "Messages", objects["messages"])
	apitest.Documented(t, endpoint, "Tools", objects["tools.function"])
	apitest.Documented(t, endpoint, "Members", objects.Below("messages", "tools.function"))
}
