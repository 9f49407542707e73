package run

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// startContinued begins the run of a chat request whose lost calls are continued.
func startContinued(t *testing.T, fields string, limit int) *testRun {
	t.Helper()
	r := newTestRun(t, chatRequest(t, fields, false), api.Loop, "vllm")
	r.env.Limits.Continuations = limit
	r.Start()
	return r
}

// from is the beginning of a replica's answer.
func from(replica string) Event {
	return Answered(200, http.Header{http.CanonicalHeaderKey(header.Upstream): {replica}}, nil)
}

// merged is a streamed reply without the cuts between its deltas.
func merged(reply string) string {
	var all, ends strings.Builder
	last := ""
	for line := range strings.Lines(reply) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		delta := gjson.Get(data, "choices.0.delta")
		for _, path := range []string{"reasoning", "content", "tool_calls.0.function.name", "tool_calls.0.function.arguments"} {
			text := delta.Get(path).Str
			if text == "" {
				continue
			}
			if path != last {
				all.WriteString("\n" + path + ": ")
				last = path
			}
			all.WriteString(text)
		}
		for _, path := range []string{"choices.0.finish_reason", "usage.completion_tokens", "usage.prompt_tokens", "usage.completion_tokens_details.reasoning_tokens", "error.code"} {
			if v := gjson.Get(data, path); v.Exists() && v.Type != gjson.Null {
				ends.WriteString(" " + v.Raw)
			}
		}
	}
	return all.String() + "\n" + ends.String()
}

const continuedOutput = "<|channel|>analysis<|message|>Let me think about é and 你好.<|end|><|start|>assistant" +
	"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":\"b c\"}<|call|>"

const continuedTools = `,"stream":true,"stream_options":{"include_usage":true},"max_tokens":200,"min_tokens":5,"seed":7,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`

// A call that is lost after any token is continued at another replica with the prompt
// and the output so far; the client gets the stream that it would have got.
func TestContinuedAtEveryToken(t *testing.T) {
	t.Parallel()
	all := tokens(continuedOutput)
	whole := startContinued(t, continuedTools, 2)
	whole.feed(from("a"), bytesOf(event("stop", all...)), Ended(nil))
	want := merged(whole.downstream.text.String())
	if !strings.Contains(want, `"tool_calls"`) {
		t.Fatal(want)
	}
	prompt := whole.executor.calls[0].Prompt
	for n := 1; n < len(all); n++ {
		for name, lost := range map[string]func(r *testRun){
			"broken":  func(r *testRun) { r.feed(Broken(errBroken)) },
			"ended":   func(r *testRun) { r.feed(Ended(nil)) },
			"silent":  func(r *testRun) { r.wait(2*time.Minute, TimerIdle) },
			"aborted": func(r *testRun) { r.feed(bytesOf(event("abort"))) },
			"failed":  func(r *testRun) { r.feed(inBand(500)) },
			"late":    func(r *testRun) { r.feed(inBand(504)) },
		} {
			r := startContinued(t, continuedTools, 2)
			r.feed(from("a"), bytesOf(event("", all[:n]...)))
			lost(r)
			if len(r.executor.calls) != 2 {
				t.Fatalf("%s after %d tokens: %d calls: %s", name, n, len(r.executor.calls), &r.downstream.text)
			}
			next := r.executor.calls[1]
			if !slices.Equal(next.Prompt, slices.Concat(prompt, all[:n])) || next.MaxTokens != 200-n || next.MinTokens != max(0, 5-n) || *next.Seed != 8 {
				t.Fatalf("%s after %d tokens: %d prompt tokens, %d and %d tokens, seed %d", name, n, len(next.Prompt), next.MaxTokens, next.MinTokens, *next.Seed)
			}
			if retry := r.executor.attempts[1]; retry.Excluded != "a" {
				t.Fatalf("%s: the retry is %v", name, retry)
			}
			r.feed(from("b"), bytesOf(event("stop", all[n:]...)), Ended(nil))
			if got := merged(r.downstream.text.String()); got != want || !r.Ended() {
				t.Fatalf("%s after %d tokens:\n%s\nwant\n%s", name, n, got, want)
			}
		}
	}
}

// inBand is an error event of the engine in its answer.
func inBand(status int) Event {
	return bytesOf(fmt.Sprintf(`data: {"error":{"message":"EngineCore encountered an issue.","code":%d}}`+"\n\n", status))
}

