package kept

import (
	"slices"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// FuzzWrittenChoice reads texts of the store: what is accepted is well formed, and the same when it is kept
// again.
func FuzzWrittenChoice(f *testing.F) {
	good := Written{calls: []string{"call_1"}}
	good.messages, _ = harmony.ReadWritten(harmony.AppendEncodeSpecial(nil, "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"))
	f.Add(good.text(time.Unix(1, 0)))
	f.Add((&Written{calls: []string{"call_1", "b"}}).text(time.Unix(0, 0)))
	f.Add("1.")
	f.Fuzz(func(t *testing.T, text string) {
		c, at, ok := readWritten("call_1", text)
		if !ok {
			return
		}
		again, when, ok := readWritten("call_1", c.text(time.Unix(at, 0)))
		if !ok || when != at || !slices.Equal(again.calls, c.calls) || len(again.messages) != len(c.messages) {
			t.Fatalf("%+v, %+v", c, again)
		}
		for i := range c.messages {
			if !slices.Equal(again.messages[i].Written, c.messages[i].Written) {
				t.Fatalf("message %d: %v, %v", i, again.messages[i], c.messages[i])
			}
		}
	})
}
