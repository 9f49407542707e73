package chat

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

func TestUsageAndFingerprint(t *testing.T) {
	t.Parallel()
	for _, streamed := range []bool{false, true} {
		members := ``
		if streamed {
			members = `,"stream":true,"stream_options":{"include_usage":true}`
		}
		out := run(t, mustDecode(t, ask(members)), []engine.Chunk{
			{Tokens: apitest.Tokens("<|channel|>analysis<|message|>one two<|end|>")},
			{Tokens: apitest.Tokens(final("three")), Fingerprint: "v1", Finish: engine.FinishStop},
			{Usage: &engine.Usage{CachedTokens: 16}},
		})
		var o object
		if streamed {
			o = fold(t, out, 1)
		} else {
			o = parseObject(t, out)
		}
		if o.System != "v1" || o.Usage.Details == nil || o.Usage.Details.Cached != 16 || o.Usage.Output.Reasoning != 2 ||
			o.Usage.Completion != len(apitest.Tokens("<|channel|>analysis<|message|>one two<|end|>"+final("three"))) || o.Usage.Total != o.Usage.Prompt+o.Usage.Completion {
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
		rc := apitest.NewContext()
		rc.Model.ReasoningFields = setting
		for _, members := range []string{``, `,"stream":true`} {
			request := decodeWith(t, rc, ask(members))
			got := answer(t, request, "<|channel|>analysis<|message|>a<|end|>", engine.FinishStop)
			if !strings.Contains(got, strings.TrimPrefix(want, ",")+"}") {
				t.Errorf("%q: no %s in\n%s", setting, want, got)
			}
		}
	}
}

// TestReasoningHidden shows replies to requests that hide the reasoning.
func TestReasoningHidden(t *testing.T) {
	t.Parallel()
	for _, members := range []string{`,"reasoning_effort":"none"`, `,"include_reasoning":false`, `,"reasoning_effort":"none","include_reasoning":true`} {
		for _, stream := range []string{``, `,"stream":true`} {
			got := answer(t, mustDecode(t, ask(members+stream)), "<|channel|>analysis<|message|>secret<|end|>"+final("said"), engine.FinishStop)
			if strings.Contains(got, "secret") || !strings.Contains(got, "said") {
				t.Errorf("%s%s: %s", members, stream, got)
			}
		}
	}
}

// TestEngineFails shows the streams of engines that fail.
func TestEngineFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		chunk engine.Chunk
		code  string
	}{
		{"abort", engine.Chunk{Finish: engine.FinishAbort}, "engine_aborted"},
		{"a choice too many", engine.Chunk{Index: 1, Tokens: apitest.Tokens("a")}, "engine_error"},
		{"malformed", engine.Chunk{Tokens: apitest.Tokens("<|end|>stray<|end|>"), Finish: engine.FinishStop}, "malformed_output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rc := apitest.NewContext()
			rc.Model.OnMalformed = turn.MalformedFail
			request := decodeWith(t, rc, ask(`,"stream":true`))
			r := request.NewReply(api.SingleCall)
			out, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>final<|message|>half")})
			if err != nil {
				t.Fatal(err)
			}
			out, err = r.Push(out, &c.chunk)
			if err == nil || err.Status != 502 || err.Code != c.code {
				t.Fatalf("Push: %v", err)
			}
			out = r.Fail(out, err)
			if _, step, err := r.Step(nil); err != nil || step.Call != nil || len(step.Jobs) > 0 {
				t.Errorf("the step after the failure is %v, error %v", step, err)
			}
			if out, err = r.End(out); err != nil {
				t.Errorf("a stream ends with %v", err)
			}
			o := fold(t, string(out), 1)
			if o.Error == nil || o.Error.Code != c.code || *o.Choices[0].Message.Content != "half" || o.Choices[0].Finish != nil {
				t.Errorf("stream:\n%s", out)
			}
			if rest, err := r.End(r.Fail(nil, err)); len(rest) > 0 || err != nil {
				t.Errorf("after the end: %s, %v", rest, err)
			}
		})
	}
}

func TestFailWhole(t *testing.T) {
	t.Parallel()
	r := mustDecode(t, ask(``)).NewReply(api.SingleCall)
	if _, err := r.Push(nil, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>final<|message|>half")}); err != nil {
		t.Fatal(err)
	}
	timeout := apierror.New(504, "timeout", "", "Too slow.")
	out := r.Fail(nil, timeout)
	out = r.Fail(out, apierror.New(503, "overloaded", "", "Later."))
	if out, err := r.End(out); len(out) > 0 || err != timeout || !r.Done() {
		t.Errorf("%s, %v, done %t", out, err, r.Done())
	}
}

// TestDone shows when the model call can be dropped.
func TestDone(t *testing.T) {
	t.Parallel()
	chunk := func(index int, text string) *engine.Chunk {
		return &engine.Chunk{Index: index, Tokens: apitest.Tokens(text)}
	}
	push := func(r api.Reply, c *engine.Chunk) {
		t.Helper()
		if _, err := r.Push(nil, c); err != nil {
			t.Fatal(err)
		}
	}
	r := mustDecode(t, ask(`,"n":2,"stop":"b"`)).NewReply(api.SingleCall)
	push(r, chunk(0, "<|channel|>final<|message|>a b c"))
	if r.Done() {
		t.Error("done while a choice goes on")
	}
	push(r, chunk(1, "<|channel|>analysis<|message|>a b c<|end|>"+final("b")))
	if !r.Done() {
		t.Error("not done after the stop strings")
	}

	r = mustDecode(t, ask(``)).NewReply(api.SingleCall)
	push(r, &engine.Chunk{Tokens: apitest.Tokens("<|channel|>final<|message|>a<|return|>"), Finish: engine.FinishStop})
	if r.Done() {
		t.Error("done although the usage is to come")
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	request := mustDecode(t, ask(weatherTool+`,"n":2`))
	r := request.NewReply(api.SingleCall)
	outputs := []string{
		"<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.GetWeather<|channel|>commentary json<|message|>b<|call|>",
		"<|channel|>analysis<|message|>a<|end|><|return|><|start|>assistant<|channel|>final<|message|>c",
	}
	output := 0
	for i, text := range outputs {
		output += len(apitest.Tokens(text))
		if _, err := r.Push(nil, &engine.Chunk{Index: i, Tokens: apitest.Tokens(text), Finish: []engine.Finish{engine.FinishStop, engine.FinishLength}[i]}); err != nil {
			t.Fatal(err)
		}
	}
	want := turn.Summary{
		Prompt: len(request.Engine().Prompt), Cached: engine.Unknown, Finish: turn.FinishCalls, Calls: 1,
		Counts:  turn.Counts{Output: output, Reasoning: 2, Call: 1, Text: 1},
		Repairs: map[string]int{"recipient": 1, "stray_stop": 1, "raw_text": 1},
	}
	if diff := cmp.Diff(want, r.Summary()); diff != "" {
		t.Error(diff)
	}
}
