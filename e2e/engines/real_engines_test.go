//go:build engines

package engines

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Settings with which e2e/engines/run.sh starts the engines.
const (
	tinyModel   = "gpt-oss-tiny"
	tinyContext = 8192
	tinyDate    = "2026-11-21" // the engine's current date
)

// realEngine is an engine that e2e/engines/run.sh has started.
type realEngine struct {
	kind string
	url  string
	// running returns the number of requests that the engine processes.
	running func(*testing.T, realEngine) int
	// textless says that the engine has no tokenizer, and so neither grammars nor min_tokens.
	textless bool
}

// engineAt returns the engine whose URL run.sh has stored in a variable.
func engineAt(t *testing.T, variable, kind string, running func(*testing.T, realEngine) int) realEngine {
	t.Helper()
	url := os.Getenv(variable)
	if url == "" {
		t.Fatalf("%s is not set: run make test-engines, or set it to the URL of an engine that e2e/engines/run.sh serves", variable)
	}
	return realEngine{kind: kind, url: url, running: running}
}

// startReal starts a data plane with real engines at one address. Each has two
// models: one with a configured context length, and one whose context length the
// engine reports.
func startReal(t *testing.T, engines ...realEngine) *stack.Dataplane {
	t.Helper()
	return stack.Start(t, stack.Options{SimURL: engines[0].url, Config: func(c *config.Config) {
		c.Date, c.Engines, c.Models = tinyDate, nil, nil
		for _, e := range engines {
			c.Engines = append(c.Engines, config.Engine{Kind: e.kind, URLs: []string{e.url}})
			c.Models = append(
				c.Models,
				config.Model{Match: "=" + stack.ModelOf(e.kind), Engine: e.kind, UpstreamModel: tinyModel, ContextLength: tinyContext},
				config.Model{Match: "=" + stack.ModelOf(e.kind) + "-unknown", Engine: e.kind, UpstreamModel: tinyModel},
				config.Model{Match: "=" + stack.ModelOf(e.kind) + "-retry", Engine: e.kind, UpstreamModel: tinyModel, ContextLength: tinyContext, ToolArguments: turn.ArgumentsRetry},
				config.Model{Match: "=" + stack.ModelOf(e.kind) + "-canonical", Engine: e.kind, UpstreamModel: tinyModel, ContextLength: tinyContext, History: turn.HistoryCanonical},
			)
		}
	}})
}

// metric reads a number from the engine's GET /metrics.
func metric(name string) func(*testing.T, realEngine) int {
	return func(t *testing.T, e realEngine) int {
		t.Helper()
		line := metricLine(t, e, name)
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
}

// metricLine returns the line of a metric in the engine's GET /metrics.
func metricLine(t *testing.T, e realEngine, name string) string {
	t.Helper()
	resp := get(t, e, "/metrics")
	defer resp.Body.Close()

	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			return line
		}
	}

	t.Fatalf("the engine has no metric %s", name)
	return ""
}

// direct asks engines themselves, of which tests keep no connections.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func get(t *testing.T, e realEngine, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := direct.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// cacheBlock returns how many tokens a block of vLLM's prefix cache has.
func cacheBlock(t *testing.T, e realEngine) int {
	t.Helper()
	line := metricLine(t, e, "vllm:cache_config_info")
	_, rest, _ := strings.Cut(line, `block_size="`)
	size, _, _ := strings.Cut(rest, `"`)
	n, err := strconv.Atoi(size)
	if err != nil {
		t.Fatalf("no size of blocks: %s", line)
	}
	return n
}

