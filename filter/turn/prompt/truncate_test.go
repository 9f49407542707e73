package prompt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
)

// TestTurnStarts shows where a conversation can be truncated. The letters are the
// kinds of the items: instructions, user, a summary as a user's text, reasoning,
// preamble, answer, call, result (o).
func TestTurnStarts(t *testing.T) {
	t.Parallel()
	kinds := map[rune]item.Kind{'i': item.Instructions, 'u': item.User, 's': item.User, 'r': item.Reasoning, 'p': item.Preamble, 'a': item.Answer, 'c': item.Call, 'o': item.Result}

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
		items := make([]item.Item, 0, len(conversation))
		for _, c := range conversation {
			items = append(items, item.Item{Kind: kinds[c], Summary: c == 's'})
		}
		if diff := cmp.Diff(want, turnStarts(items)); diff != "" {
			t.Errorf("%s: %s", conversation, diff)
		}
	}
}

func TestWithout(t *testing.T) {
	t.Parallel()
	items := []item.Item{{Kind: item.Instructions, Text: "a"}, {Kind: item.User}, {Kind: item.Answer}, {Kind: item.Instructions, Text: "b"}, {Kind: item.User, Text: "c"}}
	want := []item.Item{{Kind: item.Instructions, Text: "a"}, {Kind: item.Instructions, Text: "b"}, {Kind: item.User, Text: "c"}}
	if diff := cmp.Diff(want, without(items, 4)); diff != "" {
		t.Error(diff)
	}
	if items[1].Kind != item.User {
		t.Error("the conversation itself has changed")
	}
}

// TestJoinedToolsTruncated shows that a conversation keeps its tools when its oldest
// turns are dropped.
func TestJoinedToolsTruncated(t *testing.T) {
	t.Parallel()
	items := []item.Item{{Kind: item.Instructions, Text: "a"}, {Kind: item.User}, found("read"), {Kind: item.Answer}, {Kind: item.User, Text: "c"}}
	want := []item.Kind{item.Instructions, item.Tools, item.User}
	got := make([]item.Kind, 0, len(want))
	for _, i := range without(items, 4) {
		got = append(got, i.Kind)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
