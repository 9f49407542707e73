package apitest

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Stream is the streams that are measured: long parts of a reply.
type Stream struct {
	Members string // of the request, for [API.Ask]
	Text    string // of a chunk within a part
	Parts   []Part
	// Bound makes room for the text that a reply keeps, and returns a function that
	// makes the reply forget what it has kept since; nil if it keeps none.
	Bound func(r api.Reply) (forget func())
}

// Part is a part of an output.
type Part struct {
	Name   string
	Header string // Harmony text
	Kept   bool   // its tokens are kept for the next request, which needs allocations
}

// Parts are the parts that every API has.
var Parts = []Part{
	{"reasoning", "<|channel|>analysis<|message|>", true},
	{"answer", "<|channel|>final<|message|>", false},
	{"arguments", ` to=functions.get_weather<|channel|>commentary json<|message|>{"city":"`, false},
}

// begin returns a streamed reply within a part, the next tokens, and a buffer for what
// follows.
func (s Stream) begin(t testing.TB, a *API, p Part) (r api.Reply, forget func(), tokens []harmony.Token, dst []byte) {
	t.Helper()
	r = a.MustDecode(t, With(t, a.Ask(s.Members), a.Streamed...)).NewReply(api.SingleCall)
	if _, err := r.Push(nil, &engine.Chunk{Tokens: Tokens(p.Header + "Once upon a time")}); err != nil {
		t.Fatal(err)
	}
	forget = func() {}
	if s.Bound != nil {
		forget = s.Bound(r)
	}
	return r, forget, harmony.AppendEncode(nil, s.Text), make([]byte, 0, 4096)
}

// StreamAllocates shows that a chunk of text costs no allocation.
func (a *API) StreamAllocates(t *testing.T, s Stream) {
	for _, p := range s.Parts {
		if p.Kept {
			continue
		}
		r, _, tokens, dst := s.begin(t, a, p)
		chunk := &engine.Chunk{Tokens: tokens}
		n := testing.AllocsPerRun(200, func() {
			if _, err := r.Push(dst, chunk); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("%s: %v allocations a chunk", p.Name, n)
		}
	}
}

// BenchmarkStream measures a chunk of one token.
func (a *API) BenchmarkStream(b *testing.B, s Stream) {
	for _, p := range s.Parts {
		b.Run(p.Name, func(b *testing.B) {
			r, forget, tokens, dst := s.begin(b, a, p)
			one := &engine.Chunk{Tokens: tokens[:1]}
			b.ReportAllocs()
			for b.Loop() {
				forget()
				_, _ = r.Push(dst, one)
			}
		})
	}
}

// BenchmarkDecode measures the decoding of a request.
func (a *API) BenchmarkDecode(b *testing.B, members string) {
	body := []byte(a.Ask(members))
	rc := NewContext()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Decode(body, rc); err != nil {
			b.Fatal(err)
		}
	}
}
