package turn

import (
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// TestReaderAllocates shows that reading text costs no allocation a token.
func TestReaderAllocates(t *testing.T) {
	rc, _ := newContext()
	turn := prepare(t, rc, &Input{Items: []Item{userHi}, Stop: []string{"never", "neither"}})
	r := turn.NewReader(func(Event) {})
	if _, err := r.Push(&engine.Chunk{Tokens: harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>Now ")}); err != nil {
		t.Fatal(err)
	}
	words := engine.Chunk{Tokens: harmony.AppendEncode(nil, " and then there were none, nev er")}
	if n := testing.AllocsPerRun(100, func() { _, _ = r.Push(&words) }); n > 0 {
		t.Errorf("%v allocations for %d tokens", n, len(words.Tokens))
	}
}
