package responses

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// pieces is what generated outputs are made of: well-formed and malformed
// headers, ends, and texts that split characters and escapes.
var pieces = []string{
	"<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|channel|>commentary<|message|>",
	" to=functions.apply_patch<|channel|>commentary json<|message|>",
	"<|start|>assistant<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>", "<|start|>assistant<|channel|>commentary<|message|>",
	"<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>",
	"<|start|>assistant to=mcp__fs.read<|channel|>commentary json<|message|>",
	"<|start|>assistant to=functions.apply_patch<|channel|>commentary json<|message|>",
	"<|start|>assistant to=functions.apply_patch<|channel|>commentary json<|message|>{\"input\":\"",
	"<|start|>assistant<|channel|>commentary to=python code<|message|>",
	"<|start|>assistant to=functions.Get-Weather<|channel|>commentary<|channel|>commentary json<|message|>",
	"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|start|>assistant", "<|start|>user<|message|>",
	"<|end|>", "<|end|>", "<|call|>", "<|return|>", "<|endoftext|>",
	"Hello", " world", "naïve 🙂 漢字", `{"city":"Paris"}`, "\n", "\u2028\"\\\x01", `\ud83d\ude42`, `\`, `"`, `"}`, `{"input":"`,
}

// generate makes one output of the model, now and then with ids that are no
// text or not in the vocabulary.
func generate(rng *rand.Rand) []harmony.Token {
	var out []harmony.Token
	if rng.IntN(4) > 0 {
		out = tokens(pieces[rng.IntN(4)])
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
	mixedTools,
	mixedTools + `,"reasoning":{"summary":"auto"}`,
	mixedTools + `,"parallel_tool_calls":false`,
	mixedTools + `,"tool_choice":"none","reasoning":{"effort":"none"}`,
}

// TestAnyChunking shows that a response does not depend on how the engine cuts
// its tokens into chunks, that every stream keeps the rules, and that it ends
// in the object of the whole reply.
func TestAnyChunking(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	finishes := []engine.Finish{engine.FinishStop, engine.FinishLength}
	for range 400 {
		variant := variants[rng.IntN(len(variants))]
		out := output{generate(rng), finishes[rng.IntN(2)]}
		all := func() int { return 1 << 20 }
		want := run(t, mustDecode(t, ask(variant)), chunks(out, all))
		checkShown(t, want, out)
		for _, size := range []func() int{all, func() int { return 1 }, func() int { return rng.IntN(6) }} {
			cut := chunks(out, size)
			if diff := cmp.Diff(want, run(t, mustDecode(t, ask(variant)), cut)); diff != "" {
				t.Fatalf("cut otherwise:\n%v\n%s", out, diff)
			}
			call := mustDecode(t, ask(variant+`,"stream":true`))
			stream := run(t, call, cut)
			if diff := cmp.Diff(want, final(t, call, stream)); diff != "" {
				t.Fatalf("stream is not the whole reply (-whole +stream):\n%v\n%s\n%s", out, diff, stream)
			}
		}
	}
}

// checkShown demands that text of the model does not vanish: with output there
// is something to see, or the reply was cut.
func checkShown(t *testing.T, object string, out output) {
	t.Helper()
	r := gjson.Parse(object)
	if len(r.Get("output").Array()) > 0 || out.finish == engine.FinishLength {
		return
	}
	p := harmony.NewParser(harmony.Tolerant, harmony.RoleAssistant)
	for _, token := range out.tokens {
		events, _ := p.Push(token)
		for _, e := range events {
			if e.Kind == harmony.Delta && e.Header.Channel != harmony.ChannelAnalysis {
				t.Fatalf("%q is lost", e.Text)
			}
		}
	}
}
