package inspect_test

import (
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/inspect"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The view of an exchange with one model call.
func Example() {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	tape := record.NewTape(record.Record{Started: now}, 1<<20, func() time.Time {
		now = now.Add(10 * time.Millisecond)
		return now
	})
	tape.Call(&engine.Request{ID: engine.CallID{Request: "r1-0"}, Prompt: harmony.AppendEncodeSpecial(nil, "<|start|>user<|message|>Hello<|end|><|start|>assistant")}, 0)
	tape.Chunks([]engine.Chunk{{Tokens: harmony.AppendEncodeSpecial(nil, "<|channel|>final<|message|>Hi!<|return|>"), Finish: engine.FinishStop}})
	r := tape.Ended(record.Result{Outcome: "ok"})

	view := inspect.Of(&r)
	for _, m := range append(view.Calls[0].Prompt, view.Calls[0].Output...) {
		fmt.Printf("%s %q %q\n", m.Role, m.Channel, m.Text())
	}
	for _, s := range view.Steps {
		fmt.Println(s.Name, inspect.Duration(s.To-s.From))
	}
	// Output:
	// user "" "Hello"
	// assistant "" ""
	// assistant "final" "Hi!"
	// decode 10ms
	// queue 10ms
	// generate 0s
	// end 10ms
}
