package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestCompareLimit shows that "make bench-peers" fails where the encoder misses its limit.
func TestCompareLimit(t *testing.T) {
	t.Parallel()
	for mean, want := range map[string]string{
		"4.0":  "",
		"3.94": "compare.py: the mean ratio to bpe-openai is 3.94x, and the limit 4.0x",
	} {
		const program = `
import sys
sys.path.insert(0, "..")
sys.dont_write_bytecode = True
import compare
compare.throughput = lambda *_: ([], float(sys.argv[1]))
compare.reference = lambda *_: []
compare.worst = lambda *_: None
compare.main("nowhere")
`
		out, err := exec.CommandContext(t.Context(), "python3", "-c", program, mean).CombinedOutput()
		if (err != nil) != (want != "") || !strings.Contains(string(out), want) {
			t.Errorf("mean %s: error %v, printed\n%s", mean, err, out)
		}
	}
}
