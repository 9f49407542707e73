package chat

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// told is the entries of a choice in one line: tokens with their values.
func told(c objectChoice) string {
	if c.Logprobs == nil {
		return "null"
	}
	parts := make([]string, len(c.Logprobs.Content))
	for i, e := range c.Logprobs.Content {
		parts[i] = fmt.Sprintf("%q%v", e.Token, e.Logprob)
	}
	return strings.Join(parts, " ")
}

// TestLogprobs is which tokens of a reply are told.
func TestLogprobs(t *testing.T) {
	t.Parallel()
	const thought = "<|channel|>analysis<|message|>a b<|end|>"
	for _, c := range []struct{ name, members, output, want string }{
		{"an answer behind reasoning", ``, thought + final("Hello there"), `"Hello"-2.75 " there"-3`},
		{"a preamble and a call", weatherTool, "<|channel|>commentary<|message|>I look<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{}<|call|>", ``},
		{"no channel", ``, "<|message|>Hello there<|return|>", `"Hello"-0.25 " there"-0.5`},
		{"two answers", ``, "<|channel|>final<|message|>Hello<|end|>" + final("there"), `"Hello"-0.75 "there"-2.5`},
		{"reasoning only", ``, thought, ``},
		{"a character of three tokens", ``, "<|channel|>final<|message|>🪬!<|return|>", `"\\xf0\\x9f"-0.75 "\\xaa"-1 "\\xac"-1.25 "!"-1.5`},
		{"a stop string", `,"stop":"there"`, "<|channel|>final<|message|>Hello there you<|return|>", `"Hello"-0.75 " there"-1`},
		{"a stop string with the space", `,"stop":" there"`, "<|channel|>final<|message|>Hello there you<|return|>", `"Hello"-0.75`},
		{"a stop string that is kept", `,"stop":"there","include_stop_str_in_output":true`, "<|channel|>final<|message|>Hello there you<|return|>", `"Hello"-0.75 " there"-1`},
		{"a stop token", `,"stop_token_ids":[481]`, "<|channel|>final<|message|>Hello you<|return|>", `"Hello"-0.75`},
		{"a text where a header should be", ``, "Hello there<|return|>", `" there"-0.25`},
		{"a marker in the text", ``, "<|channel|>final<|message|>Hello<|constrain|> there<|return|>", `"Hello"-0.75 " there"-1.25`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			outputs := []output{{0, tokens(c.output), engine.FinishStop}}
			for size := range 4 {
				cut := chunks(outputs, func() int { return size + 1 })
				whole := parseObject(t, run(t, mustDecode(t, ask(c.members+`,"logprobs":true`)), cut)).Choices[0]
				if got := told(whole); got != c.want {
					t.Errorf("whole, in chunks of %d:\ngot  %s\nwant %s", size+1, got, c.want)
				}
				streamed := fold(t, run(t, mustDecode(t, ask(c.members+`,"logprobs":true,"stream":true`)), cut), 1).Choices[0]
				if got := strings.Replace(told(streamed), "null", "", 1); got != c.want {
					t.Errorf("streamed, in chunks of %d:\ngot  %s\nwant %s", size+1, got, c.want)
				}
			}
			plain := parseObject(t, run(t, mustDecode(t, ask(c.members)), chunks(outputs, func() int { return 2 }))).Choices[0]
			if plain.Logprobs != nil {
				t.Errorf("told without being asked: %s", told(plain))
			}
		})
	}
}

// TestLogprobEntry is the form of an entry: the token's own bytes, and no
// control token among the likeliest.
func TestLogprobEntry(t *testing.T) {
	t.Parallel()
	outputs := []output{{0, tokens("<|channel|>final<|message|>é\"🪬<|return|>"), engine.FinishStop}}
	all := func() int { return 100 }
	got := run(t, mustDecode(t, ask(`,"logprobs":true,"top_logprobs":3`)), chunks(outputs, all))
	for _, part := range []string{`"logprobs":{"content":[{"token":"é","logprob":-0.75,"bytes":[195,169],"top_logprobs":[{"token":"é","logprob":-0.75,"bytes":[195,169]},{"token":"!","logprob":-1.75,"bytes":[33]}]},`, `{"token":"\"","logprob":-1.0,"bytes":[34],`, `{"token":"\\xf0\\x9f","logprob":-1.25,"bytes":[240,159],`, `],"refusal":null},"finish_reason":"stop"`} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in\n%s", part, got)
		}
	}
	if strings.Contains(got, "<|") {
		t.Errorf("a control token is shown:\n%s", got)
	}
}

// TestLogprobsComeWithTheirText: at every point of a stream the entries so far
// are those of the tokens that the text so far has begun.
func TestLogprobsComeWithTheirText(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	words := []string{"Hello", " world", "naïve 🙂 漢字", "🪬", "𓀀", "STO", "STOP", "P", "aab", "a", "\n", "d🙂"}
	for range 300 {
		picked := make([]string, rng.IntN(20))
		for i := range picked {
			picked[i] = words[rng.IntN(len(words))]
		}
		text := strings.Join(picked, "")
		outputs := []output{{0, tokens("<|channel|>final<|message|>" + text + "<|return|>"), engine.FinishStop}}
		cut := chunks(outputs, func() int { return rng.IntN(4) })
		stream := run(t, mustDecode(t, ask(`,"logprobs":true,"stream":true,"stop":["STOP","aaab","d🙂"]`)), cut)
		var content, entries, last []byte
		for event := range strings.SplitSeq(stream, "\n\n") {
			data := strings.TrimPrefix(event, "data: ")
			if data == "" || data == "[DONE]" {
				continue
			}
			c := parseObject(t, data).Choices[0]
			if c.Delta.Content != nil {
				content = append(content, *c.Delta.Content...)
			}
			if c.Logprobs != nil {
				for _, e := range c.Logprobs.Content {
					last = last[:0]
					for _, b := range e.Bytes {
						last = append(last, byte(b))
					}
					entries = append(entries, last...)
				}
			}
			if !bytes.HasPrefix(entries, content) || len(content) > 0 && len(entries)-len(last) >= len(content) {
				t.Fatalf("%q: entries %q of the text %q", text, entries, content)
			}
		}
	}
}

// TestLogprobsAreBounded: a whole reply is not made of more log probabilities
// than fit.
func TestLogprobsAreBounded(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		r := mustDecode(t, ask(fmt.Sprintf(`,"logprobs":true,"top_logprobs":20,"stream":%t`, stream))).NewReply()
		ids := append(tokens("<|channel|>final<|message|>"), tokens(strings.Repeat(" word", 5000))...)
		chunk := engine.Chunk{Tokens: ids, Logprobs: likelihoods(ids)}
		failed := false
		for range 40 {
			_, err := r.Push(nil, &chunk)
			if failed = err != nil; failed {
				if err.Code != "logprobs_too_large" || err.Status != 400 {
					t.Fatalf("%v", err)
				}
				break
			}
			chunk.Tokens, chunk.Logprobs = ids[3:], likelihoods(ids[3:])
		}
		if failed == stream {
			t.Errorf("stream %t: failed %t", stream, failed)
		}
	}
}
