package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// startVerified begins the run of a chat request whose engine takes no grammar. In
// the mode SingleCall no call can be repeated.
func startVerified(t *testing.T, fields string, mode api.Mode) *testRun {
	t.Helper()
	request := chatRequest(t, fields, true)
	r := newTestRun(t, request, mode, "llamacpp")
	if mode == api.Loop {
		r.Start()
	} else {
		r.Await(request.Engine())
	}
	return r
}

// llamacppAnswer is an answer as llama.cpp streams it.
func llamacppAnswer(text, stopType string) []Event {
	events := []Event{ok()}
	ids := tokens(text)
	for i, id := range ids {
		content, _ := json.Marshal(decoded(id))
		events = append(events, bytesOf(fmt.Sprintf(`data: {"content":%s,"tokens":[%d],"stop":false,"tokens_predicted":%d}`+"\n\n", content, id, i+1)))
	}
	last := fmt.Sprintf(`data: {"content":"","tokens":[],"stop":true,"stop_type":%q,"tokens_predicted":%d,"timings":{"cache_n":4}}`+"\n\n", stopType, len(ids))
	return append(events, bytesOf(last), Ended(nil))
}

func decoded(id harmony.Token) string {
	text, _ := harmony.AppendDecode(nil, []harmony.Token{id})
	return string(text)
}

// contentOf is the text of a reply, streamed or not.
func contentOf(reply string) string {
	var content strings.Builder
	for line := range strings.Lines(reply) {
		line = strings.TrimPrefix(line, "data: ")
		content.WriteString(gjson.Get(line, "choices.0.delta.content").Str)
		content.WriteString(gjson.Get(line, "choices.0.message.content").Str)
	}
	return content.String()
}

// An answer of an engine that takes no grammar is verified before the client gets
// anything of it. One of the wrong form is asked for once more; the second one
// fails the reply.
func TestAnswersAreVerified(t *testing.T) {
	t.Parallel()
	const format = `,"seed":7,"response_format":{"type":"json_object"}`
	kept := llamacppAnswer(`<|channel|>final<|message|>{"a":1}<|return|>`, "eos")
	wrong := llamacppAnswer("<|channel|>analysis<|message|>secret<|end|><|start|>assistant<|channel|>final<|message|>hello<|return|>", "eos")
	short := llamacppAnswer(`<|channel|>final<|message|>{"a`, "limit")
	lost := []Event{ok(), Broken(errBroken)}
	lostMidway := append(wrong[:3:3], Broken(errBroken))
	for name, c := range map[string]struct {
		answers [][]Event // of each call
		calls   int
		text    string // that the client gets; "": the error
	}{
		"kept":                    {[][]Event{kept}, 1, `{"a":1}`},
		"wrong, then kept":        {[][]Event{wrong, kept}, 2, `{"a":1}`},
		"wrong twice":             {[][]Event{wrong, wrong}, 2, ""},
		"ended by its length":     {[][]Event{short}, 1, `{"a`},
		"lost, then kept":         {[][]Event{lost, kept}, 2, `{"a":1}`},
		"lost, then wrong":        {[][]Event{lost, wrong}, 2, ""},
		"lost midway, then kept":  {[][]Event{lostMidway, kept}, 2, `{"a":1}`},
		"lost midway, then wrong": {[][]Event{lostMidway, wrong}, 2, ""},
		"wrong, then too long":    {[][]Event{wrong, short}, 2, `{"a`},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %t", name, stream), func(t *testing.T) {
				t.Parallel()
				r := startVerified(t, fmt.Sprintf(`%s,"stream":%t`, format, stream), api.Loop)
				made, d := r.executor, r.downstream
				for i, events := range c.answers {
					for j, e := range events {
						if r.feed(e); j < len(events)-3 && (d.header != nil || d.text.Len() > 0) {
							t.Fatalf("of call %d something is sent before it is verified: %s", i, &d.text)
						}
						if len(made.calls) > i+1 || r.Ended() {
							break // a call that is over has no events
						}
					}
				}
				if len(made.calls) != c.calls || !r.Ended() {
					t.Fatalf("%d calls, ended %t", len(made.calls), r.Ended())
				}
				text := d.text.String()
				if c.text == "" {
					if d.err == nil || d.err.Status != 502 || d.err.Code != "constraint_not_kept" || text != "" {
						t.Errorf("error %v: %s", d.err, text)
					}
					return
				}
				if d.err != nil || !d.ended || strings.Contains(text, "secret") || contentOf(text) != c.text {
					t.Errorf("error %v, ended %t: %s", d.err, d.ended, text)
				}
			})
		}
	}
}

// startLongChecked is startVerified for a request that has few steps of work left, so that
// whether its answer has its form is decided by a job.
func startLongChecked(t *testing.T, fields string) *testRun {
	t.Helper()
	const few = 50_000
	r := newTestRun(t, decodeAccounted(t, fields, true, &turn.Model{}, work.New(t.Context(), few)), api.Loop, "llamacpp")
	r.Start()
	return r
}

