package chat

import (
	"context"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// stream is a streamed reply in the middle of a part, with room for what
// follows, and the next chunk of it.
func stream(t testing.TB, header string) (r *Reply, chunk *engine.Chunk, dst []byte) {
	t.Helper()
	r = mustDecode(t, ask(weatherTool+`,"stream":true,"stop":["never"],"stream_options":{"include_usage":true}`)).NewReply()
	if _, err := r.Push(nil, &engine.Chunk{Tokens: tokens(header + "Once upon a time")}); err != nil {
		t.Fatal(err)
	}
	return r, &engine.Chunk{Tokens: harmony.AppendEncode(nil, " and \"then\", nev er,\nnaïve 🙂")}, make([]byte, 0, 4096)
}

var headers = map[string]string{
	"reasoning": "<|channel|>analysis<|message|>",
	"answer":    "<|channel|>final<|message|>",
	"call":      " to=functions.get_weather<|channel|>commentary json<|message|>",
}

// TestStreamAllocates shows that a chunk of text costs no allocation.
func TestStreamAllocates(t *testing.T) {
	for name, header := range headers {
		if name == "reasoning" {
			continue // is kept for the tool turn
		}
		r, chunk, dst := stream(t, header)
		n := testing.AllocsPerRun(200, func() {
			if _, err := r.Push(dst, chunk); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("%s: %v allocations a chunk", name, n)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	for name, header := range headers {
		b.Run(name, func(b *testing.B) {
			r, chunk, dst := stream(b, header)
			one := &engine.Chunk{Tokens: chunk.Tokens[:1]}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = r.Push(dst, one)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(ask(weatherTool))
	scope := newScope()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(context.Background(), body, scope); err != nil {
			b.Fatal(err)
		}
	}
}
