package engine

import (
	"bytes"
	"strings"
	"testing"
)

// An engine that sends much without an event is refused after maxSkipped bytes, whatever
// the pieces. What precedes an event counts for that event only.
func TestSkippedLines(t *testing.T) {
	t.Parallel()
	const data = "data: x\n"
	for name, line := range map[string]string{"empty lines": "\n", "carriage returns": "\r\n", "comments": ": ping\n", "other fields": "id: 1\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			most := strings.Repeat(line, maxSkipped/len(line))
			for _, size := range []int{1, 7, 4096, len(most)} {
				if events, idle := readLines(most+data+most+data, size); events != 2 || idle {
					t.Errorf("pieces of %d bytes: %d events, refused: %t", size, events, idle)
				}
				if events, idle := readLines(data+most+line+line+data, size); events != 1 || !idle {
					t.Errorf("pieces of %d bytes: %d events, refused: %t", size, events, idle)
				}
			}
		})
	}
}

// readLines counts the data lines of a stream that comes in pieces of a size, and
// reports whether the stream is refused.
func readLines(stream string, size int) (events int, idle bool) {
	var lines eventLines
	for len(stream) > 0 {
		p := []byte(stream[:min(size, len(stream))])
		stream = stream[len(p):]
		for {
			_, rest, ok := lines.next(p)
			if !ok {
				break
			}
			events++
			p = rest
		}
	}
	return events, lines.idle()
}

func TestEngineWithoutEvents(t *testing.T) {
	t.Parallel()
	d := vllm{}.NewDecoder(&Request{N: 1})
	_, err := d.Feed(bytes.Repeat([]byte("\n"), 2*maxSkipped), nil)
	if err == nil || err.Status != 502 || !strings.Contains(err.Message, "without an event") {
		t.Errorf("error %v", err)
	}
	if chunks, err := d.Feed([]byte("data: [DONE]\n\n"), nil); len(chunks) > 0 || err != nil {
		t.Errorf("after the error: %v, %v", chunks, err)
	}
}
