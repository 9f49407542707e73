package turn

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestConcise(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 10, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{" \n\ta \u00a0\r\n b\u2003", 10, "a b"},
		{"a b", 2, "a"},
		{"a bc", 3, "a b"},
		{"née", 2, "n"},
		{"née", 3, "né"},
		{"a🙂b", 4, "a"},
		{"a🙂b", 5, "a🙂"},
		{"a\xff\xfeb", 4, "a\ufffd"},
		{strings.Repeat(" ", 1000) + "x", 1, "x"},
	} {
		got := concise(tt.text, tt.n)
		if got != tt.want || len(got) > tt.n || !utf8.ValidString(got) {
			t.Errorf("%q in %d bytes: %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

// TestRoutingInfo shows the description of a conversation, with and without a
// prefix.
func TestRoutingInfo(t *testing.T) {
	t.Parallel()
	rc, _ := newContext()
	rc.Limits.LastUserTextBytes = 8
	items := append([]Item{{Kind: Instructions, Text: "Be kind."}, {Kind: User, Text: "first"}, {Kind: Answer, Text: "Hello."}}, toolTurn("x")...)
	items[3].Text = "what  is\nthe weather"
	in := &Input{Items: items, Tools: functions("f", "g")}
	want := RoutingInfo{Items: len(items), Tools: 2, LastUserText: "what is"}
	if got := prepare(t, rc, in).RoutingInfo(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	for cut := range len(items) {
		before, err := Extend(context.Background(), rc, nil, items[:cut])
		if err != nil {
			t.Fatal(err)
		}
		in.Before, in.Items = before, items[cut:]
		if got := prepare(t, rc, in).RoutingInfo(); got != want {
			t.Errorf("behind a prefix of %d: %+v, want %+v", cut, got, want)
		}
	}

	rc.Limits.LastUserTextBytes = 0
	in.Before, in.Items = nil, items
	if got := prepare(t, rc, in).RoutingInfo(); got.LastUserText != "" {
		t.Errorf("%q is there although it is switched off", got.LastUserText)
	}
}