// An engine that says itself that it was too slow is what the filter's own deadline is: output
// is continued, and a call without any is not repeated.
func TestLateEngine(t *testing.T) {
	t.Parallel()
	late := map[string]func(r *testRun){
		"its own word": func(r *testRun) { r.feed(inBand(504)) },
		"408":          func(r *testRun) { r.feed(inBand(408)) },
		"our deadline": func(r *testRun) { r.wait(2*time.Minute, TimerIdle) },
	}
	for name, lost := range late {
		for output, calls := range map[string]int{"": 1, "<|channel|>final<|message|>a": 2} {
			r := startContinued(t, `,"stream":true`, 2)
			r.feed(from("a"))
			if output != "" {
				r.feed(bytesOf(event("", tokens(output)...)))
			}
			lost(r)
			if len(r.executor.calls) != calls || r.Ended() != (calls == 1) {
				t.Errorf("%s after %q: %d calls, ended %t: %s", name, output, len(r.executor.calls), r.Ended(), &r.downstream.text)
			}
			if err := r.downstream.err; calls == 1 && (err == nil || err.Status != 504) {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
	}
}

// Each loss that another engine goes on from is logged when it happens, once: what was lost,
// where, how much of its output stays, and why. Other ends of calls are in the line of the
// request alone.
func TestEachLossIsLogged(t *testing.T) {
	t.Parallel()
	type line struct {
		Engine, Replica, Code any
		Kept, Status          any
	}
	r := startContinued(t, `,"stream":true`, 3)
	logged := test.NewLocal(r.env.Telemetry.Log)
	piece := func(text string) Event { return bytesOf(event("", tokens(text)...)) }

	r.feed(from("a"), piece("<|channel|>final<|message|>one"), Broken(errBroken))
	r.feed(from("b"), piece(" two three"), inBand(504))
	r.feed(from("c"), Ended(nil)) // retried: nothing of it was lost
	r.feed(from("d"), piece(" four"))
	r.wait(2*time.Minute, TimerIdle)
	r.feed(from("e"), piece(" five"), Broken(errBroken)) // continued as often as allowed

	got := make([]line, 0, len(logged.AllEntries()))
	for _, e := range logged.AllEntries() {
		if e.Level != logrus.WarnLevel || e.Data["request_id"] != "abc" || e.Data["error"] == "" {
			t.Errorf("%v: %s %v", e.Level, e.Message, e.Data)
		}
		got = append(got, line{e.Data["engine"], e.Data["replica"], e.Data["code"], e.Data["kept_tokens"], e.Data["status"]})
	}
	want := []line{
		{"main", "a", "engine_disconnected", 4, 502},
		{"main", "b", nil, 6, 504},
		{"main", "d", "engine_timeout", 7, 504},
	}
	if diff := cmp.Diff(want, got); diff != "" || !r.Ended() {
		t.Errorf("ended %t (-want +got):\n%s", r.Ended(), diff)
	}
}

// A lost call is not continued where the client could get something wrong.
func TestNotContinued(t *testing.T) {
	t.Parallel()
	const strict = `,"stream":true,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}`
	const thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
	for name, c := range map[string]struct {
		fields, output string
		limit, calls   int
	}{
		"continued":                  {`,"stream":true`, "<|channel|>final<|message|>a", 2, 2},
		"off":                        {`,"stream":true`, "<|channel|>final<|message|>a", 0, 1},
		"before the grammar's part":  {strict, thought + "<|channel|>final<|message|>", 2, 2},
		"in the grammar's part":      {strict, thought + `<|channel|>final<|message|>{"a":`, 2, 1},
		"after a call":               {continuedTools, "<|channel|>commentary to=functions.f<|message|>{}<|end|><|start|>assistant", 2, 1},
		"in a call":                  {continuedTools, "<|channel|>commentary to=functions.f<|message|>{", 2, 2},
		"many choices":               {`,"stream":true,"n":2`, "<|channel|>final<|message|>a", 2, 2},
		"many choices, none of them": {`,"stream":true,"n":2`, "", 2, 2}, // a retry
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startContinued(t, c.fields, c.limit)
			r.feed(ok())
			if c.output != "" {
				r.feed(bytesOf(event("", tokens(c.output)...)))
			}
			r.feed(Broken(errBroken))
			if len(r.executor.calls) != c.calls || r.Ended() != (c.calls == 1) {
				t.Errorf("%d calls, ended %t: %s", len(r.executor.calls), r.Ended(), &r.downstream.text)
			}
			if text := r.downstream.text.String(); c.calls == 1 && !strings.Contains(text, "engine_disconnected") {
				t.Errorf("no error in %s", text)
			}
		})
	}
}