// decide does the job by which an answer is checked, and hands its result to the run.
func (r *testRun) decide(t *testing.T) {
	t.Helper()
	if len(r.executor.beside) != 1 {
		t.Fatalf("%d jobs beside the call, want the check", len(r.executor.beside))
	}
	result, err := r.executor.beside[0].Do(t.Context())
	r.executor.beside = nil
	r.At(r.now)
	r.JobDone(JobDone{Result: result, Err: err})
}

// A check that takes much work is a job. The run receives from the engine, its timers and the
// client meanwhile, and nothing of the answer goes out before the decision.
func TestLongChecksAreJobs(t *testing.T) {
	t.Parallel()
	const format = `,"seed":7,"guided_regex":"[a-z ]*","stream":true`
	long := strings.Repeat("many words ", 15)
	answer := func(text string) []Event {
		return llamacppAnswer("<|channel|>final<|message|>"+text+"<|return|>", "eos")
	}
	kept, wrong := answer(long), answer(long+"!")
	broken := Broken(errBroken)

	for name, c := range map[string]struct {
		answers [][]Event
		after   []Event // the decision about the last answer
		text    string  // that the client gets; "": the error
		calls   int
	}{
		"kept":                              {[][]Event{kept[:len(kept)-1]}, kept[len(kept)-1:], long, 1},
		"kept, and ended before":            {[][]Event{kept}, nil, long, 1},
		"kept, its connection broken since": {[][]Event{append(kept[:len(kept)-2:len(kept)-2], kept[len(kept)-2], broken)}, nil, long, 1},
		"wrong, then kept":                  {[][]Event{wrong, kept}, nil, long, 2},
		"wrong twice":                       {[][]Event{wrong, wrong}, nil, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startLongChecked(t, format)
			for _, events := range c.answers {
				r.feed(events...)
				if text := r.downstream.text.String(); r.Ended() || strings.Contains(text, "data:") {
					t.Fatalf("before the decision: ended %t: %s", r.Ended(), text)
				}
				r.wait(time.Second, TimerKeepAlive)
				r.decide(t)
			}
			r.feed(c.after...)
			if n := len(r.executor.calls); n != c.calls || !r.Ended() {
				t.Fatalf("%d calls, ended %t", n, r.Ended())
			}
			text := r.downstream.text.String()
			if c.text == "" {
				if !strings.Contains(text, "constraint_not_kept") {
					t.Errorf("%v: %s", r.downstream.err, text)
				}
				return
			}
			if contentOf(text) != c.text || !strings.HasSuffix(text, "data: [DONE]\n\n") {
				t.Errorf("error %v: %s", r.downstream.err, text)
			}
		})
	}
}

// The check of an answer can begin when the reservation of a call that goes on with another
// choice is refused: the run waits for its decision then too.
func TestLongChecksBehindARefusal(t *testing.T) {
	t.Parallel()
	const (
		schema = `{"type":"object","properties":{"n":{"type":"array","items":{"anyOf":[{"type":"null"},{"enum":["a"]},{"const":-1},{"type":"string"},{"type":"integer"}]},"uniqueItems":true}},"required":["n"],"additionalProperties":false}`
		fields = `,"max_tokens":30000,"n":2,"thinking_token_budget":2,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":` + schema + `}}`
		room   = 60_000
	)
	request := decodeAccounted(t, fields, false, &turn.Model{}, work.New(t.Context(), work.PerRequest))
	r := startBudgetedAt(t, "vllm", request, budget.Budget{Tokens: int64(len(request.Engine().Prompt) + room)})
	var answer strings.Builder
	answer.WriteString(`{"n":[0`)
	for i := range 9_000 {
		fmt.Fprintf(&answer, ",%d", i+1)
	}
	choice := func(i int, finish, text string) {
		r.feed(bytesOf(strings.Replace(event(finish, tokens(text)...), `"index":0`, fmt.Sprintf(`"index":%d`, i), 1)))
	}
	r.feed(ok())
	choice(0, "stop", "<|channel|>final<|message|>"+answer.String()+"]}<|return|>")
	choice(1, "", "<|channel|>analysis<|message|> a a"+strings.Repeat(" b", 25_000))

	if n := r.do(&r.executor.jobs); n != 1 || r.Ended() {
		t.Fatalf("%d reservations, ended %t", n, r.Ended())
	}
	if n := r.do(&r.executor.beside); n != 1 || !r.Ended() || !strings.Contains(r.downstream.text.String(), `"length"`) {
		t.Errorf("%d checks, ended %t: %.300s", n, r.Ended(), &r.downstream.text)
	}
}

// An answer that takes more work to check than the request has left is an error, and is not
// asked for once more.
func TestChecksEndWithTheAccount(t *testing.T) {
	t.Parallel()
	r := startLongChecked(t, `,"guided_regex":"[a-z ]*"`)
	r.feed(llamacppAnswer("<|channel|>final<|message|>"+strings.Repeat("many words ", 10_000)+"<|return|>", "eos")...)
	r.decide(t)
	if err := r.downstream.err; !r.Ended() || err == nil || err.Code != "constraint_not_kept" || !strings.Contains(err.Message, "too much work") || r.retries() != 0 {
		t.Errorf("ended %t, %d retries: %v", r.Ended(), r.retries(), err)
	}
}

