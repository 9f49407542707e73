package turn

import (
	"context"
	"strings"
	"testing"
)

// TestBehindCalls shows where results move to. Of each item the test has a letter and the
// id of its call: c and r are calls and results, u, d and s texts of the user, of the
// developer, and summaries, a answers and t reasoning.
func TestBehindCalls(t *testing.T) {
	t.Parallel()
	kinds := map[byte]Kind{'c': Call, 'r': Result, 'u': User, 's': User, 'd': Instructions, 'a': Answer, 't': Reasoning}

	for in, want := range map[string]string{
		"u c1 r1 a u":             "u c1 r1 a u",
		"u c1 u r1 a":             "u c1 r1 u a",
		"u c1 d u r1":             "u c1 r1 d u",
		"u c1 c2 u r1 r2":         "u c1 c2 r1 r2 u",
		"u c1 c2 r1 u r2":         "u c1 c2 r1 r2 u",
		"u c1 t c2 r1 r2":         "u c1 t c2 r1 r2",
		"u c1 r1 u c2 u r2":       "u c1 r1 u c2 r2 u",
		"u c1 u c2 u r2 r1":       "u c1 r1 u c2 r2 u",
		"u c1 s r1":               "u c1 s r1",
		"u r9 u":                  "u r9 u",
		"u c1 u1 r1 u r1":         "u c1 r1 r1 u1 u",
		"":                        "",
		"u c1 a r1":               "u c1 a r1",
		"u t c1 u r1 t c2 u r2 a": "u t c1 r1 u t c2 r2 u a",
	} {
		var items []Item
		for name := range strings.FieldsSeq(in) {
			item := Item{Kind: kinds[name[0]], Summary: name[0] == 's', Path: name}
			if item.Kind == Call || item.Kind == Result {
				item.CallID = name[1:]
			}
			items = append(items, item)
		}

		ordered := afterCalls(items)
		got := make([]string, 0, len(ordered))
		for _, item := range ordered {
			got = append(got, item.Path)
		}

		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", in, strings.Join(got, " "), want)
		}
	}
}

// TestOpenCalls shows that a call of a prefix that has its result is not open, where an
// earlier one of the same step is.
func TestOpenCalls(t *testing.T) {
	rc, _ := newContext()
	before, err := rc.Extend(context.Background(), nil, []Item{
		userHi, {Kind: Call, CallID: "a", Name: "f"}, {Kind: Call, CallID: "b", Name: "f"}, {Kind: Result, CallID: "b", Text: "x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if open := before.OpenCalls(); len(open) != 1 || open[0].CallID != "a" {
		t.Errorf("%+v", open)
	}
}