// A reply is continued as often as allowed. A continuing call without output is retried
// as a first one is.
func TestContinuedAsOftenAsAllowed(t *testing.T) {
	t.Parallel()
	r := startContinued(t, `,"stream":true`, 2)
	broken := Broken(errBroken)
	piece := func(text string) Event { return bytesOf(event("", tokens(text)...)) }
	r.feed(from("a"), piece("<|channel|>final<|message|>one"), broken)
	r.feed(from("b"), broken) // retried
	r.feed(from("c"), piece(" two"), broken)
	r.feed(from("d"), piece(" three"), broken)
	if len(r.executor.calls) != 4 || !r.Ended() {
		t.Fatalf("%d calls, ended %t", len(r.executor.calls), r.Ended())
	}
	got := merged(r.downstream.text.String())
	if !strings.Contains(got, "content: one two three\n") || !strings.Contains(got, "engine_disconnected") {
		t.Error(got)
	}
}

// A call that is lost after its last token is complete.
func TestLostAtItsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ fields, output, finish string }{
		"answer":     {`,"stream":true`, "<|channel|>final<|message|>hi<|return|>", `"stop"`},
		"call":       {continuedTools, "<|channel|>commentary to=functions.f<|message|>{}<|call|>", `"tool_calls"`},
		"length":     {`,"stream":true,"max_tokens":4`, "<|channel|>final<|message|>hi", `"length"`},
		"stop token": {`,"stream":true,"stop_token_ids":[3575]`, "<|channel|>final<|message|>hi", `"stop"`},
	} {
		output := tokens(c.output)
		if name == "stop token" {
			output = append(output, 3575)
		}
		r := startContinued(t, c.fields, 2)
		r.feed(ok(), bytesOf(event("", output...)), Broken(errBroken))
		if got := merged(r.downstream.text.String()); len(r.executor.calls) != 1 || !r.Ended() || !strings.Contains(got, c.finish) || strings.Contains(got, "engine_disconnected") {
			t.Errorf("%s: %d calls, ended %t: %s", name, len(r.executor.calls), r.Ended(), got)
		}
	}
}

// The choices that are not complete are continued one after the other.
func TestChoicesAreContinued(t *testing.T) {
	t.Parallel()
	r := startContinued(t, `,"n":3`, 2)
	choice := func(i int, finish, text string) Event {
		e := strings.Replace(event(finish, tokens(text)...), `"index":0`, fmt.Sprintf(`"index":%d`, i), 1)
		return bytesOf(e)
	}
	r.feed(ok(), choice(0, "", "<|channel|>final<|message|>a"), choice(1, "stop", "<|channel|>final<|message|>b<|return|>"), Broken(errBroken))
	r.feed(ok(), choice(0, "stop", "0<|return|>"), Ended(nil))
	r.feed(ok(), choice(0, "stop", "<|channel|>final<|message|>c<|return|>"), Ended(nil))
	text := r.downstream.text.String()
	for i, want := range []string{"a0", "b", "c"} {
		if got := gjson.Get(text, fmt.Sprintf("choices.%d.message.content", i)).Str; got != want {
			t.Errorf("choice %d is %q, want %q", i, got, want)
		}
	}
	if len(r.executor.calls) != 3 || r.executor.calls[1].N != 1 || !r.Ended() {
		t.Errorf("%d calls, ended %t: %s", len(r.executor.calls), r.Ended(), text)
	}
}

// The counts of cached tokens are those of the prompt, without output.
func TestContinuedCounts(t *testing.T) {
	t.Parallel()
	r := startContinued(t, "", 2)
	prompt := len(r.executor.calls[0].Prompt)
	r.feed(ok(), bytesOf(event("", tokens("<|channel|>final<|message|>a")...)), Broken(errBroken))
	usage := fmt.Sprintf(`data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":%d}}}`+"\n\n", prompt+4, prompt+3)
	r.feed(ok(), bytesOf(event("stop", append(tokens("b"), harmony.TokenReturn)...)), bytesOf(usage), Ended(nil))
	text := r.downstream.text.String()
	for path, want := range map[string]int{"usage.prompt_tokens": prompt, "usage.completion_tokens": 6, "usage.prompt_tokens_details.cached_tokens": prompt} {
		if got := gjson.Get(text, path).Int(); got != int64(want) {
			t.Errorf("%s is %d, want %d: %s", path, got, want, text)
		}
	}
}

// The call after an interruption is lost before it has had any output, and so are those in
// its place: the error is that of the last one.
func TestLostBehindAnInterruption(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"", `,"stream":true`} {
		r := startContinued(t, `,"max_tokens":200,"thinking_token_budget":2`+stream, 2)
		r.feed(from("a"), bytesOf(event("", tokens("<|channel|>analysis<|message|> a a a a a")...)))
		for range 8 {
			r.feed(Broken(errBroken))
		}
		if text := r.downstream.text.String(); !r.Ended() || r.downstream.err == nil && !strings.Contains(text, "engine_disconnected") {
			t.Errorf("%q: ended %t, error %v: %s", stream, r.Ended(), r.downstream.err, text)
		}
	}
}
