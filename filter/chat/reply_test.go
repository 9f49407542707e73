package chat

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// brief is what a client sees of a choice, in one line.
func brief(c objectChoice) string {
	var b strings.Builder
	if c.Message.Reasoning != nil {
		fmt.Fprintf(&b, "reasoning %q ", *c.Message.Reasoning)
	}
	if c.Message.Content != nil {
		fmt.Fprintf(&b, "content %q ", *c.Message.Content)
	}
	for _, call := range c.Message.ToolCalls {
		fmt.Fprintf(&b, "%s(%s) ", call.Function.Name, call.Function.Arguments)
	}
	return b.String() + *c.Finish
}

// TestMalformed is outputs that other servers answer with an error or with
// nothing.
func TestMalformed(t *testing.T) {
	t.Parallel()
	const final = "<|start|>assistant<|channel|>final<|message|>"
	for _, c := range []struct{ name, output, want string }{
		{"words left in the header", "<|channel|>final some more words<|message|>a<|return|>", `content "a" stop`},
		{"no start", "<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b<|return|>", `reasoning "a" content "b" stop`},
		{"text between messages", "<|channel|>analysis<|message|>a<|end|>b<|return|>", `reasoning "a" content "b" stop`},
		{"return twice", "<|channel|>final<|message|>a<|end|><|return|><|return|>", `content "a" stop`},
		{"only special tokens", "<|return|>", `content "" stop`},
		{"end in the header", "<|channel|>final", `content "" stop`},
		{"no message token", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final b c<|return|>", `reasoning "a" content "b c" stop`},
		{"no header at all", "{\"a\":1}", `content "{\"a\":1}" stop`},
		{"no channel", "<|message|>a<|return|>", `content "a" stop`},
		{"unknown channel", "<|channel|>reflection<|message|>a<|return|>", `content "a" stop`},
		{"two starts", "<|channel|>analysis<|message|>a<|end|><|start|><|start|>assistant<|channel|>final<|message|>b<|return|>", `reasoning "a" content "b" stop`},
		{"constrained final", "<|channel|>final <|constrain|>json<|message|>{}<|return|>", `content "{}" stop`},
		{"constrained preamble", "<|channel|>commentary json<|message|>{}<|end|>", `content "{}" stop`},
		{"special tokens in the recipient", "<|start|>assistant to=functions.get_weather<|channel|>commentary<|channel|>commentary json<|message|>{}<|call|>", `get_weather({}) tool_calls`},
		{"no call token", " to=functions.get_weather<|channel|>commentary json<|message|>{\"a\":1}", `get_weather({"a":1}) tool_calls`},
		{"end of text", "<|channel|>final<|message|>a<|endoftext|>", `content "a" stop`},
		{"two reasonings", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>" + final + "c<|return|>", `reasoning "a\n\nb" content "c" stop`},
		{"two answers", "<|channel|>final<|message|>a<|end|>" + final + "b<|return|>", `content "a\n\nb" stop`},
		{"the answer on commentary", "<|channel|>commentary<|message|>a<|return|>", `content "a" stop`},
		{"reasoning only", "<|channel|>analysis<|message|>a<|return|>", `reasoning "a" content "" stop`},
		{"a hidden tool", "<|channel|>analysis to=container.exec code<|message|>ls<|call|>", `container_exec(ls) tool_calls`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			whole := parseObject(t, reply(t, mustDecode(t, ask(weatherTool)), c.output, engine.FinishStop))
			if got := brief(whole.Choices[0]); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if strings.Contains(brief(whole.Choices[0]), "<|") {
				t.Error("a special token is shown")
			}
		})
	}
}

func TestUsageAndFingerprint(t *testing.T) {
	t.Parallel()
	for _, streamed := range []bool{false, true} {
		members := ``
		if streamed {
			members = `,"stream":true,"stream_options":{"include_usage":true}`
		}
		out := run(t, mustDecode(t, ask(members)), []engine.Chunk{
			{Tokens: tokens("<|channel|>analysis<|message|>one two<|end|>")},
			{Tokens: tokens(final("three")), Fingerprint: "v1", Finish: engine.FinishStop},
			{Usage: &engine.Usage{CachedTokens: 16}},
		})
		var o object
		if streamed {
			o = fold(t, out, 1)
		} else {
			o = parseObject(t, out)
		}
		if o.System != "v1" || o.Usage.Details == nil || o.Usage.Details.Cached != 16 || o.Usage.Output.Reasoning != 2 ||
			o.Usage.Completion != len(tokens("<|channel|>analysis<|message|>one two<|end|>"+final("three"))) || o.Usage.Total != o.Usage.Prompt+o.Usage.Completion {
			t.Errorf("stream %v: fingerprint %q, usage %+v", streamed, o.System, o.Usage)
		}
	}
}

func final(text string) string {
	return "<|start|>assistant<|channel|>final<|message|>" + text + "<|return|>"
}

func TestReasoningFields(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"":                    `,"reasoning":"a","reasoning_content":"a"`,
		turn.ReasoningBoth:    `,"reasoning":"a","reasoning_content":"a"`,
		turn.ReasoningShort:   `,"reasoning":"a"`,
		turn.ReasoningContent: `,"reasoning_content":"a"`,
	} {
		scope := newScope()
		scope.Model.ReasoningFields = setting
		for _, members := range []string{``, `,"stream":true`} {
			call, err := Decode(context.Background(), []byte(ask(members)), scope)
			if err != nil {
				t.Fatal(err)
			}
			got := reply(t, call, "<|channel|>analysis<|message|>a<|end|>", engine.FinishStop)
			if !strings.Contains(got, strings.TrimPrefix(want, ",")+"}") {
				t.Errorf("%q: no %s in\n%s", setting, want, got)
			}
		}
	}
}