// grpcLoad requests num_running_reqs from GetLoads, which has the same fields in vLLM's service and in SGLang's.
func grpcLoad(t *testing.T, e realEngine) int {
	t.Helper()
	method := "/vllm.grpc.engine.VllmEngine/GetLoads"
	if e.kind == "sglang-grpc" {
		method = "/sglang.grpc.scheduler.SglangScheduler/GetLoads"
	}

	conn, err := grpc.NewClient(strings.TrimPrefix(e.url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()

	var reply emptypb.Empty // all fields are unknown
	if err := conn.Invoke(t.Context(), method, &emptypb.Empty{}, &reply); err != nil {
		t.Fatal(err)
	}

	const loads, runningRequests = 4, 2
	n := 0
	protoFields(t, reply.ProtoReflect().GetUnknown(), func(number protowire.Number, _ uint64, message []byte) {
		if number == loads {
			protoFields(t, message, func(number protowire.Number, value uint64, _ []byte) {
				if number == runningRequests {
					n += int(value)
				}
			})
		}
	})
	return n
}

// sglangLoad requests num_running_reqs from SGLang's GET /v1/loads. The metrics have it seconds later.
func sglangLoad(t *testing.T, e realEngine) int {
	t.Helper()
	resp := get(t, e, "/v1/loads")
	defer resp.Body.Close()

	running := gjson.Get(stack.ReadText(t, resp), "loads.#.num_running_reqs")
	if len(running.Array()) == 0 {
		t.Fatalf("%s: SGLang says nothing of its load", resp.Status)
	}
	n := 0
	for _, rank := range running.Array() {
		n += int(rank.Int())
	}
	return n
}

// protoFields calls each for the numbers and the messages in a protobuf message.
func protoFields(t *testing.T, b []byte, each func(protowire.Number, uint64, []byte)) {
	t.Helper()
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		switch kind {
		case protowire.VarintType:
			value, _ := protowire.ConsumeVarint(b[n:])
			each(number, value, nil)
		case protowire.BytesType:
			message, _ := protowire.ConsumeBytes(b[n:])
			each(number, 0, message)
		}
		b = b[n+size:]
	}
}

// A vLLM whose model plays the script of the last user message. Both its HTTP APIs
// give the same results.
func TestRealVLLM(t *testing.T) {
	for _, kind := range []string{"vllm", "vllm-generate"} {
		t.Run(kind, func(t *testing.T) {
			playScripts(t, engineAt(t, "ENGINE_TEST_VLLM", kind, metric("vllm:num_requests_running")))
		})
	}
}

func TestRealVLLMGRPC(t *testing.T) {
	playScripts(t, engineAt(t, "ENGINE_TEST_VLLM_GRPC", "vllm-grpc", grpcLoad))
}

// SGLang's events have all ids of the reply so far, which is its default, or only the new ones.
func TestRealSGLang(t *testing.T) {
	playScripts(t, engineAt(t, "ENGINE_TEST_SGLANG", "sglang", sglangLoad))
}

func TestRealSGLangIncremental(t *testing.T) {
	playScripts(t, engineAt(t, "ENGINE_TEST_SGLANG_INCREMENTAL", "sglang", sglangLoad))
}

func TestRealSGLangNoTokenizer(t *testing.T) {
	e := engineAt(t, "ENGINE_TEST_SGLANG_NO_TOKENIZER", "sglang", sglangLoad)
	e.textless = true
	playScripts(t, e)
}

func TestRealSGLangGRPC(t *testing.T) {
	playScripts(t, engineAt(t, "ENGINE_TEST_SGLANG_GRPC", "sglang-grpc", grpcLoad))
}

func playScripts(t *testing.T, e realEngine) {
	d := startReal(t, e)
	model := stack.ModelOf(e.kind)
	// First: a vLLM is asked for its models by paths without a model call, such as render. From then on its
	// length is known.
	t.Run("no limit", func(t *testing.T) { realNoLimit(t, d, model, e) })
	t.Run("chat", func(t *testing.T) { realChat(t, d, model, e) })
	t.Run("chat logprobs", func(t *testing.T) { realLogprobs(t, d, model) })
	t.Run("chat tool turns", func(t *testing.T) { realChatTurns(t, d, model) })
	t.Run("responses", func(t *testing.T) { realResponses(t, d, model) })
	t.Run("responses tool turns", func(t *testing.T) { realResponsesTurns(t, d, model) })
	t.Run("too long", func(t *testing.T) { realTooLong(t, d, model) })
	t.Run("reported limit", func(t *testing.T) { realReportedLimit(t, d, model, e) })
	t.Run("cached tokens", func(t *testing.T) { realCached(t, d, model) })
	switch e.kind { // the others have no cache_salt
	case "vllm", "vllm-generate":
		t.Run("cache diagnosis", func(t *testing.T) { d.DiagnosisIsExact(t, model, 0) })
	case "sglang": // which caches single tokens
		t.Run("cache diagnosis", func(t *testing.T) { d.DiagnosisIsExact(t, model, 1) })
	}
	t.Run("reasoning budget", func(t *testing.T) { realBudget(t, d, model, e) })
	t.Run("endless reasoning", func(t *testing.T) { endlessReasoning(t, d, model) })
	if e.textless {
		t.Run("grammars are refused", func(t *testing.T) { realRefused(t, d, model) })
	} else {
		t.Run("structured outputs", func(t *testing.T) { realStructuredOutputs(t, d, model) })
		t.Run("arguments asked for again", func(t *testing.T) { realAskedAgain(t, d, model) })
		t.Run("custom tool with a grammar", func(t *testing.T) { realToolGrammar(t, d, model) })
	}
	t.Run("disconnect", func(t *testing.T) { realDisconnect(t, d, model, e) })
	t.Run("cut after the request", func(t *testing.T) { realCut(t, e, "NOTHINK\nWORDS 100 30", "", wordsUpTo(100)) })
}

// wordsUpTo is the answer to a script's line "WORDS n".
func wordsUpTo(n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf("w%d", i+1)
	}
	return strings.Join(words, " ")
}

