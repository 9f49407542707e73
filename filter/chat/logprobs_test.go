package chat

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// entriesOf returns the entries of a choice in one line: tokens with their values.
func entriesOf(c objectChoice) string {
	if c.Logprobs == nil {
		return "null"
	}
	parts := make([]string, len(c.Logprobs.Content))
	for i, e := range c.Logprobs.Content {
		parts[i] = fmt.Sprintf("%q%v", e.Token, e.Logprob)
	}
	return strings.Join(parts, " ")
}

// TestLogprobs shows which tokens of a reply have entries.
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
			output := apitest.Said(c.output)
			for size := range 4 {
				cut := output.Chunks(apitest.Size(size + 1))
				whole := parseObject(t, run(t, mustDecode(t, ask(c.members+`,"logprobs":true`)), cut)).Choices[0]
				if got := entriesOf(whole); got != c.want {
					t.Errorf("whole, in chunks of %d:\ngot  %s\nwant %s", size+1, got, c.want)
				}
				streamed := fold(t, run(t, mustDecode(t, ask(c.members+`,"logprobs":true,"stream":true`)), cut), 1).Choices[0]
				if got := strings.Replace(entriesOf(streamed), "null", "", 1); got != c.want {
					t.Errorf("streamed, in chunks of %d:\ngot  %s\nwant %s", size+1, got, c.want)
				}
			}
			plain := parseObject(t, run(t, mustDecode(t, ask(c.members)), output.Chunks(apitest.Size(2)))).Choices[0]
			if plain.Logprobs != nil {
				t.Errorf("entries without being asked: %s", entriesOf(plain))
			}
		})
	}
}

// TestLogprobEntry shows an entry: with the token's own bytes, and without control
// tokens among the most likely ones.
func TestLogprobEntry(t *testing.T) {
	t.Parallel()
	output := apitest.Said("<|channel|>final<|message|>é\"🪬<|return|>")
	got := run(t, mustDecode(t, ask(`,"logprobs":true,"top_logprobs":3`)), output.Chunks(apitest.Size(100)))
	for _, part := range []string{`"logprobs":{"content":[{"token":"é","logprob":-0.75,"bytes":[195,169],"top_logprobs":[{"token":"é","logprob":-0.75,"bytes":[195,169]},{"token":"!","logprob":-1.75,"bytes":[33]}]},`, `{"token":"\"","logprob":-1.0,"bytes":[34],`, `{"token":"\\xf0\\x9f","logprob":-1.25,"bytes":[240,159],`, `],"refusal":null},"finish_reason":"stop"`} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in\n%s", part, got)
		}
	}
	if strings.Contains(got, "<|") {
		t.Errorf("a control token is shown:\n%s", got)
	}
}

// TestLogprobsComeWithTheirText shows that at every point of a stream the entries so
// far are those of the tokens that begin in the text so far.
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
		output := apitest.Said("<|channel|>final<|message|>" + text + "<|return|>")
		cut := output.Chunks(func() int { return rng.IntN(4) })
		stream := run(t, mustDecode(t, ask(`,"logprobs":true,"stream":true,"stop":["STOP","aaab","d🙂"]`)), cut)
		var content, entries, last []byte
		for _, event := range apitest.Events(t, stream) {
			c := parseObject(t, event.Raw).Choices[0]
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

// TestLogprobsAreBounded shows that the log probabilities of a whole object are
// bounded.
func TestLogprobsAreBounded(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		r := mustDecode(t, ask(fmt.Sprintf(`,"logprobs":true,"top_logprobs":20,"stream":%t`, stream))).NewReply(api.SingleCall)
		ids := append(apitest.Tokens("<|channel|>final<|message|>"), apitest.Tokens(strings.Repeat(" word", 5000))...)
		chunk := engine.Chunk{Tokens: ids, Logprobs: apitest.Logprobs(ids)}
		failed := false
		for range 40 {
			_, err := r.Push(nil, &chunk)
			if failed = err != nil; failed {
				if err.Code != "logprobs_too_large" || err.Status != 400 {
					t.Fatalf("%v", err)
				}
				break
			}
			chunk.Tokens, chunk.Logprobs = ids[3:], apitest.Logprobs(ids[3:])
		}
		if failed == stream {
			t.Errorf("stream %t: failed %t", stream, failed)
		}
	}
}
