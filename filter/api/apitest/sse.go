package apitest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Events returns the data of a stream's events without names, up to [DONE], which ends
// the stream.
func Events(t testing.TB, stream string) []gjson.Result {
	t.Helper()
	events, end, found := strings.Cut(stream, "data: [DONE]\n\n")
	if !found || end != "" {
		t.Fatalf("stream does not end in [DONE]:\n%s", stream)
	}
	var all []gjson.Result
	for event := range strings.SplitAfterSeq(events, "\n\n") {
		if event == "" {
			continue
		}
		data, ok := strings.CutPrefix(event, "data: ")
		// One line each: several data lines are valid, but not every client joins them.
		if !ok || !strings.HasSuffix(data, "\n\n") || strings.Count(data, "\n") != 2 || strings.ContainsAny(data, "\r") || !gjson.Valid(data) {
			t.Fatalf("not an event: %q", event)
		}
		all = append(all, gjson.Parse(strings.TrimSuffix(data, "\n\n")))
	}
	return all
}

// Frames returns the events of a whole stream, without the comment lines in front of
// them. Each must have data: some clients decode an event at each empty line.
func Frames(stream string) ([]string, error) {
	var frames []string
	for block := range strings.SplitAfterSeq(stream, "\n\n") {
		// What follows the last event is empty.
		if block == "" {
			break
		}
		frame := block
		for strings.HasPrefix(frame, ":") {
			_, frame, _ = strings.Cut(frame, "\n")
		}
		switch {
		case !strings.HasSuffix(block, "\n\n"):
			return frames, fmt.Errorf("the stream ends inside an event: %q", block)
		case !strings.HasPrefix(frame, "data: ") && !strings.Contains(frame, "\ndata: "):
			return frames, fmt.Errorf("an event without data: %q", block)
		}
		frames = append(frames, frame)
	}
	return frames, nil
}

// VLLMEvent is a server-sent event of a vLLM engine with a piece of its output, of
// POST /v1/completions. An empty finish reason is none.
func VLLMEvent(finish string, ids ...harmony.Token) string {
	f := "null"
	if finish != "" {
		f = strconv.Quote(finish)
	}
	list := strings.ReplaceAll(fmt.Sprint(ids), " ", ",")
	return `data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"","token_ids":` + list + `,"finish_reason":` + f + `,"stop_reason":null}]}` + "\n\n"
}
