package chat

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// pieces is what generated outputs are made of: well-formed and malformed
// headers, ends, and texts that split characters and begin stop strings.
var pieces = []string{
	"<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|channel|>commentary<|message|>",
	"<|start|>assistant<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>",
	"<|start|>assistant<|channel|>final <|constrain|>json<|message|>",
	"<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>",
	"<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
	"<|start|>assistant<|channel|>commentary to=python code<|message|>",
	"<|start|>assistant to=functions.Get-Weather<|channel|>commentary<|channel|>commentary json<|message|>",
	"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|start|>assistant", "<|start|>user<|message|>",
	"<|end|>", "<|end|>", "<|call|>", "<|return|>", "<|endoftext|>",
	"Hello", " world", "naïve 🙂 漢字", "STO", "STOP", "P", "aab", "a", `{"city":"Paris"}`, "\n", "\u2028\"\\\x01",
}

// generate makes one output of the model, now and then with ids that are no
// text or not in the vocabulary.
func generate(rng *rand.Rand) []harmony.Token {
	var out []harmony.Token
	if rng.IntN(4) > 0 {
		out = tokens(pieces[rng.IntN(3)])
	}
	for range rng.IntN(24) {
		switch rng.IntN(12) {
		case 0:
			out = append(out, rng.Uint32N(201_200))
		case 1:
			out = append(out, 9552, 898) // parts of characters
		default:
			out = append(out, tokens(pieces[rng.IntN(len(pieces))])...)
		}
	}
	return out
}

// variants are the requests that the property is shown for.
var variants = []string{
	``,
	weatherTool,
	weatherTool + `,"parallel_tool_calls":false`,
	weatherTool + `,"tool_choice":"none","include_reasoning":false`,
	`,"stop":["STOP","aaab","d🙂"],"return_token_ids":true`,
	`,"stop":"STOP","include_stop_str_in_output":true,"stop_token_ids":[13225,200007]`,
	`,"n":2,"reasoning_effort":"none"`,
	`,"logprobs":true,"top_logprobs":2,"stop":["STOP","aaab","d🙂"],"n":2`,
	weatherTool + `,"logprobs":true,"include_reasoning":false`,
}

// TestAnyChunking shows that a reply does not depend on how the engine cuts its
// tokens into chunks, and that a stream's deltas join to the whole reply.
func TestAnyChunking(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	finishes := []engine.Finish{engine.FinishStop, engine.FinishLength}
	for range 1000 {
		variant := variants[rng.IntN(len(variants))]
		n := 1
		if strings.Contains(variant, `"n":2`) {
			n = 2
		}
		outputs := make([]output, 0, n)
		for i := range n {
			outputs = append(outputs, output{i, generate(rng), finishes[rng.IntN(2)]})
		}
		all := func() int { return 1 << 20 }
		want := run(t, mustDecode(t, ask(variant)), chunks(outputs, all))
		object := parseObject(t, want)
		checkShown(t, object, outputs)
		sizes := []func() int{all, func() int { return 1 }, func() int { return rng.IntN(6) }}
		for _, size := range sizes {
			cut := chunks(outputs, size)
			if n > 1 { // ids are given in the order of the calls, which is not the same
				want = normalize(want)
			}
			if got := run(t, mustDecode(t, ask(variant)), cut); got != want && normalize(got) != want {
				t.Fatalf("cut otherwise:\n%v\n%s\n%s", outputs, want, got)
			}
			stream := run(t, mustDecode(t, ask(variant+`,"stream":true,"stream_options":{"include_usage":true}`)), cut)
			folded := fold(t, stream, n)
			if n > 1 {
				blank(&object)
				blank(&folded)
			}
			for i := range object.Choices { // a stream says nothing of nothing
				if p := object.Choices[i].Logprobs; p != nil && len(p.Content) == 0 {
					object.Choices[i].Logprobs = nil
				}
			}
			if diff := cmp.Diff(object, folded, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("stream is not the whole reply (-whole +stream):\n%v\n%s\n%s", outputs, diff, stream)
			}
		}
	}
}

// checkShown demands that text of the model does not vanish: with output there
// is something to see, or the reply was cut or stopped by the client's wish.
func checkShown(t *testing.T, o object, outputs []output) {
	t.Helper()
	for i, c := range o.Choices {
		m := c.Message
		shown := len(m.ToolCalls) > 0 || m.Reasoning != nil || m.Content != nil && *m.Content != ""
		if shown || c.Matched != nil || *c.Finish == "length" {
			continue
		}
		p := harmony.NewParser(harmony.Tolerant, harmony.RoleAssistant)
		for _, token := range outputs[i].tokens {
			events, _ := p.Push(token)
			for _, e := range events {
				if e.Kind == harmony.Delta && e.Header.Channel != harmony.ChannelAnalysis {
					t.Fatalf("%q is lost", e.Text)
				}
			}
		}
	}
}

// normalize takes the numbers of call ids out of a reply.
func normalize(s string) string {
	for {
		i := strings.Index(s, `"call_`)
		if i < 0 {
			return s
		}
		end := i + 1 + strings.IndexByte(s[i+1:], '"')
		s = s[:i] + `"call` + s[end:]
	}
}

func blank(o *object) {
	for i := range o.Choices {
		for j := range o.Choices[i].Message.ToolCalls {
			o.Choices[i].Message.ToolCalls[j].ID = ""
		}
	}
}