// TestRealDiagnosis compares the tokens that prompts share with what vLLM has of them in its
// cache, where it keeps the blocks of all layers alike.
func TestRealDiagnosis(t *testing.T) {
	e := engineAt(t, "ENGINE_TEST_VLLM_FLAT", "vllm", metric("vllm:num_requests_running"))
	block := cacheBlock(t, e)
	d := startReal(t, e)
	model := stack.ModelOf(e.kind)
	t.Run("prompts", func(t *testing.T) { d.DiagnosisIsExact(t, model, int64(block)) })
	t.Run("history", func(t *testing.T) { d.HistoryIsExact(t, model, int64(block)) })
	t.Run("forms of calls", func(t *testing.T) { realHistory(t, d, e, block) })
}

const greeting = "Grüße, 世界 👋🏽!"

func realChat(t *testing.T, d *stack.Dataplane, model string, e realEngine) {
	parameters := stack.Object{
		"top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1, "min_tokens": 2, "priority": 0, "cache_salt": "tenant",
	}
	if e.textless {
		delete(parameters, "min_tokens")
	}

	c := d.Openai()
	for _, tt := range []struct {
		name   string
		text   string
		change func(*openai.ChatCompletionNewParams)
		want   []stack.ChoiceResult
	}{
		{"answer", "THINK Let me see 🙂.\nSAY " + greeting, nil, []stack.ChoiceResult{{Reasoning: "Let me see 🙂.", Content: greeting, Finish: "stop"}}},
		{"no reasoning", "NOTHINK\nSAY yes", nil, []stack.ChoiceResult{{Content: "yes", Finish: "stop"}}},
		{"markers are text", "NOTHINK\nSAY a<|end|>b", nil, []stack.ChoiceResult{{Content: "a<|end|>b", Finish: "stop"}}},
		{
			"choices", "THINK Hm.\nSAY yes", func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(2) },
			[]stack.ChoiceResult{{Reasoning: "Hm.", Content: "yes", Finish: "stop"}, {Reasoning: "Hm.", Content: "yes", Finish: "stop"}},
		},
		{
			"stop string", "THINK w3 is no stop.\nWORDS 50", func(p *openai.ChatCompletionNewParams) {
				p.Stop = openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"3 w4", "never"}}
			},
			[]stack.ChoiceResult{{Reasoning: "w3 is no stop.", Content: "w1 w2 w", Finish: "stop"}},
		},
		{
			"length", "NOTHINK\nWORDS 1000", func(p *openai.ChatCompletionNewParams) { p.MaxCompletionTokens = openai.Int(7) },
			[]stack.ChoiceResult{{Content: "w1 w2", Finish: "length"}}, // three tokens are the header
		},
		{
			"call", "THINK A tool.\nCOMMENTARY I look it up.\nCALL get_weather {\"city\":\"Zürich 🏔\"}",
			func(p *openai.ChatCompletionNewParams) {
				p.Tools = []openai.ChatCompletionToolUnionParam{stack.WeatherTool}
			},
			[]stack.ChoiceResult{{Reasoning: "A tool.", Content: "I look it up.", Calls: []stack.Call{{Name: "get_weather", Arguments: `{"city":"Zürich 🏔"}`}}, Finish: "tool_calls"}},
		},
		{
			"every parameter", "NOTHINK\nSAY yes", func(p *openai.ChatCompletionNewParams) {
				p.Temperature, p.TopP, p.Seed = openai.Float(0.5), openai.Float(0.9), openai.Int(7)
				p.FrequencyPenalty, p.PresencePenalty = openai.Float(0.5), openai.Float(-0.5)
				p.LogitBias = map[string]int64{"1000": -5}
				p.SetExtraFields(parameters)
			},
			[]stack.ChoiceResult{{Content: "yes", Finish: "stop"}},
		},
	} {
		for name, ask := range map[string]stack.RequestMode{"whole": stack.NonStreamed, "streamed": stack.Streamed} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				p := stack.UserMessage(model, tt.text)
				if tt.change != nil {
					tt.change(&p)
				}

				r := ask(t, c, p)
				if diff := gocmp.Diff(tt.want, r.Choices); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}

				u := r.Usage
				if u.PromptTokens == 0 || u.CompletionTokens == 0 || (u.CompletionTokensDetails.ReasoningTokens > 0) != (tt.want[0].Reasoning != "") {
					t.Errorf("usage %s", u.RawJSON())
				}

				if tt.want[0].Finish == "length" && u.CompletionTokens != p.MaxCompletionTokens.Value {
					t.Errorf("%d tokens, the limit is %d", u.CompletionTokens, p.MaxCompletionTokens.Value)
				}
			})
		}
	}
}

