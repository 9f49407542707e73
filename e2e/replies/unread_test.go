package replies

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// A client that does not read holds back the engine: Envoy and the filter keep a
// bounded part of its reply, not all of it.
func TestUnreadReplies(t *testing.T) {
	const (
		clients = 8
		words   = 40_000 // a chat stream of about 25 MB
		bound   = 8 << 20
	)
	content := fmt.Sprintf("NOTHINK\nWORDS %d", words)

	for _, tt := range []struct {
		name, path, body string
		modeOverride     bool
		open             func(t *testing.T, d *stack.Dataplane, path, body string) io.ReadCloser
		text             func(line []byte) string
	}{
		{"chat over HTTP/1.1", "/v1/chat/completions", `{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, false, openHTTP1, chatText},
		{"chat over HTTP/2", "/v1/chat/completions", `{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, false, openHTTP2, chatText},
		{"responses", "/v1/responses", `{"model":%q,"stream":true,"store":false,"input":%q}`, false, openHTTP1, responsesText},
		{"messages with bodies on demand", "/v1/messages", `{"model":%q,"stream":true,"max_tokens":120000,"messages":[{"role":"user","content":%q}]}`, true, openHTTP1, messagesText},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := stack.Start(t, stack.Options{Quiet: true, ModeOverride: tt.modeOverride})
			before := allocated(t, d)
			body := fmt.Sprintf(tt.body, stack.VLLMModel, content)
			streams := make([]io.ReadCloser, clients)
			for i := range streams {
				streams[i] = tt.open(t, d, tt.path, body)
			}

			grown := settled(t, d) - before
			t.Logf("Envoy keeps %.1f MB for each of %d clients", float64(grown)/clients/1e6, clients)
			if grown > clients*bound {
				t.Errorf("Envoy keeps %d bytes for %d clients that do not read", grown, clients)
			}

			// Who reads in the end gets all of it.
			if text := textOf(t, streams[0], tt.text); text != stack.WordsTo(words) {
				t.Errorf("the reply has %d bytes of text that end with %q", len(text), text[max(0, len(text)-40):])
			}
		})
	}
}

// allocated returns how much memory Envoy's heap has in use.
func allocated(t *testing.T, d *stack.Dataplane) int64 {
	t.Helper()
	memory := gjson.Parse(stack.AdminPage(t, d.Admin+"/memory"))
	if !memory.Get("allocated").Exists() {
		t.Fatalf("Envoy's memory: %s", memory)
	}
	return memory.Get("allocated").Int()
}

// settled waits until Envoy's memory does not grow any more, and returns it.
func settled(t *testing.T, d *stack.Dataplane) int64 {
	t.Helper()
	highest := allocated(t, d)
	for same := 0; same < 20; same++ {
		time.Sleep(100 * time.Millisecond)
		if now := allocated(t, d); now > highest+100_000 {
			highest, same = now, 0
		}
	}
	return highest
}

// unreadRequest is a request whose reply is not read: a GET if it has no body.
func unreadRequest(t *testing.T, d *stack.Dataplane, path, body string) *http.Request {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}

	req, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

// openHTTP1 sends a request and does not read from the connection.
func openHTTP1(t *testing.T, d *stack.Dataplane, path, body string) io.ReadCloser {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	if err := unreadRequest(t, d, path, body).Write(connection); err != nil {
		t.Fatal(err)
	}
	return &unread{connection: connection}
}

// unread is the body of a reply whose headers are read with its first byte.
type unread struct {
	connection net.Conn
	body       io.ReadCloser
}

func (u *unread) Read(p []byte) (int, error) {
	if u.body == nil {
		resp, err := http.ReadResponse(bufio.NewReader(u.connection), nil)
		if err != nil {
			return 0, err
		}
		u.body = resp.Body
	}
	return u.body.Read(p)
}

func (u *unread) Close() error { return u.connection.Close() }

// openHTTP2 sends a request on a connection of its own and does not read the body of
// the reply. The HTTP/2 client reads as much as the stream's window allows.
func openHTTP2(t *testing.T, d *stack.Dataplane, path, body string) io.ReadCloser {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := transport.RoundTrip(unreadRequest(t, d, path, body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body
}

// textOf reads a stream to its end and joins the text of its events.
func textOf(t *testing.T, stream io.ReadCloser, text func(line []byte) string) string {
	t.Helper()
	var all strings.Builder
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 64<<20) // the last event of Responses has the whole text
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			all.WriteString(text(data))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	_ = stream.Close()
	return all.String()
}

func chatText(data []byte) string {
	var chunk struct {
		Choices []struct{ Delta struct{ Content string } }
	}
	_ = json.Unmarshal(data, &chunk) // [DONE] has none
	if len(chunk.Choices) == 0 {
		return ""
	}
	return chunk.Choices[0].Delta.Content
}

func responsesText(data []byte) string {
	if !bytes.Contains(data[:min(len(data), 60)], []byte(`"response.output_text.delta"`)) {
		return ""
	}
	var event struct{ Delta string }
	_ = json.Unmarshal(data, &event) // the text is compared
	return event.Delta
}

func messagesText(data []byte) string {
	var event struct{ Delta struct{ Text string } }
	_ = json.Unmarshal(data, &event) // other events have none
	return event.Delta.Text
}
