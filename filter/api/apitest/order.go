package apitest

import (
	"strings"
	"testing"
)

// AnyOrder shows that the results of one tool are read as those of its calls, in whatever order a client
// sends them. first and last are results of calls of one tool, "of first" and "of last", and other, "of other",
// that of a call of another tool between these. prompt returns the prompt of a conversation with results.
func AnyOrder(t *testing.T, first, other, last string, prompt func(results ...string) string) {
	t.Helper()
	for read, sent := range map[string][2][]string{
		"first other last": {{first, other, last}, {last, other, first}},
		"other first last": {{other, first, last}, {other, last, first}},
		"first last other": {{first, last, other}, {last, first, other}},
	} {
		inOrder, shuffled := prompt(sent[0]...), prompt(sent[1]...)
		if shuffled != inOrder {
			t.Errorf("the prompt is\n%s\nwant\n%s", shuffled, inOrder)
		}

		at := 0
		for word := range strings.FieldsSeq(read) {
			next := strings.Index(inOrder[at:], "of "+word)
			if next < 0 {
				t.Errorf("%s: the prompt is\n%s", read, inOrder)
				break
			}
			at += next
		}
	}
}
