package turn

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTurnStarts shows where a conversation can be truncated. The letters are the
// kinds of the items: instructions, user, a summary as a user's text, reasoning,
// preamble, answer, call, result (o).
func TestTurnStarts(t *testing.T) {
	t.Parallel()
	kinds := map[rune]Kind{'i': Instructions, 'u': User, 's': User, 'r': Reasoning, 'p': Preamble, 'a': Answer, 'c': Call, 'o': Result}

	for conversation, want := range map[string][]int{
		"":            nil,
		"u":           nil,
		"iua":         nil,
		"iuaua":       {3},
		"uaua ua":     {2, 4},
		"uuauua":      {3},
		"aua":         nil,
		"ucoaua":      {4},
		"ucuoaua":     {5}, // a user speaks while a call waits
		"urpccooraiu": {10},
		"iuusua":      {3}, // the user's text goes on where the summary ends
		"sua":         nil,
		"usuaua":      {1, 4},
	} {
		conversation = strings.ReplaceAll(conversation, " ", "")
		items := make([]Item, 0, len(conversation))
		for _, c := range conversation {
			items = append(items, Item{Kind: kinds[c], Summary: c == 's'})
		}
		if diff := cmp.Diff(want, turnStarts(items)); diff != "" {
			t.Errorf("%s: %s", conversation, diff)
		}
	}
}

func TestWithout(t *testing.T) {
	t.Parallel()
	items := []Item{{Kind: Instructions, Text: "a"}, {Kind: User}, {Kind: Answer}, {Kind: Instructions, Text: "b"}, {Kind: User, Text: "c"}}
	want := []Item{{Kind: Instructions, Text: "a"}, {Kind: Instructions, Text: "b"}, {Kind: User, Text: "c"}}
	if diff := cmp.Diff(want, without(items, 4)); diff != "" {
		t.Error(diff)
	}
	if items[1].Kind != User {
		t.Error("the conversation itself has changed")
	}
}
