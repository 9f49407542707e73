package apitest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The pieces of generated outputs of every API: well-formed and malformed headers,
// ends, and texts that split characters.
var (
	openings = []string{
		"<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|channel|>commentary<|message|>",
	}
	pieces = []string{
		"<|start|>assistant<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>",
		"<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>",
		"<|start|>assistant<|channel|>commentary to=python code<|message|>",
		"<|start|>assistant to=functions.Get-Weather<|channel|>commentary<|channel|>commentary json<|message|>",
		"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|start|>assistant", "<|start|>user<|message|>",
		"<|end|>", "<|end|>", "<|call|>", "<|return|>", "<|endoftext|>",
		"Hello", " world", "naïve 🙂 漢字", `{"city":"Paris"}`, "\n", "\u2028\"\\\x01",
	}
)

// Model generates outputs: of the pieces that every API gets, and of an API's own.
type Model struct {
	Openings []string // that also begin outputs
	Pieces   []string
}

// Generate generates an output of the model. Some tokens are no text or not in the
// vocabulary.
func (m Model) Generate(rng *rand.Rand) []harmony.Token {
	opening := slices.Concat(openings, m.Openings)
	piece := slices.Concat(opening, pieces, m.Pieces)
	var out []harmony.Token
	// Three of four outputs begin as a model would: without an opening most would be one plain text.
	if rng.IntN(4) > 0 {
		out = Tokens(opening[rng.IntN(len(opening))])
	}
	for range rng.IntN(24) {
		switch rng.IntN(12) {
		case 0:
			// The vocabulary ends a little below this bound: some ids have no token.
			out = append(out, rng.Uint32N(201_200))
		case 1:
			out = append(out, 9552, 898) // parts of characters
		default:
			out = append(out, Tokens(piece[rng.IntN(len(piece))])...)
		}
	}
	return out
}

// Chunking is what [API.AnyChunking] works with.
type Chunking struct {
	Model
	Rounds   int
	Requests []string // the members of their bodies, for [API.Ask]
}

// AnyChunking shows that a reply does not depend on how the engine cuts its tokens
// into chunks, that it shows the model's output, and that a stream is the whole reply.
func (a *API) AnyChunking(t *testing.T, c Chunking) {
	// A fixed seed: a failure can be repeated, and the test's time does not change.
	rng := rand.New(rand.NewPCG(1, 2))
	finishes := []engine.Finish{engine.FinishStop, engine.FinishLength}
	// All in one chunk, token by token, and cuts of any size, empty chunks among them.
	sizes := []func() int{Size(1 << 20), Size(1), func() int { return rng.IntN(6) }}
	for range c.Rounds {
		body := a.Ask(c.Requests[rng.IntN(len(c.Requests))])
		request := a.sameIDs(t, body)
		outputs := outputs(request, func() ([]harmony.Token, engine.Finish) {
			return c.Generate(rng), finishes[rng.IntN(2)]
		})

		whole := Play(t, request, a.Mode, Chunks(outputs, sizes[0]))
		a.checkShown(t, whole, outputs)
		for _, size := range sizes {
			cut := Chunks(outputs, size)
			if diff := cmp.Diff(whole, Play(t, a.sameIDs(t, body), a.Mode, cut)); diff != "" {
				t.Fatalf("cut otherwise:\n%v\n%s", outputs, diff)
			}
			streamed := a.sameIDs(t, With(t, body, a.Streamed...))
			a.compareStream(t, request, whole, streamed, Play(t, streamed, a.Mode, cut))
		}
	}
}

// sameIDs decodes a request. With several choices its ids do not count: they would
// depend on the order in which the choices begin their calls.
func (a *API) sameIDs(t testing.TB, body string) api.Request {
	t.Helper()
	rc := NewContext()
	request := a.decode(t, body, rc)
	if choices(request) == 1 {
		return request
	}
	rc = NewContext()
	rc.NewID = func(prefix string) string { return prefix + "0" }
	return a.decode(t, body, rc)
}

// checkShown checks that no output of the model is lost.
func (a *API) checkShown(t *testing.T, whole string, outputs []Output) {
	t.Helper()
	for _, o := range outputs {
		if a.Accounts(t, whole, o) {
			continue
		}
		// A reply may be empty if the model has written only what is hidden anyway: analysis.
		p := harmony.NewParser(harmony.Tolerant, harmony.RoleAssistant)
		for _, token := range o.Tokens {
			events, _ := p.Push(token)
			for _, e := range events {
				if e.Kind == harmony.Delta && e.Header.Channel != harmony.ChannelAnalysis {
					t.Fatalf("%q is lost", e.Text)
				}
			}
		}
	}
}