// TestReasoningHidden shows the replies to requests that do not want to see the
// reasoning.
func TestReasoningHidden(t *testing.T) {
	t.Parallel()
	for _, members := range []string{`,"reasoning_effort":"none"`, `,"include_reasoning":false`, `,"reasoning_effort":"none","include_reasoning":true`} {
		for _, stream := range []string{``, `,"stream":true`} {
			got := reply(t, mustDecode(t, ask(members+stream)), "<|channel|>analysis<|message|>secret<|end|>"+final("said"), engine.FinishStop)
			if strings.Contains(got, "secret") || !strings.Contains(got, "said") {
				t.Errorf("%s%s: %s", members, stream, got)
			}
		}
	}
}

// TestEngineFails shows the replies to an engine that breaks off.
func TestEngineFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		chunk engine.Chunk
		code  string
	}{
		{"abort", engine.Chunk{Finish: engine.FinishAbort}, "engine_aborted"},
		{"a choice too many", engine.Chunk{Index: 1, Tokens: tokens("a")}, "engine_error"},
		{"malformed", engine.Chunk{Tokens: tokens("<|end|>stray<|end|>"), Finish: engine.FinishStop}, "malformed_output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			scope := newScope()
			scope.Model.OnMalformed = turn.MalformedFail
			call, err := Decode(context.Background(), []byte(ask(`,"stream":true`)), scope)
			if err != nil {
				t.Fatal(err)
			}
			r := call.NewReply()
			out, err := r.Push(nil, &engine.Chunk{Tokens: tokens("<|channel|>final<|message|>half")})
			if err != nil {
				t.Fatal(err)
			}
			out, err = r.Push(out, &c.chunk)
			if err == nil || err.Status != 502 || err.Code != c.code {
				t.Fatalf("Push: %v", err)
			}
			out = r.Fail(out, err)
			o := fold(t, string(out), 1)
			if o.Error == nil || o.Error.Code != c.code || *o.Choices[0].Message.Content != "half" || o.Choices[0].Finish != nil {
				t.Errorf("stream:\n%s", out)
			}
			if rest := r.End(r.Fail(nil, err)); len(rest) > 0 {
				t.Errorf("after the end: %s", rest)
			}
		})
	}
}

func TestFailWhole(t *testing.T) {
	t.Parallel()
	r := mustDecode(t, ask(``)).NewReply()
	if _, err := r.Push(nil, &engine.Chunk{Tokens: tokens("<|channel|>final<|message|>half")}); err != nil {
		t.Fatal(err)
	}
	o := parseObject(t, string(r.Fail(nil, apierror.New(504, "timeout", "", "Too slow."))))
	if o.Error == nil || o.Error.Code != "timeout" || len(o.Choices) > 0 {
		t.Errorf("%+v", o)
	}
}

// TestDone shows when the engine's work is of no more use.
func TestDone(t *testing.T) {
	t.Parallel()
	chunk := func(index int, text string) *engine.Chunk {
		return &engine.Chunk{Index: index, Tokens: tokens(text)}
	}
	push := func(r *Reply, c *engine.Chunk) {
		t.Helper()
		if _, err := r.Push(nil, c); err != nil {
			t.Fatal(err)
		}
	}
	r := mustDecode(t, ask(`,"n":2,"stop":"b"`)).NewReply()
	push(r, chunk(0, "<|channel|>final<|message|>a b c"))
	if r.Done() {
		t.Error("done while a choice goes on")
	}
	push(r, chunk(1, "<|channel|>analysis<|message|>a b c<|end|>"+final("b")))
	if !r.Done() {
		t.Error("not done after the stop strings")
	}

	r = mustDecode(t, ask(``)).NewReply()
	push(r, &engine.Chunk{Tokens: tokens("<|channel|>final<|message|>a<|return|>"), Finish: engine.FinishStop})
	if r.Done() {
		t.Error("done although the usage is to come")
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	call := mustDecode(t, ask(weatherTool+`,"n":2`))
	r := call.NewReply()
	outputs := []string{
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.GetWeather<|channel|>commentary json<|message|>b<|call|>",
		"<|channel|>analysis<|message|>a<|end|><|return|><|start|>assistant<|channel|>final<|message|>c",
	}
	output := 0
	for i, text := range outputs {
		output += len(tokens(text))
		if _, err := r.Push(nil, &engine.Chunk{Index: i, Tokens: tokens(text), Finish: []engine.Finish{engine.FinishStop, engine.FinishLength}[i]}); err != nil {
			t.Fatal(err)
		}
	}
	want := turn.Summary{
		Prompt: len(call.Engine().Prompt), Cached: engine.Unknown, Finish: turn.FinishCalls, Calls: 1,
		Counts:  turn.Counts{Output: output, Reasoning: 2, Call: 1, Text: 1},
		Repairs: map[string]int{"recipient": 1, "stray_stop": 1},
	}
	if diff := cmp.Diff(want, r.Summary()); diff != "" {
		t.Error(diff)
	}
}
