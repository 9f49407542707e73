package responses

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func TestReply(t *testing.T) {
	t.Parallel()
	const (
		thought = "<|channel|>analysis<|message|>think<|end|><|start|>assistant"
		answer  = "<|channel|>final<|message|>yes<|return|>"
		patch   = " to=functions.apply_patch<|channel|>commentary json<|message|>"
	)
	for _, c := range []struct {
		name, members, text string
		finish              engine.Finish
		want                map[string]string // of the response
	}{
		{"answer", "", thought + answer, "stop", map[string]string{
			"status": "completed", "output.#.type": `["reasoning","message"]`, "output.0.content.0.text": "think", "output.0.summary": "[]",
			"output.1.phase": "final_answer", "output.1.content.0.text": "yes", "usage.output_tokens_details.reasoning_tokens": "1",
		}},
		{"no reasoning", `,"reasoning":{"effort":"none","summary":"auto"}`, thought + answer, "stop", map[string]string{
			"output.#.type": `["message"]`, "reasoning.effort": "none", "usage.output_tokens_details.reasoning_tokens": "1",
		}},
		{"summary", `,"reasoning":{"summary":"concise"}`, thought + answer, "stop", map[string]string{"output.0.summary.0.text": "think", "output.0.content": ""}},
		{"two answers", "", "<|channel|>final<|message|>a<|end|><|start|>assistant" + answer, "stop", map[string]string{"output.#.content.0.text": `["a","yes"]`}},
		{"cut answer", "", thought + "<|channel|>final<|message|>ye", "length", map[string]string{
			"status": "incomplete", "incomplete_details.reason": "max_output_tokens", "output.#.status": `["completed","incomplete"]`, "output.1.content.0.text": "ye",
		}},
		{"cut thought", "", "<|channel|>analysis<|message|>thi", "length", map[string]string{"status": "incomplete", "output.#.status": `["incomplete"]`}},
		{"cut header", "", thought + "<|channel|>fin", "length", map[string]string{"status": "incomplete", "incomplete_details.reason": "max_output_tokens"}},
		{"cut after the end", "", thought + answer, "length", map[string]string{"status": "incomplete", "output.#.status": `["completed","completed"]`}},
		{"cut call", mixedTools, thought + patch + `{"input":"a\nb\`, "length", map[string]string{
			"status": "incomplete", "output.#.status": `["completed","incomplete"]`, "output.1.type": "custom_tool_call", "output.1.input": "a\nb\\",
		}},
		{"nothing", "", "<|return|>", "stop", map[string]string{
			"status": "completed", "incomplete_details": "", "output.#.type": `["message"]`, "output.0.status": "completed", "output.0.content.#.text": `[""]`,
		}},
		{"nothing but hidden reasoning", `,"reasoning":{"effort":"none"}`, "<|channel|>analysis<|message|>a<|end|>", "stop", map[string]string{
			"status": "completed", "output.#.type": `["message"]`, "output.0.content.#.text": `[""]`,
		}},
		{"nothing before the length", "", "<|return|>", "length", map[string]string{"status": "incomplete", "output": "[]"}},
		{"bare text for a custom tool", mixedTools, patch + "*** Begin\n<|call|>", "stop", map[string]string{"status": "completed", "output.0.input": "*** Begin\n"}},
		{"no text for a custom tool", mixedTools, patch + "<|call|>", "stop", map[string]string{"output.0.type": "custom_tool_call", "output.0.input": ""}},
		{"no arguments", mixedTools, " to=functions.get_weather<|channel|>commentary json<|message|><|call|>", "stop", map[string]string{"output.0.arguments": "{}"}},
		{"namespace", mixedTools, " to=mcp__fs.read<|channel|>commentary json<|message|>{}<|call|>", "stop", map[string]string{"output.0.name": "read", "output.0.namespace": "mcp__fs"}},
		{"namespace not written", mixedTools, " to=functions.read<|channel|>commentary json<|message|>{}<|call|>", "stop", map[string]string{"output.0.name": "read", "output.0.namespace": "mcp__fs"}},
		{"unknown tool", mixedTools, " to=browser.search<|channel|>commentary json<|message|>{}<|call|>", "stop", map[string]string{"output.0.name": "browser_search", "output.0.namespace": "", "output.0.type": "function_call"}},
		{"one call", mixedTools + `,"parallel_tool_calls":false`, patch + "a<|call|><|start|>assistant" + patch + "b<|call|>", "stop", map[string]string{"output.#.input": `["a"]`}},
		{"withheld", mixedTools + `,"tool_choice":"none"`, patch + "a<|call|><|start|>assistant" + answer, "stop", map[string]string{"output.#.type": `["message"]`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := reply(t, c.members, c.text, c.finish)
			for path, want := range c.want {
				if got := r.Get(path).String(); got != want {
					t.Errorf("%s is %q, want %q", path, got, want)
				}
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	request := mustDecode(t, ask(""))
	all := apitest.Said("<|channel|>final<|message|>x<|return|>").Chunks(apitest.Size(9))
	all[0].Usage = &engine.Usage{CachedTokens: 7}
	all = append(all, engine.Chunk{Usage: &engine.Usage{CachedTokens: engine.Unknown}})
	r := gjson.Parse(run(t, request, all))
	prompt := int64(len(request.Engine().Prompt))
	if got := r.Get("usage.input_tokens").Int(); got != prompt {
		t.Errorf("input_tokens is %d, want %d", got, prompt)
	}
	if got := r.Get("usage.input_tokens_details").Raw; got != `{"cached_tokens":7,"cache_write_tokens":0}` {
		t.Error(got)
	}
}

// TestFail shows how a stream ends in an error: the last event has what there
// is of the response, and no event says that the open item is complete.
func TestFail(t *testing.T) {
	t.Parallel()
	busy := apierror.New(http.StatusTooManyRequests, "", "", "The engine is busy.")
	busy.RetryAfter = 1500 * time.Millisecond
	long := apierror.New(http.StatusBadRequest, "context_length_exceeded", "", "Too long.")
	for _, c := range []struct {
		name, text    string
		err           *apierror.Error
		code, message string
		output        string
	}{
		{"at once", "", apierror.New(http.StatusBadGateway, "engine_error", "", "Broken."), "server_error", "Broken.", `[]`},
		{"in an answer", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", busy, "rate_limit_exceeded", "The engine is busy. Please try again in 1.5s.", `["completed","incomplete"]`},
		{"in a custom call", " to=functions.apply_patch<|channel|>commentary json<|message|>{\"input\":\"a\\", long, "context_length_exceeded", "Too long.", `["incomplete"]`},
		{"between items", "<|channel|>analysis<|message|>a<|end|>", apierror.Invalid("", "No."), "invalid_prompt", "No.", `["completed"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			request := mustDecode(t, ask(mixedTools+`,"stream":true,"reasoning":{"summary":"auto"}`))
			r := newReply(request, api.SingleCall)
			out, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(c.text)})
			if err != nil {
				t.Fatal(err)
			}
			out = fail(t, r, out, c.err)
			got := gjson.Parse(final(t, request, string(out)))
			if got.Get("status").Str != "failed" || got.Get("error.code").Str != c.code || got.Get("error.message").Str != c.message || got.Get("output.#.status").Raw != c.output {
				t.Errorf("%s", got.Raw)
			}
			if more := fail(t, r, nil, c.err); len(more) > 0 {
				t.Errorf("an ended reply goes on: %s", more)
			}

			whole := newReply(mustDecode(t, ask("")), api.SingleCall)
			if got, err := apitest.End(t, whole, whole.Fail(nil, c.err)); len(got) > 0 || err != c.err {
				t.Errorf("a whole reply fails with %v and %s", err, got)
			}
		})
	}
}

