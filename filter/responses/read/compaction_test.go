package read

import (
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// TestForget shows which users' messages have room beside a compaction.
func TestForget(t *testing.T) {
	t.Parallel()
	user := func(text string) turn.Item { return turn.Item{Kind: turn.User, Text: text} }
	x := func(n int) string { return strings.Repeat("x", n) }
	items := []turn.Item{
		{Kind: turn.Instructions, Text: "rule"},
		user("first"),
		{Kind: turn.Answer, Text: "reply"},
		user(""), user(x(1000)),
		{Kind: turn.User, Summary: true, Text: "earlier"},
		{Kind: turn.Call},
		{Kind: turn.Result},
		user("last"),
	}
	for room, want := range map[int]string{
		0:       "rule",
		19:      "rule",
		20:      "rule last",
		36:      "rule last",
		536:     "rule last",
		548:     "rule " + x(256) + "\n[488 bytes are left out here]\n" + x(256) + " last",
		1036:    "rule " + x(1000) + " last",
		1052:    "rule  " + x(1000) + " last",
		1072:    "rule  " + x(1000) + " last",
		1073:    "rule first  " + x(1000) + " last",
		1 << 20: "rule first  " + x(1000) + " last",
	} {
		r := &itemReader{items: items, rc: &turn.RequestContext{}}
		if err := r.forget(room); err != nil {
			t.Fatal(err)
		}
		texts := make([]string, 0, len(items))
		for _, it := range r.items {
			texts = append(texts, it.Text)
		}
		if got := strings.Join(texts, " "); got != want {
			t.Errorf("%d bytes: %q, want %q", room, got, want)
		}
	}
}
