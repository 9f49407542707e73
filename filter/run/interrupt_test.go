package run

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// playedReply is a model's output after prompts with an end.
type playedReply struct{ behind, output string }

// play answers the run's model calls until it has ended, in pieces of random sizes, and
// returns how many there were.
func (r *testRun) play(t *testing.T, random *rand.Rand, replies ...playedReply) int {
	t.Helper()
	for n := 0; ; n++ {
		if r.Ended() {
			return n
		}
		if len(r.executor.calls) == n || n > 20 {
			t.Fatalf("no end after %d calls: %s", n, &r.downstream.text)
		}
		call := r.executor.calls[n]
		text, err := harmony.AppendDecode(nil, call.Prompt)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(replies, func(p playedReply) bool { return strings.HasSuffix(string(text), p.behind) })
		if i < 0 {
			t.Fatalf("no reply after %q", text[max(0, len(text)-200):])
		}
		output := tokens(replies[i].output)
		output = output[:min(len(output), call.MaxTokens)]
		r.feed(ok())
		for len(output) > 0 && len(r.executor.calls) == n+1 && !r.Ended() {
			k := 1 + random.IntN(len(output))
			finish := ""
			if k == len(output) {
				finish = "stop"
				if end := output[k-1]; end != harmony.TokenReturn && end != harmony.TokenCall {
					finish = "length"
				}
			}
			r.feed(bytesOf(event(finish, output[:k]...)))
			output = output[k:]
		}
		if len(r.executor.calls) == n+1 && !r.Ended() {
			r.feed(Ended(nil))
		}
	}
}

const endless = "<|channel|>analysis<|message|>" // and filler

func reasoning(words int) string { return endless + strings.Repeat(" word", words) }

