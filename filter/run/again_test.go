package run

import (
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// The header of a call and its arguments: none that the tool takes, and some that it does.
const (
	calledHeader   = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
	brokenArgument = `{"a": 1, "b`
	wrongArgument  = `{"b": 1}`
	rightArgument  = `{"a": "x"}`
)

// startAskingAgain begins the run of a chat with a tool whose arguments are asked for again.
func startAskingAgain(t *testing.T, fields string) *testRun {
	t.Helper()
	request := decodeChat(t, fields+`,"seed":7,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}}]`, false, &turn.Model{ToolArguments: turn.ArgumentsRetry})
	r := newTestRun(t, request, api.Loop, "vllm")
	r.env.Limits.Continuations = 1
	r.Start()
	return r
}

// Arguments that a tool does not take are asked for again after the header of the call,
// under the tool's grammar. The client gets the call once, and every token is counted once.
func TestArgumentsAreAskedForAgain(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{brokenArgument, wrongArgument, "[]"} {
		for size := 1; size < 40; size += 3 {
			r := startAskingAgain(t, `,"stream":true,"stream_options":{"include_usage":true}`)
			first := r.executor.calls[0]
			r.feed(ok())
			for all := tokens(calledHeader + wrong + "<|call|>"); len(all) > 0 && len(r.executor.calls) == 1; all = all[min(size, len(all)):] {
				r.feed(bytesOf(event("", all[:min(size, len(all))]...)))
			}
			if len(r.executor.calls) != 2 || r.Ended() {
				t.Fatalf("%s: %d calls, ended %t", wrong, len(r.executor.calls), r.Ended())
			}
			again := r.executor.calls[1]
			if got := again.Prompt[len(first.Prompt):]; spelled(t, got) != calledHeader {
				t.Errorf("asked after %q", spelled(t, got))
			}
			if again.Constraint == nil || again.MaxTokens != first.MaxTokens-len(tokens(calledHeader)) {
				t.Errorf("asked with %+v", again)
			}
			r.feed(ok(), bytesOf(event("stop", tokens(rightArgument+"<|call|>")...)), Ended(nil))
			got := merged(r.downstream.text.String())
			if !r.Ended() || !strings.Contains(got, "arguments: "+rightArgument+"\n") || !strings.Contains(got, `"tool_calls"`) {
				t.Fatalf("%s: %s", wrong, got)
			}
			if output := len(tokens(calledHeader + rightArgument + "<|call|>")); !strings.Contains(got, " "+strconv.Itoa(output)+" ") {
				t.Errorf("%s: want %d output tokens: %s", wrong, output, got)
			}
		}
	}
}

// The checks of one event's calls take so much work together, and those of the next event as
// much again: hundreds of calls at once do not switch the checks off.
func TestChecksOfEachEvent(t *testing.T) {
	t.Parallel()
	slow := "^a*" + strings.Repeat("a{0,128}", 7) + "b$"
	request := decodeChat(t, `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string","pattern":"`+slow+`"}},"required":["a"]}}}]`, false, &turn.Model{ToolArguments: turn.ArgumentsRetry})
	r := newTestRun(t, request, api.Loop, "vllm")
	r.env.Limits.Continuations = 1
	r.Start()
	many := strings.Repeat(`{"a":"`+strings.Repeat("a", 200)+`b"}<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>`, 50)
	r.feed(ok(), bytesOf(event("", tokens(calledHeader+many+`{"b":1}<|end|><|start|>assistant`)...)))
	if len(r.executor.calls) != 1 {
		t.Fatalf("%d calls: the checks of one event have no bound", len(r.executor.calls))
	}
	r.feed(bytesOf(event("", tokens(`<|channel|>commentary to=functions.f<|message|>{"b":1}<|end|>`)...)))
	if len(r.executor.calls) != 2 {
		t.Errorf("%d calls: the next event's calls are not checked", len(r.executor.calls))
	}
}

// Arguments are asked for once. A lost call that has begun with them is continued after
// the header.
func TestAskedForOnce(t *testing.T) {
	t.Parallel()
	r := startAskingAgain(t, "")
	r.feed(ok(), bytesOf(event("stop", tokens(calledHeader+wrongArgument+"<|call|>")...)))
	r.feed(ok(), bytesOf(event("", tokens(`{"a":`)...)), Broken(errBroken))
	if len(r.executor.calls) != 3 || len(r.executor.calls[2].Prompt) != len(r.executor.calls[1].Prompt) {
		t.Fatalf("%d calls", len(r.executor.calls))
	}
	r.feed(answer(`{"c":`)...)
	if got := gjson.Get(r.downstream.text.String(), "choices.0.message.tool_calls.0.function.arguments").Str; !r.Ended() || got != `{"c":` {
		t.Errorf("ended %t: %s", r.Ended(), r.downstream.text.String())
	}
}

// However many calls a reply has, the arguments of few are asked for again.
func TestAskedForAFewTimes(t *testing.T) {
	t.Parallel()
	const nextHeader = "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
	r := startAskingAgain(t, "")
	r.feed(ok(), bytesOf(event("stop", tokens(calledHeader+wrongArgument+"<|call|>")...)))
	for calls := 2; calls == len(r.executor.calls) && calls < 3*maxAsked; calls++ { // each has another one made
		r.feed(ok(), bytesOf(event("stop", tokens(wrongArgument+nextHeader+wrongArgument+"<|call|>")...)))
	}
	r.feed(Ended(nil))
	if !r.Ended() || len(r.executor.calls) != 1+maxAsked {
		t.Fatalf("ended %t after %d model calls", r.Ended(), len(r.executor.calls))
	}
	calls := gjson.Get(r.downstream.text.String(), "choices.0.message.tool_calls.#.function.arguments").Array()
	if len(calls) != 1+maxAsked || calls[maxAsked].Str != wrongArgument {
		t.Errorf("the client has the arguments %s", calls)
	}
}

// Each choice has its own calls.
func TestChoicesAreAskedAgain(t *testing.T) {
	t.Parallel()
	r := startAskingAgain(t, `,"n":2`)
	r.feed(ok(), bytesOf(event("stop", tokens(calledHeader+wrongArgument+"<|call|>")...)),
		bytesOf(strings.Replace(event("stop", tokens(calledHeader+brokenArgument+"<|call|>")...), `"index":0`, `"index":1`, 1)))
	for range 2 {
		r.feed(answer(rightArgument + "<|call|>")...)
	}
	object := r.downstream.text.String()
	for _, choice := range gjson.Get(object, "choices").Array() {
		if got := choice.Get("message.tool_calls.0.function.arguments").Str; got != rightArgument {
			t.Errorf("arguments %q", got)
		}
	}
	if len(r.executor.calls) != 3 || gjson.Get(object, "choices.#").Int() != 2 {
		t.Errorf("%d calls: %s", len(r.executor.calls), object)
	}
}
