package replies

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// TestPrewarm shows that a prompt that was prepared without output is in the engine's cache: the next request
// finds all of it there but the end. Responses and Messages each have a field for it over HTTP.
func TestPrewarm(t *testing.T) {
	long := strings.Repeat("The library closes at six on Sundays. ", 60)
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprintf("direct=%t", direct), func(t *testing.T) {
			d := stack.Start(t, stack.Options{Direct: direct})
			for _, door := range []struct{ path, body, prepares, output, cached string }{
				{
					"/v1/responses", `{"model":"gpt-oss-20b","instructions":"responses: ` + long + `","input":"NOTHINK\nSAY hello"`,
					`,"prompt_cache_options":{"prewarm":true}`, "output", "usage.input_tokens_details.cached_tokens",
				},
				{
					"/v1/messages", `{"model":"gpt-oss-20b","system":"messages: ` + long + `","messages":[{"role":"user","content":"NOTHINK\nSAY hello"}]`,
					`,"max_tokens":0`, "content", "usage.cache_read_input_tokens",
				},
			} {
				for _, stream := range []string{"", `,"stream":true`} {
					prepared := preparedReply(t, d, door.path, door.body+door.prepares+stream+"}")
					if got := prepared.Get(door.output); !got.IsArray() || len(got.Array()) > 0 {
						t.Errorf("%s%s: the output is %s", door.path, stream, got.Raw)
					}
				}

				more := ""
				if door.path == "/v1/messages" {
					more = `,"max_tokens":50`
				}
				status, reply := d.Post(t, door.path, door.body+more+"}")
				if cached := reply.Get(door.cached).Int(); status != 200 || cached < 400 {
					t.Errorf("%s: %d, %d tokens were in the cache: %s", door.path, status, cached, reply.Raw)
				}
			}
		})
	}
}

// preparedReply returns the reply, which of a stream is in its last event that has one, or in the first.
func preparedReply(t *testing.T, d *stack.Dataplane, path, body string) gjson.Result {
	t.Helper()
	text := d.Answer(t, path, body)
	if strings.HasPrefix(text, "{") {
		return gjson.Parse(text)
	}

	var whole gjson.Result
	for line := range strings.Lines(text) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		for _, member := range []string{"response", "message"} {
			if reply := gjson.Get(data, member); reply.IsObject() {
				whole = reply
			}
		}
	}
	return whole
}
