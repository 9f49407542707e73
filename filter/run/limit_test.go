package run

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// madeChoice is the output of a choice as an engine makes it.
type madeChoice struct {
	tokens []harmony.Token
	finish string
	late   bool // the finish reason comes after the tokens, in an event of its own
}

// generatedChoice is an output of random length. It may end by itself.
func generatedChoice(random *rand.Rand) madeChoice {
	text := "<|channel|>analysis<|message|>" + strings.Repeat(" hm", random.IntN(10)) +
		"<|end|><|start|>assistant<|channel|>final<|message|>" + strings.Repeat(" 你 word", random.IntN(30)) + "<|return|>"
	return madeChoice{tokens(text), "stop", random.IntN(2) == 0}
}

// within is the output that an engine makes which keeps a limit.
func (c madeChoice) within(limit int) madeChoice {
	if len(c.tokens) > limit {
		c.tokens, c.finish = c.tokens[:limit], "length"
	}
	return c
}

// interleaved are the events of an answer with some choices, in pieces of random sizes that
// may end anywhere.
func interleaved(random *rand.Rand, choices []madeChoice) []Event {
	var all strings.Builder
	put := func(i int, finish string, ids ...harmony.Token) {
		all.WriteString(strings.Replace(event(finish, ids...), `"index":0`, fmt.Sprintf(`"index":%d`, i), 1))
	}
	rest := append([]madeChoice(nil), choices...)
	for open := len(rest); open > 0; {
		i := random.IntN(len(rest))
		c := &rest[i]
		if c.finish == "" {
			continue
		}
		n := min(len(c.tokens), 1+random.IntN(12))
		ids := c.tokens[:n]
		c.tokens = c.tokens[n:]
		switch {
		case len(c.tokens) > 0:
			put(i, "", ids...)
			continue
		case c.late:
			put(i, "", ids...)
			put(i, c.finish)
		default:
			put(i, c.finish, ids...)
		}
		c.finish = ""
		open--
	}
	all.WriteString("data: [DONE]\n\n")

	events := []Event{ok()}
	for text := all.String(); text != ""; {
		n := 1 + random.IntN(min(len(text), 600))
		events = append(events, bytesOf(text[:n]))
		text = text[n:]
	}
	return append(events, Ended(nil))
}

// told is what the client is told, without the cuts between deltas: of each choice its
// texts and its end, and the usage.
func told(reply string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(reply) {
		data := strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		for _, c := range gjson.Get(data, "choices").Array() {
			for _, path := range []string{
				"delta.reasoning", "delta.content", "message.reasoning", "message.content", "finish_reason",
			} {
				all[c.Get("index").Raw+" "+path] += c.Get(path).Str
			}
		}
		if usage := gjson.Get(data, "usage"); usage.IsObject() {
			all["usage"] = usage.Raw
		}
	}
	return all
}

// However far an engine goes beyond the limit that it was told, and however its output is
// cut into events and pieces, the client gets the reply of an engine that keeps the limit.
func TestOutputIsCutAtTheLimit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(3, seed))
		n, limit := 1+random.IntN(3), 1+random.IntN(50)
		made, kept := make([]madeChoice, n), make([]madeChoice, n)
		for i := range made {
			made[i] = generatedChoice(random)
			if random.IntN(4) == 0 {
				limit = max(1, len(made[i].tokens)+random.IntN(3)-1) // about where the choice ends by itself
			}
		}
		for i := range made {
			kept[i] = made[i].within(limit)
		}
		for _, stream := range []bool{false, true} {
			for _, mode := range []api.Mode{api.Loop, api.SingleCall} {
				fields := fmt.Sprintf(`,"n":%d,"max_tokens":%d,"stream":%t`, n, limit, stream)
				if stream {
					fields += `,"stream_options":{"include_usage":true}`
				}
				run := func(choices []madeChoice) map[string]string {
					request := chatRequest(t, fields, false)
					r := newTestRun(t, request, mode, "vllm")
					if mode == api.Loop {
						r.Start()
					} else {
						r.Await(request.Engine())
					}
					r.feed(interleaved(random, choices)...)
					if !r.Ended() || r.downstream.err != nil || len(r.executor.calls) > 1 {
						t.Fatalf("seed %d: ended %t, %d calls, %v", seed, r.Ended(), len(r.executor.calls), r.downstream.err)
					}
					return told(r.downstream.text.String())
				}
				if diff := cmp.Diff(run(kept), run(made)); diff != "" {
					t.Fatalf("seed %d,%s, mode %v (-an engine that keeps the limit +one that does not):\n%s",
						seed, fields, mode, diff)
				}
			}
		}
	}
}

// The call of an engine that goes on is over where its last choice is cut, and the log says
// why. An engine that keeps the limit is waited for.
func TestCallEndsAtTheLimit(t *testing.T) {
	t.Parallel()
	const fields = `,"n":2,"max_tokens":4,"stream":true`
	choice := func(i int, finish string, n int) Event {
		ids := tokens("<|channel|>final<|message|>" + strings.Repeat(" a", 100))[:n]
		return bytesOf(strings.Replace(event(finish, ids...), `"index":0`, fmt.Sprintf(`"index":%d`, i), 1))
	}

	r := startChat(t, fields)
	r.feed(ok(), choice(0, "", 50))
	if r.Ended() {
		t.Fatal("the reply ends with one of two choices")
	}
	r.feed(choice(0, "", 50), choice(1, "", 4))
	if r.Ended() {
		t.Fatal("the reply ends before the engine has said how the second choice does")
	}
	r.feed(choice(1, "", 1))
	text := r.downstream.text.String()
	if !r.Ended() || strings.Count(text, `"finish_reason":"length"`) != 2 || strings.Count(text, " a") != 2 {
		t.Errorf("ended %t: %s", r.Ended(), text)
	}

	r = startChat(t, fields)
	r.feed(ok(), choice(0, "length", 4), choice(1, "length", 4))
	if r.Ended() {
		t.Error("the engine's counts are not waited for")
	}
	r.feed(Ended(nil))
	if !r.Ended() {
		t.Error("the reply does not end")
	}
}

// What is left of the limit holds in a call that continues another one.
func TestContinuationIsCutAtTheLimit(t *testing.T) {
	t.Parallel()
	r := startContinued(t, `,"max_tokens":10,"stream":true,"stream_options":{"include_usage":true}`, 2)
	r.feed(from("a"), bytesOf(event("", tokens("<|channel|>final<|message|> a a a")...)), Broken(errBroken))
	r.feed(from("b"), bytesOf(event("", tokens(strings.Repeat(" b", 100))...)))
	got := merged(r.downstream.text.String())
	if !r.Ended() || !strings.Contains(got, "content:  a a a b b b b\n") || !strings.Contains(got, `"length" 10 `) {
		t.Errorf("ended %t: %s", r.Ended(), got)
	}
}
