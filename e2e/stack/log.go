package stack

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// RequestLine returns the filter's log line that contains a text. The line may
// follow the reply.
func (d *Dataplane) RequestLine(t *testing.T, part string) string {
	t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for line := range strings.SplitSeq(d.Logs.String(), "\n") {
			// Envoy's access log may have the text as well.
			if strings.HasPrefix(line, "filter") && strings.Contains(line,
				"msg=request ") && strings.Contains(line, part) {
				return line
			}
		}
	}
	t.Fatalf("no log line of a request with %q", part)
	return ""
}

// AccessLogMetadata waits for a request's line in the access log and returns the
// filter's metadata. Envoy flushes its log every ten seconds.
func (d *Dataplane) AccessLogMetadata(t *testing.T, id string) map[string]any {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		for line := range strings.SplitSeq(d.Logs.String(), "\n") {
			text, _ := strings.CutPrefix(line, "envoy   ")
			entry := gjson.Parse(text)
			metadata, _ := entry.Get("harmony").Value().(map[string]any)
			// Envoy writes null for a key that a request does not have.
			maps.DeleteFunc(metadata, func(_ string, v any) bool { return v == nil })
			// contained in the engine's own id
			if metadata["api"] != nil && strings.Contains(entry.Get("request_id").String(), id) {
				return metadata
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the access log has no metadata of request %s", id)
		}
	}
}