// Reasoning beyond its budget is ended, and the model answers or calls: in one stream, and
// the same in any pieces.
func TestReasoningBudget(t *testing.T) {
	t.Parallel()
	const (
		final  = "<|end|><|start|>assistant<|channel|>final<|message|>"
		chosen = "<|end|><|start|>assistant"
		strict = `,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}`
		tool   = `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`
	)
	answer := playedReply{final, "Well.<|return|>"}
	for name, c := range map[string]struct {
		fields  string
		output  string // of the first call
		replies []playedReply
		calls   int
		want    []string // in the merged reply
	}{
		"within":      {`,"thinking_token_budget":100`, reasoning(9) + final + "Well.<|return|>", nil, 1, []string{"content: Well.", `"stop"`}},
		"beyond":      {`,"thinking_token_budget":5`, reasoning(50), []playedReply{answer}, 2, []string{"reasoning:  word word word word word\ncontent: Well.", `"stop" 17 `, " 5"}},
		"none":        {`,"reasoning":{"max_tokens":0}`, reasoning(50), []playedReply{answer}, 2, []string{"\ncontent: Well."}},
		"an answer":   {`,"reasoning":{"max_tokens":5}` + tool, reasoning(50), []playedReply{{chosen, "<|channel|>final<|message|>Well.<|return|>"}}, 2, []string{"\ncontent: Well.", `"stop"`}},
		"a call":      {`,"reasoning":{"max_tokens":5}` + tool, reasoning(50), []playedReply{{chosen, "<|channel|>commentary to=functions.f<|message|>{}<|call|>"}}, 2, []string{"name: f", `"tool_calls"`}},
		"reasons on":  {`,"reasoning":{"max_tokens":5}` + tool, reasoning(50), []playedReply{answer, {chosen, reasoning(9)}}, 3, []string{"reasoning:  word word word word word\ncontent: Well."}},
		"must call":   {`,"reasoning":{"max_tokens":5},"tool_choice":"required"` + tool, reasoning(50), []playedReply{{"commentary to=", "functions.f<|message|>{}<|call|>"}, {chosen, reasoning(9)}}, 3, []string{"name: f", `"tool_calls"`}},
		"grammar":     {`,"reasoning":{"max_tokens":5}` + strict, reasoning(50), []playedReply{{final, `{"a":1}<|return|>`}}, 2, []string{`content: {"a":1}`, `"stop"`}},
		"no room":     {`,"reasoning":{"max_tokens":5},"max_tokens":10`, reasoning(50), nil, 1, []string{`"length" 8 `}},
		"stop string": {`,"reasoning":{"max_tokens":5},"stop":["ll"]`, reasoning(50), []playedReply{answer}, 2, []string{"content: We\n", `"stop"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var before string
			for seed := range uint64(20) {
				r := startContinued(t, `,"stream":true,"stream_options":{"include_usage":true}`+c.fields, 0)
				first := playedReply{spelled(t, r.executor.calls[0].Prompt), c.output}
				calls := r.play(t, rand.New(rand.NewPCG(1, seed)), append([]playedReply{first}, c.replies...)...)
				got := merged(r.downstream.text.String())
				for _, want := range c.want {
					if !strings.Contains(got, want) {
						t.Fatalf("no %q in\n%s", want, got)
					}
				}
				if calls != c.calls || before != "" && got != before {
					t.Fatalf("%d calls, want %d:\n%s\nbefore:\n%s", calls, c.calls, got, before)
				}
				before = got
			}
		})
	}
}

func spelled(t *testing.T, prompt []harmony.Token) string {
	t.Helper()
	text, err := harmony.AppendDecode(nil, prompt)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A repetition in an answer ends it as its limit would.
func TestRepetitionInAnAnswer(t *testing.T) {
	t.Parallel()
	request := decodeChat(t, `,"stream":true`, false, &turn.Model{Reasoning: turn.ReasoningLimits{MaxRepeats: 3}})
	r := newTestRun(t, request, api.Loop, "vllm")
	r.Start()
	r.feed(ok(), bytesOf(event("", tokens("<|channel|>final<|message|>"+strings.Repeat(" again", 200))...)))
	if got := merged(r.downstream.text.String()); !r.Ended() || !strings.Contains(got, `"length"`) || len(r.executor.calls) != 1 {
		t.Errorf("ended %t, %d calls: %s", r.Ended(), len(r.executor.calls), got)
	}
}

// Of several choices the interrupted ones go on when the others are complete.
func TestInterruptedChoices(t *testing.T) {
	t.Parallel()
	r := startContinued(t, `,"n":3,"thinking_token_budget":5`, 0)
	choice := func(i int, finish, text string) Event {
		return bytesOf(strings.Replace(event(finish, tokens(text)...), `"index":0`, fmt.Sprintf(`"index":%d`, i), 1))
	}
	r.feed(ok(), choice(0, "", reasoning(9)), choice(1, "", endless+" a"), choice(2, "", reasoning(20)))
	if len(r.executor.calls) != 1 {
		t.Fatalf("%d calls", len(r.executor.calls))
	}
	r.feed(choice(0, "", " more"), choice(1, "stop", "<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>"))
	for _, text := range []string{"first", "third"} {
		r.feed(ok(), choice(0, "stop", text+"<|return|>"), Ended(nil))
	}
	text := r.downstream.text.String()
	for i, want := range []string{"first", "b", "third"} {
		if got := gjson.Get(text, fmt.Sprintf("choices.%d.message.content", i)).Str; got != want {
			t.Errorf("choice %d is %q, want %q", i, got, want)
		}
	}
	if len(r.executor.calls) != 3 || !r.Ended() {
		t.Errorf("%d calls, ended %t: %s", len(r.executor.calls), r.Ended(), text)
	}
}

// An engine without grammars is interrupted too: what is held back is verified as a whole.
func TestInterruptedAndVerified(t *testing.T) {
	t.Parallel()
	r := startVerified(t, `,"stream":true,"thinking_token_budget":5,"response_format":{"type":"json_object"}`, api.Loop)
	piece := func(output string) Event {
		var all strings.Builder
		for _, e := range llamacppAnswer(output, "eos")[1:] {
			all.Write(e.Body)
		}
		text, _, _ := strings.Cut(all.String(), `data: {"content":"","tokens":[],"stop":true`)
		return bytesOf(text)
	}
	r.feed(ok(), piece(reasoning(9)))
	if len(r.executor.calls) != 2 || r.downstream.text.Len() > 0 {
		t.Fatalf("%d calls: %s", len(r.executor.calls), &r.downstream.text)
	}
	r.feed(llamacppAnswer(`{"a":1}<|return|>`, "eos")...)
	if got := merged(r.downstream.text.String()); !r.Ended() || !strings.Contains(got, `content: {"a":1}`) {
		t.Errorf("ended %t: %s", r.Ended(), got)
	}
}

// A continuing call that is lost after an interruption is continued in turn.
func TestInterruptedAndLost(t *testing.T) {
	t.Parallel()
	r := startContinued(t, `,"stream":true,"thinking_token_budget":5`, 2)
	r.feed(ok(), bytesOf(event("", tokens(reasoning(9))...)))
	r.feed(ok(), bytesOf(event("", tokens("One")...)), Broken(errBroken))
	r.feed(ok(), bytesOf(event("stop", tokens(" two<|return|>")...)), Ended(nil))
	if got := merged(r.downstream.text.String()); len(r.executor.calls) != 3 || !r.Ended() || !strings.Contains(got, "\ncontent: One two\n") {
		t.Errorf("%d calls, ended %t: %s", len(r.executor.calls), r.Ended(), got)
	}
}

// A model that reasons on after each interruption costs a call for each choice and three
// more, however many choices there are.
func TestInterruptionsAreBounded(t *testing.T) {
	t.Parallel()
	const tool = `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]`
	for _, fields := range []string{"", tool} {
		for n, want := range map[int]int{1: 5, 4: 8, 16: 20} {
			r := startContinued(t, fmt.Sprintf(`,"n":%d,"thinking_token_budget":0%s`, n, fields), 0)
			for calls := 1; !r.Ended(); calls++ {
				if len(r.executor.calls) != calls || calls > 100 {
					t.Fatalf("%d calls, and the reply has no end", calls)
				}
				r.feed(ok())
				for i := range r.executor.calls[calls-1].N {
					output := "<|channel|>analysis<|message|> hm hm"
					if calls > 1 {
						output = " a<|end|><|start|>assistant" + output
					}
					if !r.Ended() && len(r.executor.calls) == calls {
						r.feed(bytesOf(strings.Replace(event("", tokens(output)...), `"index":0`, fmt.Sprintf(`"index":%d`, i), 1)))
					}
				}
			}
			text := r.downstream.text.String()
			if got := len(r.executor.calls); got != want || strings.Count(text, `"finish_reason":"length"`) != n {
				t.Errorf("%q, %d choices: %d calls, want %d: %s", fields, n, got, want, text)
			}
		}
	}
}
