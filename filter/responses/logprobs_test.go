package responses

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

const withLogprobs = `,"include":["message.output_text.logprobs"]`

// entriesOf returns the entries of each part of a response's messages: the tokens
// with their values.
func entriesOf(response gjson.Result) string {
	messages := response.Get(`output.#(type=="message")#`).Array()
	parts := make([]string, 0, len(messages))
	for _, item := range messages {
		entries := []string{}
		for _, e := range item.Get("content.0.logprobs").Array() {
			entries = append(entries, fmt.Sprintf("%q%v", e.Get("token").Str, e.Get("logprob").Num))
		}
		parts = append(parts, "["+strings.Join(entries, " ")+"]")
	}
	return strings.Join(parts, " ")
}

// TestLogprobs shows which tokens of a reply have entries. That the events of a stream
// have the same, responsestest checks.
func TestLogprobs(t *testing.T) {
	t.Parallel()
	const thought = "<|channel|>analysis<|message|>a b<|end|><|start|>assistant"
	for _, c := range []struct{ name, members, output, want string }{
		{"an answer behind reasoning", ``, thought + "<|channel|>final<|message|>Hello there<|return|>", `["Hello"-2.75 " there"-3]`},
		{"a preamble and a call", mixedTools, "<|channel|>commentary<|message|>I look<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>", `[]`},
		{"two answers", ``, "<|channel|>final<|message|>Hello<|end|><|start|>assistant<|channel|>final<|message|>there<|return|>", `["Hello"-0.75] ["there"-2.5]`},
		{"a character of three tokens", ``, "<|channel|>final<|message|>🪬!<|return|>", `["\\xf0\\x9f"-0.75 "\\xaa"-1 "\\xac"-1.25 "!"-1.5]`},
		{"a stop string", `,"stop":" there"`, "<|channel|>final<|message|>Hello there you<|return|>", `["Hello"-0.75]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			output := apitest.Said(c.output)
			for size := range 4 {
				cut := output.Chunks(apitest.Size(size + 1))
				for _, stream := range []string{"", `,"stream":true`} {
					request := mustDecode(t, ask(c.members+withLogprobs+stream))
					got := gjson.Parse(final(t, request, run(t, request, cut)))
					if entries := entriesOf(got); entries != c.want {
						t.Errorf("%q, in chunks of %d:\ngot  %s\nwant %s", stream, size+1, entries, c.want)
					}
				}
			}
			plain := mustDecode(t, ask(c.members))
			if got := final(t, plain, run(t, plain, output.Chunks(apitest.Size(2)))); strings.Contains(got, `"logprob":`) {
				t.Errorf("entries without being asked: %s", got)
			}
		})
	}
}

// TestTopLogprobs shows what the engine is asked for, what the response repeats, and
// that top_logprobs does nothing without the value of include.
func TestTopLogprobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, members string
		logprobs      bool
		top           int
		ignored       string
	}{
		{"neither", ``, false, 0, ""},
		{"the value of include", withLogprobs, true, 0, ""},
		{"both", withLogprobs + `,"top_logprobs":20`, true, 20, ""},
		{"top_logprobs alone", `,"top_logprobs":2`, false, 0, "top_logprobs"},
		{"top_logprobs of 0", `,"top_logprobs":0`, false, 0, ""},
	} {
		request := mustDecode(t, ask(c.members))
		e := request.Engine()
		if e.Logprobs != c.logprobs || e.TopLogprobs != c.top || strings.Join(request.IgnoredFields, " ") != c.ignored {
			t.Errorf("%s: logprobs %t, top %d, ignored %q", c.name, e.Logprobs, e.TopLogprobs, request.IgnoredFields)
		}
		if want := fmt.Sprintf(`"top_logprobs":%d,`, c.top); !strings.Contains(string(request.Echo), want) {
			t.Errorf("%s: no %s in %s", c.name, want, request.Echo)
		}
	}
}

// TestLoopLogprobs shows that the answer after calls of tools has them, and that the
// stored response does.
func TestLoopLogprobs(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	object := l.play(t, ask(","+docsTool+withLogprobs), searchCall("a"), "<|channel|>final<|message|>Hello there<|return|>")
	const want = `["Hello"-0.75 " there"-1]`
	if got := entriesOf(object); got != want {
		t.Errorf("the response has %s, want %s", got, want)
	}
	body, err := l.api.serve(http.MethodGet, "/v1/responses/"+object.Get("id").Str, nil, l.rc)
	if err != nil {
		t.Fatal(err)
	}
	if got := entriesOf(gjson.ParseBytes(body)); got != want {
		t.Errorf("the stored response has %s, want %s", got, want)
	}
}

// TestLogprobsAreBounded shows that the log probabilities of an object are bounded. A
// stream goes on: its deltas have them all, its items then have none.
func TestLogprobsAreBounded(t *testing.T) {
	t.Parallel()
	ids := append(apitest.Tokens("<|channel|>final<|message|>"), apitest.Tokens(strings.Repeat(" word", 5000))...)
	for _, stream := range []bool{false, true} {
		request := mustDecode(t, ask(fmt.Sprintf(`,"top_logprobs":20,"stream":%t`, stream)+withLogprobs))
		r := newReply(request, api.SingleCall)
		chunk := engine.Chunk{Tokens: ids, Logprobs: apitest.Logprobs(ids)}
		var out []byte
		failed := false
		for range 40 {
			next, err := r.Push(out, &chunk)
			out = next
			if failed = err != nil; failed {
				if err.Code != "logprobs_too_large" || err.Status != http.StatusBadRequest || err.Param != "include" {
					t.Fatalf("%+v", err)
				}
				break
			}
			chunk.Tokens, chunk.Logprobs = ids[3:], apitest.Logprobs(ids[3:])
		}
		if failed == stream {
			t.Fatalf("stream %t: failed %t", stream, failed)
		}
		if !stream {
			continue
		}
		before := strings.Count(string(out), `"logprob":`)
		out = mustEnd(t, r, out)
		object, err := responsestest.Stream(out)
		if err != nil {
			t.Fatal(err)
		}
		if after := strings.Count(string(out), `"logprob":`); before < 40*5000 || after != before || entriesOf(gjson.ParseBytes(object)) != "[]" {
			t.Errorf("%d entries in the deltas, %d with the end; the object has %.100s", before, after, entriesOf(gjson.ParseBytes(object)))
		}
	}
}
