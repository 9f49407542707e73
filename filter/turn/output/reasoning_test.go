package output

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
)

// TestLongReasoningKept shows that the beginning of reasoning beyond the bound is
// kept, without gaps.
func TestLongReasoningKept(t *testing.T) {
	t.Parallel()
	var reasoning reasoningText
	for i, piece := range []string{strings.Repeat("a", kept.MaxBytes-4), "long piece", "b"} {
		reasoning.add([]byte(piece), i == 0)
	}
	if got := string(reasoning.text); got != strings.Repeat("a", kept.MaxBytes-4) {
		t.Errorf("kept %d bytes that end in %q", len(got), got[len(got)-4:])
	}
}