// Who leaves, or a deadline, does not wait for a decision.
func TestLongChecksAreGivenUp(t *testing.T) {
	t.Parallel()
	answer := llamacppAnswer("<|channel|>final<|message|>"+strings.Repeat("many words ", 15)+"<|return|>", "eos")
	for name, end := range map[string]func(r *testRun){
		"deadline": func(r *testRun) { r.wait(time.Hour, TimerTotal) },
		"client":   func(r *testRun) { r.Cancel() },
	} {
		r := startLongChecked(t, `,"guided_regex":"[a-z ]*"`)
		r.feed(answer...)
		end(r)
		if !r.Ended() {
			t.Errorf("%s: the run goes on", name)
		}
		r.decide(t)
		if text := r.downstream.text.String(); text != "" {
			t.Errorf("%s: after the end the client gets %s", name, text)
		}
	}
}

// The repeated call has another seed, and only its own tokens are counted.
func TestRepeatedCall(t *testing.T) {
	t.Parallel()
	r := startVerified(t, `,"seed":7,"response_format":{"type":"json_object"}`, api.Loop)
	wrong := llamacppAnswer("<|channel|>final<|message|>hello, it is a long answer<|return|>", "eos")
	r.feed(wrong[:len(wrong)-2]...) // to the token that ends it
	made := r.executor.calls
	if len(made) != 2 || *made[0].Seed != 7 || *made[1].Seed != 8 {
		t.Fatalf("%d calls", len(made))
	}
	const kept = `<|channel|>final<|message|>{}<|return|>`
	r.feed(llamacppAnswer(kept, "eos")...)
	if want := fmt.Sprintf(`"completion_tokens":%d`, len(tokens(kept))); !strings.Contains(r.downstream.text.String(), want) {
		t.Errorf("no %s in %s", want, &r.downstream.text)
	}
}

// Once a stream's headers are sent, because the answer takes long, the error is in
// the stream. Without the loopback listener no call can be repeated.
func TestSlowStreamIsVerified(t *testing.T) {
	t.Parallel()
	events := llamacppAnswer("<|channel|>final<|message|>hello<|return|>", "eos")
	for name, c := range map[string]struct {
		mode  api.Mode
		calls int
	}{"loopback": {api.Loop, 2}, "direct": {api.SingleCall, 1}} {
		r := startVerified(t, `,"stream":true,"response_format":{"type":"json_object"}`, c.mode)
		d := r.downstream
		for range c.calls {
			r.feed(events[:4]...)
			r.wait(time.Minute, TimerHold)
			r.wait(0, TimerKeepAlive)
			if text := d.text.String(); len(d.header) == 0 || !strings.Contains(text, api.KeepAliveComment) || strings.Contains(text, "data:") {
				t.Fatalf("%s: headers %v: %s", name, d.header, text)
			}
			r.feed(events[4 : len(events)-2]...)
		}
		if text := d.text.String(); !r.Ended() || d.err != nil || !strings.Contains(text, "constraint_not_kept") || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("%s: ended %t, error %v: %s", name, r.Ended(), d.err, text)
		}
		if n := len(r.executor.calls); c.mode == api.Loop && n != c.calls {
			t.Errorf("%d calls", n)
		}
	}
}

// What is held back of an answer takes the memory of its tokens, however small the
// pieces are in which they come.
func TestVerifierHoldsTokens(t *testing.T) {
	t.Parallel()
	usage, likely := &engine.Usage{CachedTokens: 3}, []engine.Logprob{{Value: -1}}
	memory := make([]harmony.Token, 1) // the decoder's, of one chunk
	v := &verifier{}
	for _, c := range []engine.Chunk{
		{Index: 0, Tokens: tokens("a"), Usage: usage},
		{Index: 1, Tokens: tokens("k")},
		{Index: 0, Tokens: tokens("b")},
		{Index: 1, Tokens: tokens("l")},
		{Index: 0, Tokens: tokens("c"), Logprobs: likely},
		{Index: 0, Tokens: tokens("d")},
		{Index: 0, Tokens: tokens("e")},
		{Index: 1, Tokens: tokens("m"), Finish: engine.FinishStop},
		{Index: 0, Tokens: tokens("f"), Fingerprint: "x"},
		{Index: 0, Usage: usage},
	} {
		if len(c.Tokens) > 0 {
			memory[0] = c.Tokens[0]
			c.Tokens = memory
		}
		v.hold(&c)
	}
	want := []engine.Chunk{
		{Index: 0, Tokens: append(tokens("a"), tokens("b")...), Usage: usage},
		{Index: 1, Tokens: append(tokens("k"), tokens("l")...)},
		{Index: 0, Tokens: tokens("c"), Logprobs: likely},
		{Index: 0, Tokens: append(tokens("d"), tokens("e")...)},
		{Index: 1, Tokens: tokens("m"), Finish: engine.FinishStop},
		{Index: 0, Tokens: tokens("f"), Fingerprint: "x"},
		{Index: 0, Usage: usage},
	}
	if diff := cmp.Diff(want, v.held); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}
