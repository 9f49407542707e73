package event_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/event"
)

// What is read of the events of recorded replies is what their JSON says.
func TestReaderReadsWhatIsWritten(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../testdata/*/events.sse")
	if err != nil || len(files) < 5 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		var events []event.Event
		var r event.Reader
		if err := r.Feed(text, func(e event.Event) error {
			events = append(events, e)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\ndata: {"); len(events) != n || n == 0 {
			t.Fatalf("%s: %d of %d events", file, len(events), n)
		}

		for i, e := range events {
			kind := gjson.GetBytes(e.JSON, "type").Str
			step, status := event.Other, ""
			switch {
			case i == 0:
				step = event.Created
			case i == len(events)-1:
				step, status = event.Ended, gjson.GetBytes(e.JSON, "response.status").Str
			case gjson.GetBytes(e.JSON, "item").Exists() && strings.HasPrefix(kind, "response.output_item."):
				step = event.ItemChanged
			}
			if e.Step != step || e.Status != status {
				t.Errorf("%s: %s is step %d with %q, want %d with %q", file, kind, e.Step, e.Status, step, status)
			}
		}
		if first, last := events[0], events[len(events)-1]; first.ID() == "" || first.ID() != last.ID() {
			t.Errorf("%s: the ids %q and %q", file, first.ID(), last.ID())
		}
	}
}

// FuzzReader cuts server-sent events at any place. The events do not depend on it.
func FuzzReader(f *testing.F) {
	f.Add("event: a\ndata: {\"type\":\"a\"}\n\n: keep-alive\nevent: b\ndata: {\"b\":1}\n\ndata: [DONE]\n\n", 3)
	f.Fuzz(func(t *testing.T, sse string, cut int) {
		read := func(pieces ...string) (events []string) {
			var r event.Reader
			for _, p := range pieces {
				if err := r.Feed([]byte(p), func(e event.Event) error {
					events = append(events, string(e.JSON))
					_ = event.Required(e.JSON)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			return events
		}
		cut = min(max(cut, 0), len(sse))
		if whole, cut := read(sse), read(sse[:cut], sse[cut:]); !slices.Equal(whole, cut) {
			t.Errorf("%q, cut: %q", whole, cut)
		}
	})
}