// The tokens of the answer have log probabilities, and those of two alternatives.
func realLogprobs(t *testing.T, d *stack.Dataplane, model string) {
	resp, reply := d.Chat(t, model, "THINK Hm.\nSAY "+greeting, `,"logprobs":true,"top_logprobs":2`)
	var text []byte
	for _, token := range gjson.Get(reply, "choices.0.logprobs.content").Array() {
		for _, b := range token.Get("bytes").Array() {
			text = append(text, byte(b.Uint()))
		}
		if token.Get("top_logprobs.#").Int() != 2 || token.Get("logprob").Float() > 0 {
			t.Errorf("the token %s", token)
		}
	}
	if string(text) != greeting {
		t.Errorf("%s: the tokens are %q: %s", resp.Status, text, reply)
	}
}

// Two calls and an answer, which is the last tool's result.
func realChatTurns(t *testing.T, d *stack.Dataplane, model string) {
	c := d.Openai()
	for name, ask := range map[string]stack.RequestMode{"whole": stack.NonStreamed, "streamed": stack.Streamed} {
		t.Run(name, func(t *testing.T) {
			p := stack.UserMessage(model, "THINK I need both.\nCALL get_weather {\"city\":\"Bern\"}\nCALL get_weather {\"city\":\"Rom\"}")
			p.Tools = []openai.ChatCompletionToolUnionParam{stack.WeatherTool}
			for _, city := range []string{"Bern", "Rom"} {
				r := ask(t, c, p)
				want := []stack.ChoiceResult{{Reasoning: "I need both.", Calls: []stack.Call{{Name: "get_weather", Arguments: fmt.Sprintf(`{"city":%q}`, city)}}, Finish: "tool_calls"}}
				if diff := gocmp.Diff(want, r.Choices); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
				p.Messages = append(p.Messages, stack.CallMessage(r.IDs[0], city), openai.ToolMessage("sunny in "+city, r.IDs[0]))
			}
			if got := ask(t, c, p).Choices[0].Content; got != "RESULT: sunny in Rom" {
				t.Errorf("the answer is %q", got)
			}
		})
	}
}

