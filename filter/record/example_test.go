package record_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A tape takes down an exchange. Its record goes into a file, and is read again.
func Example() {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	tape := record.NewTape(record.Record{ID: "r1", Started: now}, 1<<20, func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	})
	tape.Call(&engine.Request{ID: engine.CallID{Request: "r1-0"}, Prompt: harmony.AppendEncode(nil, "Hello")}, 0)
	tape.Chunks([]engine.Chunk{{Tokens: harmony.AppendEncode(nil, " world")}})
	tape.Sent([]byte("data: world"))
	whole := tape.Ended(record.Result{Outcome: "ok"})

	var file bytes.Buffer
	redacted := record.Redact(&whole)
	for _, r := range []*record.Record{&whole, &redacted} {
		if err := record.Write(&file, r); err != nil {
			fmt.Println(err)
		}
	}
	for file.Len() > 0 {
		err := record.Read(&file, func(r *record.Record) {
			fmt.Println(r.ID, r.Redacted)
			for _, e := range r.Events {
				fmt.Printf("%d µs: %s %q\n", e.At, e.Kind, e.Text)
			}
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// r1 false
	// 1000 µs: call ""
	// 2000 µs: tokens ""
	// 3000 µs: sent "data: world"
	// r1 true
	// 1000 µs: call ""
	// 2000 µs: tokens ""
	// 3000 µs: sent ""
}
