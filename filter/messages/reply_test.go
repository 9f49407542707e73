package messages

import (
	"context"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/messages/write"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

const (
	thought = "<|channel|>analysis<|message|>a \"thought\"\n<|end|><|start|>assistant"
	called  = " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\":\"Oslo\"}<|call|>"
)

// TestThinking shows that the reasoning of a tool turn comes back exactly, whether the
// client sees it or not, and that the next prompt begins with this one.
func TestThinking(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, thinking string
		blocks         int
		text           string
	}{
		{"shown", `,"thinking":{"type":"enabled","budget_tokens":1024}`, 2, "a \"thought\"\n"},
		{"adaptive", `,"thinking":{"type":"adaptive","display":"summarized"}`, 2, "a \"thought\"\n"},
		{"between tools", `,"thinking":{"type":"between_tools"}`, 2, "a \"thought\"\n"},
		{"omitted", `,"thinking":{"type":"adaptive","display":"omitted"}`, 2, ""},
		{"hidden", `,"thinking":{"type":"disabled"}`, 1, ""},
		{"not asked for", ``, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rc := apitest.NewContext()
			request := decodeWith(t, rc, ask(weatherTool+c.thinking))
			message := gjson.Parse(answer(t, request, thought+called, engine.FinishStop))
			content := message.Get("content")
			if n := len(content.Array()); n != c.blocks {
				t.Fatalf("%d blocks: %s", n, content.Raw)
			}
			if c.blocks == 2 && (content.Get("0.thinking").Str != c.text || content.Get("0.signature").Str == "") {
				t.Errorf("the thinking block: %s", content.Get("0").Raw)
			}
			call := content.Get("@reverse.0")
			next := decodeWith(t, rc, conversation(userHi+`,{"role":"assistant","content":`+content.Raw+`},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+call.Get("id").Str+`","content":"sunny"}]}`, weatherTool+c.thinking))
			before, after := apitest.Spell(t, request.Engine().Prompt), apitest.Spell(t, next.Engine().Prompt)
			if !strings.HasPrefix(after, before+thought) {
				t.Errorf("the reasoning is not there as it was:\n%s", after)
			}
		})
	}
}

// TestSignature shows what becomes of signatures that were not made here for this
// tenant.
func TestSignature(t *testing.T) {
	t.Parallel()
	message := gjson.Parse(answer(t, mustDecode(t, ask(weatherTool+`,"thinking":{"type":"adaptive"}`)), thought+called, engine.FinishStop))
	signature := message.Get("content.0.signature").Str
	decode := func(key byte, tenant, block string) (*write.Request, *apierror.Error) {
		rc := apitest.NewContext()
		rc.Tenant = tenant
		return newAPI(t, key).Decode(context.Background(), []byte(conversation(userHi+`,{"role":"assistant","content":[`+block+`,{"type":"tool_use","id":"toolu_a","name":"get_weather","input":{}}]},`+resultA, weatherTool)), rc)
	}
	thinking := func(signature string) string {
		return `{"type":"thinking","thinking":"shown","signature":"` + signature + `"}`
	}
	for _, c := range []struct {
		name, block string
		key         byte
		reasoning   string
		ignored     string
	}{
		{"ours", thinking(signature), 1, "a \"thought\"\n", ""},
		{"ours, redacted", `{"type":"redacted_thinking","data":"` + signature + `"}`, 1, "a \"thought\"\n", ""},
		{"another service's", thinking("c2ln"), 1, "shown", "messages.content.signature"},
		{"a key that is gone", thinking(signature), 2, "shown", "messages.content.signature"},
		{"none", thinking(""), 1, "shown", ""},
		{"another service's, redacted", `{"type":"redacted_thinking","data":"c2ln"}`, 1, "", "messages.content.data"},
	} {
		request, err := decode(c.key, "", c.block)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := apitest.Spell(t, request.Engine().Prompt)
		if has := strings.Contains(got, "<|channel|>analysis<|message|>"+c.reasoning+"<|end|>"); has != (c.reasoning != "") {
			t.Errorf("%s: the reasoning %q is there: %v", c.name, c.reasoning, has)
		}
		if ignored := strings.Join(request.Ignored(), ", "); ignored != c.ignored {
			t.Errorf("%s: ignored are %q", c.name, ignored)
		}
	}
	if _, err := decode(1, "other", thinking(signature)); err == nil || err.Status != 400 || err.Param != "messages[1].content[0].signature" {
		t.Errorf("another tenant's signature: %v", err)
	}
}

func TestStopReasons(t *testing.T) {
	t.Parallel()
	const said = "<|channel|>final<|message|>One, two"
	for _, c := range []struct {
		name, members, output string
		finish                engine.Finish
		reason, sequence      string
	}{
		{"the end", ``, said + "<|return|>", engine.FinishStop, "end_turn", ""},
		{"a stop sequence", `,"stop_sequences":["x",", "]`, said, engine.FinishStop, "stop_sequence", ", "},
		{"a stop token", `,"stop_token_ids":[11]`, said, engine.FinishStop, "end_turn", ""},
		{"the limit of tokens", `,"max_tokens":7`, said, engine.FinishLength, "max_tokens", ""},
		{"the context", `,"max_tokens":1000000`, said, engine.FinishLength, "model_context_window_exceeded", ""},
		{"no limit", ``, said, engine.FinishLength, "model_context_window_exceeded", ""},
		{"a call", weatherTool, called, engine.FinishStop, "tool_use", ""},
		{"a cut call", weatherTool + `,"max_tokens":7`, strings.TrimSuffix(called, "}<|call|>"), engine.FinishLength, "max_tokens", ""},
	} {
		got := gjson.Parse(answer(t, mustDecode(t, ask(c.members)), c.output, c.finish))
		if got.Get("stop_reason").Str != c.reason || got.Get("stop_sequence").Str != c.sequence {
			t.Errorf("%s: %s %s", c.name, got.Get("stop_reason").Raw, got.Get("stop_sequence").Raw)
		}
	}
}

// A request without a limit gets one of a token quota. What ends there has not filled the context.
func TestStopReasonAtQuota(t *testing.T) {
	t.Parallel()
	request := mustDecode(t, ask(``))
	request.Engine().MaxTokens = 7
	got := gjson.Parse(answer(t, request, "<|channel|>final<|message|>One, two", engine.FinishLength))
	if reason := got.Get("stop_reason").Str; reason != "max_tokens" {
		t.Errorf("the reason is %q", reason)
	}
}

// With max_tokens 0 the engine computes the prompt, which is that of the same request with an
// output, and the message is empty.
func TestNoOutput(t *testing.T) {
	t.Parallel()
	for _, members := range []string{``, weatherTool, weatherTool + `,"tool_choice":{"type":"any"}`, `,"thinking":{"type":"adaptive"}`} {
		want := prompt(t, ask(members))
		for _, mode := range []api.Mode{api.Loop, api.SingleCall} {
			for _, stream := range []string{``, `,"stream":true`} {
				request := mustDecode(t, ask(members+stream+`,"max_tokens":0`))
				if got := apitest.Spell(t, request.Engine().Prompt); got != want || request.Engine().MaxTokens != 1 {
					t.Errorf("%s: %d tokens after\n%s", members, request.Engine().MaxTokens, got)
				}

				reply := apitest.Play(t, request, mode, []engine.Chunk{
					{Tokens: apitest.Tokens("<|channel|>"), Finish: engine.FinishLength},
					{Usage: &engine.Usage{CachedTokens: 16}},
				})
				if stream != "" {
					if strings.Contains(reply, "content_block") {
						t.Errorf("%s: the stream is\n%s", members, reply)
					}
					reply, _, _ = strings.Cut(reply[strings.Index(reply, `{"type":"message_delta"`):], "\n")
					reply = `{"content":[],"stop_reason":` + gjson.Get(reply, "delta.stop_reason").Raw + `,"usage":` + gjson.Get(reply, "usage").Raw + `}`
				}
				m := gjson.Parse(reply)
				if m.Get("content").Raw != "[]" || m.Get("stop_reason").Str != "max_tokens" || m.Get("usage.output_tokens").Raw != "0" ||
					m.Get("usage.cache_read_input_tokens").Int() != 16 {
					t.Errorf("%s: the message is %s", members, reply)
				}
			}
		}
	}

	// Servers list their tools first: they are a part of the prompt.
	s := newService(t)
	m, err := s.try(t, ask(docsServer+`,"max_tokens":0`), apitest.Said("<|channel|>"))
	if err != nil || gjson.Get(m, "content").Raw != "[]" || len(s.prompts) != 1 || !strings.Contains(s.prompts[0], "namespace docs") {
		t.Errorf("with a server: %v, %s\n%q", err, m, s.prompts)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	request := mustDecode(t, ask(`,"stream":true`))
	prompt := len(request.Engine().Prompt)
	stream := apitest.Play(t, request, api.Loop, []engine.Chunk{
		{Tokens: apitest.Tokens("<|channel|>analysis<|message|>a b<|end|><|start|>assistant<|channel|>final<|message|>c<|return|>"), Finish: engine.FinishStop},
		{Usage: &engine.Usage{CachedTokens: 64}},
	})
	usage := gjson.ParseBytes(fold(t, stream).Usage)
	want := map[string]int{"input_tokens": prompt - 64, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 0, "output_tokens": 13, "output_tokens_details.thinking_tokens": 2}
	for member, n := range want {
		if got := usage.Get(member); !got.Exists() || int(got.Int()) != n {
			t.Errorf("%s is %s, want %d", member, got.Raw, n)
		}
	}
}

// TestFails shows that an error ends a stream with an event, and replaces an object.
func TestFails(t *testing.T) {
	t.Parallel()
	err := apierror.New(502, "engine_disconnected", "", "The connection broke.")
	for _, stream := range []string{"true", "false"} {
		r := mustDecode(t, ask(`,"stream":`+stream)).NewReply(api.SingleCall)
		out, pushErr := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>final<|message|>a")})
		if pushErr != nil {
			t.Fatal(pushErr)
		}
		out = r.Fail(out, err)
		out, got := apitest.End(t, r, out)
		const event = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"The connection broke.\",\"details\":{\"error_code\":\"engine_disconnected\"}},\"request_id\":\"req-1\"}\n\n"
		if stream == "true" && (got != nil || !strings.HasSuffix(string(out), event)) || stream == "false" && (got != err || len(out) > 0) {
			t.Errorf("stream %s: %v, %s", stream, got, out)
		}
	}
}

// TestUnknownTools shows who gets the call of a tool that the request does not have:
// the client, or the model, which has another turn.
func TestUnknownTools(t *testing.T) {
	t.Parallel()
	outputs := []apitest.Output{
		apitest.Said(" to=functions.forecast<|channel|>commentary json<|message|>{}<|call|>"),
		apitest.Said(called),
	}
	for _, c := range []struct {
		setting string
		outputs []apitest.Output
		want    string
	}{
		{turn.UnknownToClient, outputs[:1], "forecast({}) tool_calls"},
		{turn.UnknownToModel, outputs, `get_weather({"city":"Oslo"}) tool_calls`},
	} {
		rc := apitest.NewContext()
		rc.Model.UnknownTools = c.setting
		out, prompts, err := apitest.PlayLoop(t, decodeWith(t, rc, ask(weatherTool)).NewReply(api.Loop), c.outputs, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := brief(t, string(out)); got != c.want {
			t.Errorf("%s: %s, want %s", c.setting, got, c.want)
		}
		if last := prompts[len(prompts)-1]; len(prompts) == 2 && !strings.Contains(last, turn.NoSuchTool("forecast")) {
			t.Errorf("the model is not told:\n%s", last)
		}
	}
}

// TestDeepInput shows that a client can send back what it got, however deeply the model
// nests the input of a call.
func TestDeepInput(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		out := answer(t, mustDecode(t, ask(weatherTool+`,"stream":`+stream)), strings.Replace(called, `"Oslo"`, strings.Repeat("[", 1000)+strings.Repeat("]", 1000), 1), engine.FinishStop)
		message := object{}
		if stream == "true" {
			message = fold(t, out)
		} else {
			message = parseObject(t, out)
		}
		call := message.Content[0]
		mustDecode(t, conversation(userHi+`,{"role":"assistant","content":[{"type":"tool_use","id":"`+call.ID+`","name":"get_weather","input":`+string(call.Input)+`}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+call.ID+`","content":"sunny"}]}`, weatherTool))
	}
}
