package rollout

import (
	"strings"
	"testing"
)

// What the side of a request of a megabyte costs.
func BenchmarkRead(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"Hi"}` + strings.Repeat(`,{"role":"assistant","content":"`+strings.Repeat("word ", 200)+`"}`, 1000) + `]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		r := Read(body)
		r.Beginning("t", "m").In(5)
	}
}
