package replies

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Clients that follow a stored stream and do not read it cost no engine time. Envoy and
// the filter keep a bounded part of the stream for each.
func TestUnreadStoredStreams(t *testing.T) {
	const (
		clients = 8
		words   = 40_000 // a stream of about 13 MB
		bound   = 5 << 20
	)
	for _, modeOverride := range []bool{false, true} {
		t.Run(fmt.Sprint("bodies on demand ", modeOverride), func(t *testing.T) {
			d := stack.Start(t, stack.Options{Quiet: true, ModeOverride: modeOverride})
			c := d.CheckedOpenAI(t)
			ended := stack.AwaitBackground(t, c, stack.BeginBackground(t, c, stack.VLLMModel, fmt.Sprintf("NOTHINK\nWORDS %d", words)).ID)
			follow := fmt.Sprintf(`{"model":%q,"stream":true,"background":true,"input":"NOTHINK\nWORDS %d"}`, stack.VLLMModel, words)

			for _, tt := range []struct {
				name string
				open func() io.ReadCloser
			}{
				{"GET over HTTP/1.1", func() io.ReadCloser { return openHTTP1(t, d, "/v1/responses/"+ended.ID+"?stream=true", "") }},
				{"POST in the background over HTTP/1.1", func() io.ReadCloser { return openHTTP1(t, d, "/v1/responses", follow) }},
				{"POST in the background over HTTP/2", func() io.ReadCloser { return openHTTP2(t, d, "/v1/responses", follow) }},
			} {
				t.Run(tt.name, func(t *testing.T) {
					before := allocated(t, d)
					streams := make([]io.ReadCloser, clients)
					for i := range streams {
						streams[i] = tt.open()
					}

					grown := settled(t, d) - before
					t.Logf("Envoy keeps %.1f MB for each of %d clients", float64(grown)/clients/1e6, clients)
					if grown > clients*bound {
						t.Errorf("Envoy keeps %d bytes for %d clients that do not read", grown, clients)
					}

					// Who reads in the end gets all of it.
					if text := textOf(t, streams[0], responsesText); text != stack.WordsTo(words) {
						t.Errorf("the stream has %d bytes of text that end with %q", len(text), text[max(0, len(text)-40):])
					}

					for _, stream := range streams {
						_ = stream.Close()
					}
				})
			}
		})
	}
}

// A large JSON object of the store is paced.
func TestUnreadStoredObjects(t *testing.T) {
	const (
		clients = 8
		size    = 16 << 20
		bound   = 5 << 20
	)

	d := stack.Start(t, stack.Options{Quiet: true})
	path := conversation(t, d, size)
	before := allocated(t, d)
	streams := make([]io.ReadCloser, clients)
	for i := range streams {
		streams[i] = openHTTP1(t, d, path, "")
	}

	grown := settled(t, d) - before
	t.Logf("Envoy keeps %.1f MB for each of %d clients", float64(grown)/clients/1e6, clients)
	if grown > clients*bound {
		t.Errorf("Envoy keeps %d bytes for %d clients that do not read", grown, clients)
	}

	all, err := io.ReadAll(streams[0])
	if text := gjson.GetBytes(all, "data.0.content.0.text").Str; err != nil || text != strings.Repeat("x", size) {
		t.Errorf("the object has %d bytes, %d of text: %v", len(all), len(text), err)
	}
}

// conversation makes a conversation with an item of a size, and returns the path of its
// items.
func conversation(t *testing.T, d *stack.Dataplane, size int) string {
	t.Helper()
	item := fmt.Sprintf(`{"role":"user","content":%q}`, strings.Repeat("x", size))
	created := d.Answer(t, "/v1/conversations", `{"items":[`+item+`]}`)
	return "/v1/conversations/" + gjson.Get(created, "id").Str + "/items"
}

// Envoy keeps all of a JSON object that is not paced, but not for ever: it
// resets the stream (HTTP/2) or closes the connection (HTTP/1.1).
func TestUnreadObjectsAreDropped(t *testing.T) {
	const (
		clients = 8
		size    = 16 << 20
		rest    = 1 << 20 // of all clients
	)

	d := stack.Start(t, stack.Options{Quiet: true, Bootstrap: func(text string) string {
		return strings.NewReplacer("stream_flush_timeout: 60s", "stream_flush_timeout: 1s", "{idle_timeout: 300s}", "{idle_timeout: 1s}",
			`initial_metadata: [{key: x-harmony-pacing, value: "on"}]`, "initial_metadata: []").Replace(text)
	}})
	path := conversation(t, d, size)

	for name, open := range map[string]func(*testing.T, *stack.Dataplane, string, string) io.ReadCloser{"HTTP/1.1": openHTTP1, "HTTP/2": openHTTP2} {
		t.Run(name, func(t *testing.T) {
			before, most := allocated(t, d), int64(0)
			for range clients {
				open(t, d, path, "")
			}

			for deadline := time.Now().Add(stack.Patience); ; time.Sleep(20 * time.Millisecond) {
				now := allocated(t, d) - before
				most = max(most, now)
				if most > clients*size/4 && now < rest {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("Envoy kept %.1f MB for each of %d clients, and still keeps %.1f MB", float64(most)/clients/1e6, clients, float64(now)/clients/1e6)
				}
			}

			t.Logf("Envoy kept %.1f MB for each of %d clients", float64(most)/clients/1e6, clients)
		})
	}
}