func TestPushRefuses(t *testing.T) {
	t.Parallel()
	for code, chunk := range map[string]*engine.Chunk{
		"engine_error":   {Index: 1, Tokens: apitest.Tokens("a")},
		"engine_aborted": {Finish: engine.FinishAbort},
	} {
		if _, err := newReply(mustDecode(t, ask("")), api.SingleCall).Push(nil, chunk); err == nil || err.Code != code || err.Status != http.StatusBadGateway {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestMalformedFails shows a reply whose model breaks the format where the
// setting is to fail.
func TestMalformedFails(t *testing.T) {
	t.Parallel()
	rc := apitest.NewContext()
	rc.Model.OnMalformed = turn.MalformedFail
	for _, text := range []string{"<|channel|>final<|message|>a<|end|>stray", "<|channel|>final"} {
		request, err := (&API{}).decode([]byte(ask(`,"stream":true`)), rc)
		if err != nil {
			t.Fatal(err)
		}
		r := newReply(request, api.SingleCall)
		out, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(text)})
		if err != nil {
			out = r.Fail(out, err)
		}
		out = mustEnd(t, r, out)
		if got := gjson.Parse(final(t, request, string(out))); got.Get("status").Str != "failed" || !strings.Contains(got.Get("error.message").Str, "Harmony") {
			t.Errorf("%s", got.Raw)
		}
	}
}

// TestDone shows that a reply which the client's wish ended asks for no more.
func TestDone(t *testing.T) {
	t.Parallel()
	r := newReply(mustDecode(t, ask(mixedTools+`,"parallel_tool_calls":false`)), api.SingleCall)
	if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens(" to=functions.get_weather<|channel|>commentary json<|message|>{}")}); err != nil || r.Done() {
		t.Fatal("the reply is done before its call")
	}
	if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|call|>")}); err != nil || !r.Done() {
		t.Fatal("the reply is not done after its one call")
	}
	if s := r.Summary(); s.Calls != 1 || s.Finish != turn.FinishCalls {
		t.Errorf("summary %+v", s)
	}
}
