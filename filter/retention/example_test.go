package retention_test

import (
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/retention"
)

// An agent's tools take some 8 s. Of its next call the engine is asked to keep the conversation until the
// tool has run, and the head, which all sessions of the program have, for longer.
func Example() {
	m := retention.NewMemory()
	now := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	m.Began(0xbeef) // another session begins with the same head
	m.Called("session-1", "call_1", now)
	m.Resumed("session-1", "call_1", now.Add(8*time.Second))

	call := retention.Call{
		Prompt: 9000, Head: 6000, Turn: 8200, Tools: true, Choices: 1,
		Shared: m.Shared(0xbeef), Pause: m.Pause("session-1"),
	}
	for _, d := range call.Directives() {
		fmt.Println(d.Start, d.End, d.Output, d.Priority, d.Keep)
	}

	// Now a summary takes the conversation's place.
	call.Ends = true
	for _, d := range call.Directives() {
		fmt.Println(d.Start, d.End, d.Output, d.Priority, d.Keep)
	}
	// Output:
	// 0 6000 false 90 10m0s
	// 6000 7100 false 70 12s
	// 7100 8200 false 69 12s
	// 8200 9000 false 68 12s
	// 0 0 true 67 12s
	// 0 6000 false 90 10m0s
	// 6000 9000 false 0 0s
	// 0 0 true 0 0s
}
