package turn

import (
	"context"
	"testing"
)

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
