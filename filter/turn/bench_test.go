package turn

import (
	"fmt"
	"strconv"
	"strings"
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

// BenchmarkHistory prepares the next step of a turn that has many, with the history in both forms.
func BenchmarkHistory(b *testing.B) {
	for _, history := range []string{HistoryCanonical, HistoryExact} {
		b.Run(history, func(b *testing.B) {
			rc, _ := newContext()
			rc.Model = &Model{History: history}
			in := Input{Items: []Item{userHi}, Tools: functions("f")}
			words := strings.Repeat("func area(w, h float64) float64 { return w * h } ", 60)
			for i := range 100 {
				arguments := `{"path": "shape.go", "text": "` + words + `"}`
				output := "<|channel|>analysis<|message|>I write the file.<|end|>" + fmt.Sprintf(headerForms[0], "functions.f") + arguments + "<|call|>"
				readTokens(b, prepare(b, rc, &in), harmony.AppendEncodeSpecial(nil, output), engine.FinishStop)
				id := "call_" + strconv.Itoa(i+1)
				in.Items = append(in.Items, Item{Kind: Reasoning, Text: "I write the file."}, Item{Kind: Call, CallID: id, Name: "f", Text: arguments}, Item{Kind: Result, CallID: id, Text: "ok"})
			}

			tokens := 0
			b.ReportAllocs()
			for b.Loop() {
				tokens = len(prepare(b, rc, &in).Engine.Prompt)
			}
			b.ReportMetric(float64(tokens), "tokens")
		})
	}
}