func realResponses(t *testing.T, d *stack.Dataplane, model string) {
	c := d.CheckedOpenAI(t)
	thought := stack.Item{Type: "reasoning", Status: "completed", Text: "Let me see 🙂."}
	final := func(text string) stack.Item {
		return stack.Item{Type: "message", Status: "completed", Phase: "final_answer", Text: text}
	}
	for name, respond := range stack.Responders {
		t.Run(name, func(t *testing.T) {
			first := respond(t, c, stack.Asking(model, "THINK Let me see 🙂.\nSAY "+greeting))
			if diff := gocmp.Diff([]stack.Item{thought, final(greeting)}, stack.ItemsOf(first)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			p := stack.Asking(model, "NOTHINK\nSAY again")
			p.PreviousResponseID = openai.String(first.ID)
			second := respond(t, c, p)
			if diff := gocmp.Diff([]stack.Item{final("again")}, stack.ItemsOf(second)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			body := fmt.Sprintf(`{"model":%q,"previous_response_id":%q,"input":%q}`, model, first.ID, p.Input.OfString.Value)
			_, rendered := d.Post(t, "/v1/responses/render", body)
			if !strings.Contains(rendered.Get("text").Str, greeting+"<|end|>") || rendered.Get("token_count").Int() != second.Usage.InputTokens {
				t.Errorf("%d tokens of input, the prompt is %s", second.Usage.InputTokens, rendered.Get("text").Str)
			}

			cut := stack.Asking(model, "NOTHINK\nWORDS 1000")
			cut.MaxOutputTokens = openai.Int(16)
			r := respond(t, c, cut)
			if r.Status != "incomplete" || r.IncompleteDetails.Reason != "max_output_tokens" || r.Usage.OutputTokens != 16 || !strings.HasPrefix(r.OutputText(), "w1 w2") {
				t.Errorf("the limit: %s", r.RawJSON())
			}
		})
	}
}

func realResponsesTurns(t *testing.T, d *stack.Dataplane, model string) {
	c := d.CheckedOpenAI(t)
	for name, respond := range stack.Responders {
		for _, chained := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/chained=%v", name, chained), func(t *testing.T) {
				const question = "THINK I need both.\nCALL get_weather {\"city\":\"Bern\"}\nCALL shell {\"input\":\"ls\"}"
				p := stack.Asking(model, question)
				p.Tools = stack.ResponseTools
				history := []responses.ResponseInputItemUnionParam{stack.UserItem(question)}
				var turns []string

				for _, result := range []string{"sunny", "a.txt", ""} {
					r := respond(t, c, p)
					if result == "" {
						turns = append(turns, r.OutputText())
						break
					}

					call := stack.CallOf(t, r)
					turns = append(turns, call.Name)
					output := stack.OutputOf(call, result)

					if chained {
						p.PreviousResponseID = openai.String(r.ID)
						p.Input = stack.InputItems(output)
						continue
					}

					p.Store = openai.Bool(false)
					history = append(append(history, stack.AsInput(r)...), output)
					p.Input = stack.InputItems(history...)
				}

				if diff := gocmp.Diff([]string{"get_weather", "shell", "RESULT: a.txt"}, turns); diff != "" {
					t.Errorf("turns (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// The engine's grammar accepts valid output as the model writes it: with reasoning,
// a preamble, the trained header and the stop token.
func realStructuredOutputs(t *testing.T, d *stack.Dataplane, model string) {
	two := []stack.Object{stack.ChatTool("f", false), stack.ChatTool("g", false)}
	named := stack.Object{"type": "function", "function": stack.Object{"name": "g"}}
	format := stack.Object{"type": "json_schema", "json_schema": stack.Object{"name": "verdict", "schema": stack.OkSchema, "strict": true}}
	const hm = "THINK Hm.\n"

	calls := func(name, arguments string) stack.ChoiceResult {
		return stack.ChoiceResult{Reasoning: "Hm.", Calls: []stack.Call{{Name: name, Arguments: arguments}}, Finish: "tool_calls"}
	}
	answer := func(text string) stack.ChoiceResult {
		return stack.ChoiceResult{Reasoning: "Hm.", Content: text, Finish: "stop"}
	}

	c := d.Openai()
	for _, tt := range []stack.StructuredOutput{
		{Name: "required", Text: hm + "COMMENTARY Well.\nCALL g {\"n\":2}", Fields: stack.Object{"tools": two, "tool_choice": "required", "parallel_tool_calls": false}, Want: stack.ChoiceResult{Reasoning: "Hm.", Content: "Well.", Calls: []stack.Call{{Name: "g", Arguments: `{"n":2}`}}, Finish: "tool_calls"}},
		{Name: "required, parallel", Text: hm + "CALL f {\"n\":1}", Fields: stack.Object{"tools": two, "tool_choice": "required"}, Want: calls("f", `{"n":1}`)},
		{Name: "named", Text: hm + "CALL g {\"n\":1}", Fields: stack.Object{"tools": two, "tool_choice": named}, Want: calls("g", `{"n":1}`)},
		{Name: "none", Text: hm + "SAY hello", Fields: stack.Object{"tools": two, "tool_choice": "none"}, Want: answer("hello")},
		{Name: "strict", Text: hm + "CALL f {\"n\":1}", Fields: stack.Object{"tools": []stack.Object{stack.ChatTool("f", true)}}, Want: calls("f", `{"n":1}`)},
		{Name: "strict, no call", Text: hm + "SAY hello", Fields: stack.Object{"tools": []stack.Object{stack.ChatTool("f", true)}}, Want: answer("hello")},
		{Name: "json_object", Text: hm + "SAY {\"a\": [1, {\"b\": null}]}", Fields: stack.Object{"response_format": stack.Object{"type": "json_object"}}, Want: answer(`{"a": [1, {"b": null}]}`)},
		{Name: "json_schema", Text: hm + `SAY {"ok":false}`, Fields: stack.Object{"response_format": format}, Want: answer(`{"ok":false}`)},
		{Name: "json_schema and tools, a call", Text: hm + "CALL f {\"n\":1}", Fields: stack.Object{"response_format": format, "tools": two}, Want: calls("f", `{"n":1}`)},
		{Name: "json_schema and tools, an answer", Text: hm + `SAY {"ok": true}`, Fields: stack.Object{"response_format": format, "tools": two}, Want: answer(`{"ok": true}`)},
		{Name: "regex", Text: hm + "SAY yes!", Fields: stack.Object{"guided_regex": "(yes|no)!"}, Want: answer("yes!")},
		{Name: "choice", Text: hm + "SAY maybe", Fields: stack.Object{"structured_outputs": stack.Object{"choice": []string{"no", "maybe"}}}, Want: answer("maybe")},
		{Name: "grammar", Text: hm + "SAY aab", Fields: stack.Object{"guided_grammar": `root ::= "a"+ "b"`}, Want: answer("aab")},
	} {
		for name, ask := range map[string]stack.RequestMode{"whole": stack.NonStreamed, "streamed": stack.Streamed} {
			t.Run(tt.Name+"/"+name, func(t *testing.T) {
				r := ask(t, c, stack.UserMessage(model, tt.Text), stack.SetFields(tt.Fields)...)
				if diff := gocmp.Diff([]stack.ChoiceResult{tt.Want}, r.Choices); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Without a tokenizer the engine takes no grammar and no least number of tokens: it says so, and the client gets a
// 400. What needs neither is answered.
func realRefused(t *testing.T, d *stack.Dataplane, model string) {
	format := `,"response_format":{"type":"json_schema","json_schema":{"name":"r","strict":true,"schema":` + verdict + `}}`
	for name, more := range map[string]string{
		"json_schema":  format,
		"json_object":  `,"response_format":{"type":"json_object"}`,
		"required":     `,"tool_choice":"required","tools":[` + functionOf("f", verdict) + `]`,
		"strict tool":  `,"tools":[` + functionOf("f", verdict) + `]`,
		"regex":        `,"guided_regex":"(yes|no)!"`,
		"least tokens": `,"min_tokens":2`,
	} {
		for _, streamed := range []string{"", `,"stream":true`} {
			resp, reply := d.Chat(t, model, "NOTHINK\nSAY yes", more+streamed)
			if e := stack.ReadError(t, reply); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s%s: %s: %+v", name, streamed, resp.Status, e)
			}
		}
	}

	if _, reply := d.Chat(t, model, "NOTHINK\nSAY yes", ""); gjson.Get(reply, "choices.0.message.content").Str != "yes" {
		t.Errorf("without a grammar: %s", reply)
	}
}

// A prompt that is too long is rejected by the filter, or by the engine if the
// filter does not know its context length.
func realTooLong(t *testing.T, d *stack.Dataplane, model string) {
	text := strings.Repeat("word ", tinyContext) + "\nSAY x"
	for _, model := range []string{model, model + "-unknown"} {
		for _, more := range []string{"", `,"stream":true`} {
			for api, ask := range map[string]func(*testing.T, string, string, string, ...string) (*http.Response, string){"chat": d.Chat, "responses": d.Respond} {
				resp, reply := ask(t, model, text, more)
				if e := stack.ReadError(t, reply); resp.StatusCode != http.StatusBadRequest || e.Code == nil || *e.Code != "context_length_exceeded" {
					t.Errorf("%s of %s%s: %s: %s", api, model, more, resp.Status, reply)
				}
			}
		}
	}
}

// Without a known context length, a request without a limit gets the limit of
// gpt-oss. vLLM's /v1/completions and SGLang's HTTP server reject limits beyond their context.
func realNoLimit(t *testing.T, d *stack.Dataplane, model string, e realEngine) {
	resp, reply := d.Chat(t, model+"-unknown", "NOTHINK\nSAY yes", "")
	got, want := gjson.Get(reply, "choices.0.message.content").Str, "yes"
	if e.kind == "vllm" || e.kind == "sglang" {
		got, want = gjson.Get(reply, "error.code").Str, "context_length_exceeded"
	}
	if got != want {
		t.Errorf("%s: %s", resp.Status, reply)
	}
}

// After the engine was asked for its models, the context length that it reports has
// the effect of a configured one.
func realReportedLimit(t *testing.T, d *stack.Dataplane, model string, e realEngine) {
	c := d.Openai()
	if _, err := c.Models.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if resp, reply := d.Chat(t, model+"-unknown", "NOTHINK\nSAY yes", ""); gjson.Get(reply, "choices.0.message.content").Str != "yes" {
		t.Errorf("%s: %s", resp.Status, reply)
	}
	text := strings.Repeat("word ", tinyContext)
	_, want := d.Chat(t, model, text, "")
	if e.kind == "sglang-grpc" { // which keeps some tokens back, and says so
		want = strings.ReplaceAll(want, " 8192 ", " 8186 ")
	}
	if _, got := d.Chat(t, model+"-unknown", text, ""); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The usage reports a repeated prompt as cached, in both APIs.
func realCached(t *testing.T, d *stack.Dataplane, model string) {
	text := t.Name() + strings.Repeat(" and on", 500) + "\nNOTHINK\nSAY yes"
	c := d.Openai()
	first := stack.NonStreamed(t, c, stack.UserMessage(model, text))
	for name, ask := range map[string]stack.RequestMode{"whole": stack.NonStreamed, "streamed": stack.Streamed} {
		u := ask(t, c, stack.UserMessage(model, text)).Usage
		if cached := u.PromptTokensDetails.CachedTokens; cached < 500 || cached >= u.PromptTokens {
			t.Errorf("%s: %d of %d tokens were cached", name, cached, u.PromptTokens)
		}
	}
	if first.Usage.PromptTokensDetails.CachedTokens > 500 {
		t.Errorf("%d tokens were cached at first", first.Usage.PromptTokensDetails.CachedTokens)
	}
	r := stack.RespondWhole(t, d.CheckedOpenAI(t), stack.Asking(model, text))
	if cached := r.Usage.InputTokensDetails.CachedTokens; cached < 500 {
		t.Errorf("responses: %d tokens were cached", cached)
	}
}

// If a client disconnects, the engine stops, although the request would take
// minutes.
func realDisconnect(t *testing.T, d *stack.Dataplane, model string, e realEngine) {
	for _, tt := range []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", `{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`},
		{"chat, whole", "/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":%q}]}`},
		{"responses", "/v1/responses", `{"model":%q,"stream":true,"input":%q}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+tt.path, strings.NewReader(fmt.Sprintf(tt.body, model, "NOTHINK\nWORDS 3500 50")))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")

			ended := make(chan struct{})
			go func() {
				defer close(ended)
				resp, err := d.Client.Do(req)
				if err != nil {
					return // the client has disconnected
				}
				defer resp.Body.Close()
				_, _ = io.Copy(io.Discard, resp.Body)
			}()

			e.await(t, "running", func(n int) bool { return n > 0 })
			leave()
			<-ended
			e.await(t, "idle", func(n int) bool { return n == 0 })
		})
	}
}

func (e realEngine) await(t *testing.T, what string, ok func(int) bool) {
	t.Helper()
	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(50 * time.Millisecond) {
		n := e.running(t, e)
		if ok(n) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the engine is not %s: it has %d running requests", what, n)
		}
	}
}

// There are no plugins for a llama.cpp server, but sampling parameters can force
// tokens: see forced. The answers are short texts of the final channel. What the
// weights write without that ends at the limit.
func TestRealLlamaCPP(t *testing.T) {
	e := engineAt(t, "ENGINE_TEST_LLAMACPP", "llamacpp", metric("llamacpp:requests_processing"))
	d := startReal(t, e)
	model := stack.ModelOf(e.kind)
	t.Run("forced", func(t *testing.T) { llamaForced(t, d, model) })
	t.Run("limit", func(t *testing.T) { llamaLimit(t, d, model) })
	t.Run("responses", func(t *testing.T) { llamaResponses(t, d, model) })
	t.Run("rejected", func(t *testing.T) { llamaRejected(t, d, model) })
	t.Run("too long", func(t *testing.T) { realTooLong(t, d, model) })
	t.Run("cached tokens", func(t *testing.T) { llamaCached(t, d, model) })
	t.Run("endless reasoning", func(t *testing.T) { endlessReasoning(t, d, model) })
	t.Run("disconnect", func(t *testing.T) { realDisconnect(t, d, model, e) })
	t.Run("cut after the request", func(t *testing.T) {
		text := "Hello, world!"
		realCut(t, e, "Say it.", forced(t, d, model, "Say it.", text, 40), text)
	})
}

// forced returns request members by which weights near zero write a header of the
// final channel, a text of different tokens, and the end. The order of the biases
// is the order of the tokens: a token that is in the prompt or the reply counts
// half of its bias, less two for each occurrence.
func forced(t *testing.T, d *stack.Dataplane, model, user, text string, greatest int) string {
	t.Helper()
	_, r := d.Post(t, "/v1/chat/completions/render", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, user))

	seen := map[harmony.Token]int{}
	for _, id := range r.Get("token_ids").Array() {
		seen[harmony.Token(id.Uint())]++
	}

	ids := harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>")
	ids = append(harmony.AppendEncode(ids, text), harmony.AppendEncodeSpecial(nil, "<|return|>")...)

	bias := stack.Object{}
	const first, last = 36., 34.2 // the biases of the first and the last token
	for i, id := range ids {
		strength := first - (first-last)*float64(i)/float64(len(ids)-1)
		if n := seen[id]; n > 0 {
			strength = 2 * (strength + 2*float64(n))
		}
		bias[strconv.Itoa(int(id))] = strength
	}

	more, err := json.Marshal(stack.Object{"temperature": 0, "repetition_penalty": 2, "frequency_penalty": 2, "logit_bias": bias, "max_completion_tokens": greatest})
	if err != nil {
		t.Fatal(err)
	}
	return "," + string(more[1:len(more)-1])
}

// An emoji has several tokens, of which the stream names only the last.
func llamaForced(t *testing.T, d *stack.Dataplane, model string) {
	for _, text := range []string{"Hello, world!", "naïve 🙂 世界", "a🏔b"} {
		more := forced(t, d, model, "Say it.", text, 40)
		resp, reply := d.Chat(t, model, "Say it.", more)
		choice := gjson.Get(reply, "choices.0")
		if choice.Get("message.content").Str != text || choice.Get("finish_reason").Str != "stop" {
			t.Errorf("whole: %s: %s", resp.Status, reply)
		}
		if u := gjson.Get(reply, "usage"); u.Get("completion_tokens").Int() < 5 || u.Get("prompt_tokens").Int() == 0 {
			t.Errorf("usage %s", u)
		}
		if got := streamedContent(d.Chat(t, model, "Say it.", more+`,"stream":true`)); got != text {
			t.Errorf("streamed: %q, want %q", got, text)
		}
		cut := strings.IndexAny(text, " b")
		if _, reply := d.Chat(t, model, "Say it.", more+fmt.Sprintf(`,"stop":%q`, text[cut:cut+1])); gjson.Get(reply, "choices.0.message.content").Str != text[:cut] {
			t.Errorf("stopped at %q: %s", text[cut:cut+1], reply)
		}
	}
}

// streamedContent joins the texts of a stream of chat completions.
func streamedContent(_ *http.Response, events string) string {
	var text strings.Builder
	for _, line := range strings.Split(events, "\n") {
		if event, ok := strings.CutPrefix(line, "data: {"); ok {
			text.WriteString(gjson.Get("{"+event, "choices.0.delta.content").Str)
		}
	}
	return text.String()
}

// What the weights write without constraints has no form: it ends at the limit and
// has that many tokens.
func llamaLimit(t *testing.T, d *stack.Dataplane, model string) {
	for i := range 10 {
		more := fmt.Sprintf(`,"max_completion_tokens":50,"seed":%d,"logit_bias":{"200002":-100,"199999":-100,"200012":-100}`, i)
		if i%2 == 1 { // a structured output that the limit truncates
			more += `,"tool_choice":"required","tools":[` + functionOf("f", verdict) + `]`
		}
		resp, reply := d.Chat(t, model, "Anything.", more)
		if gjson.Get(reply, "choices.0.finish_reason").Str != "length" || gjson.Get(reply, "usage.completion_tokens").Int() < 40 {
			t.Errorf("%s: %s", resp.Status, reply)
		}
	}
}

func llamaResponses(t *testing.T, d *stack.Dataplane, model string) {
	c := d.CheckedOpenAI(t)
	for name, respond := range stack.Responders {
		p := stack.Asking(model, "Anything.")
		p.MaxOutputTokens = openai.Int(40)
		first := respond(t, c, p)
		if first.Status != "incomplete" || first.IncompleteDetails.Reason != "max_output_tokens" || first.Usage.OutputTokens == 0 {
			t.Errorf("%s: %s", name, first.RawJSON())
		}
		p.PreviousResponseID = openai.String(first.ID)
		if second := respond(t, c, p); second.Usage.InputTokens <= first.Usage.InputTokens {
			t.Errorf("%s: %d tokens of input, then %d", name, first.Usage.InputTokens, second.Usage.InputTokens)
		}
	}
}

func llamaRejected(t *testing.T, d *stack.Dataplane, model string) {
	for param, more := range map[string]string{"n": `,"n":2`, "min_tokens": `,"min_tokens":2`} {
		resp, reply := d.Chat(t, model, "x", more)
		if stack.ReadError(t, reply); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s: %s", param, resp.Status, reply)
		}
	}
}

func llamaCached(t *testing.T, d *stack.Dataplane, model string) {
	more := `,"max_completion_tokens":3`
	text := strings.Repeat(" and on", 500)
	d.Chat(t, model, text, more)
	_, reply := d.Chat(t, model, text, more)
	if u := gjson.Get(reply, "usage"); u.Get("prompt_tokens_details.cached_tokens").Int() < 500 {
		t.Errorf("usage %s", u)
	}
}
