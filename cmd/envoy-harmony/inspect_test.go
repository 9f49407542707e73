package main

import (
	"strings"
	"testing"
)

// Where an output was repaired is shown at its message, and with -tokens at its token.
func TestInspectRepairs(t *testing.T) {
	t.Parallel()
	const file = "../../filter/testdata/records/repair.json"
	exit, stdout, stderr := execute(t, nil, "inspect", "-tokens", file)
	for _, want := range []string{
		"  (4 tokens)  repaired: missing_start, missing_channel\n", "<|message|>  repaired: missing_start, missing_channel\n",
	} {
		if exit != 0 || strings.Count(stdout, want) != 1 {
			t.Errorf("%q is not there once: exit %d, %s%s", want, exit, stdout, stderr)
		}
	}
}
