package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// The tests of faults send the same requests to all three APIs.

// faultAPI is one of them.
type faultAPI struct {
	name, path string
	fields     string                                          // of a request, but for model and stream; %s is the user's text
	delta      string                                          // in an event that has text
	end        func(events []string) (message string, ok bool) // of a stream: its error, "" if there is none; ok: it has an end
}

var faultAPIs = []faultAPI{
	{"chat", "/v1/chat/completions", `"messages":[{"role":"user","content":%s}]`, `"delta":{"content":"`, func(events []string) (string, bool) {
		if len(events) < 2 || events[len(events)-1] != "data: [DONE]" {
			return "", false
		}
		return gjson.Get(strings.TrimPrefix(events[len(events)-2], "data: "), "error.message").Str, true
	}},
	{"responses", "/v1/responses", `"input":%s`, `response.output_text.delta`, func(events []string) (string, bool) {
		object, err := responsestest.Stream([]byte(strings.Join(events, "\n\n") + "\n\n"))
		if err != nil {
			return err.Error(), false
		}
		return gjson.GetBytes(object, "error.message").Str, slices.Contains([]string{"completed", "failed"}, gjson.GetBytes(object, "status").Str)
	}},
	{"messages", "/v1/messages", `"max_tokens":100000,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[{"role":"user","content":%s}]`, `"text_delta"`, func(events []string) (string, bool) {
		if len(events) == 0 {
			return "", false
		}
		name, data, _ := strings.Cut(events[len(events)-1], "\n")
		return gjson.Get(strings.TrimPrefix(data, "data: "), "error.message").Str, name == "event: error" || name == "event: message_stop"
	}},
}

// body is a request of the API.
func (a *faultAPI) body(model, content string, stream bool) string {
	quoted, _ := json.Marshal(content)
	return fmt.Sprintf(`{"model":%q,"stream":%t,`+a.fields+`}`, model, stream, quoted)
}

var errNoEnd = errors.New("the stream has no end")

// read reads a stream to its end: what it has in all, and the message of the error
// that it ends with. err is errNoEnd if it ends without an end.
func (a *faultAPI) read(r io.Reader) (text, message string, err error) {
	all, err := io.ReadAll(r)
	text = string(all)
	events, broken := apitest.Frames(text)
	for i := range events {
		events[i] = strings.TrimSuffix(events[i], "\n\n")
	}
	message, ok := a.end(events)
	if !ok {
		err = errors.Join(errNoEnd, err)
	}
	return text, message, errors.Join(err, broken)
}

// faultStream is a reply that is being received.
type faultStream struct {
	api  faultAPI
	resp *http.Response
	rest *bufio.Reader
	head strings.Builder // what was read so far
}

// stream begins a stream, and reads it until the text begins.
func (d *dataplane) stream(t *testing.T, a faultAPI, model, content string, headers ...string) *faultStream {
	t.Helper()
	resp := d.do(t, http.MethodPost, a.path, "application/json", strings.NewReader(a.body(model, content, true)), headers...)
	s := &faultStream{api: a, resp: resp, rest: bufio.NewReader(resp.Body)}
	for {
		line, err := s.rest.ReadString('\n')
		s.head.WriteString(line)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d, %v, before the text of %s", a.name, resp.StatusCode, err, s.head.String())
		}
		if strings.Contains(line, a.delta) {
			return s
		}
	}
}

// end reads the rest of the stream: see faultAPI.read.
func (s *faultStream) end() (text, message string, err error) {
	return s.api.read(io.MultiReader(strings.NewReader(s.head.String()), s.rest))
}

// works checks that a request of each API gets its whole reply, at once.
func (d *dataplane) works(t *testing.T, model string) {
	t.Helper()
	for _, a := range faultAPIs {
		resp := d.do(t, http.MethodPost, a.path, "application/json", strings.NewReader(a.body(model, "SAY It works.", false)))
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "It works.") {
			t.Errorf("%s: the next request: status %d, %v, %s", a.name, resp.StatusCode, err, text)
		}
	}
}

// eventually waits until a state is there.
func eventually(t testing.TB, what string, state func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !state(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout while waiting for: %s", what)
		}
	}
}

// outcomes counts the log lines of requests by outcome.
func (l *logFile) outcomes() map[string]int {
	n := map[string]int{}
	for line := range strings.SplitSeq(l.String(), "\n") {
		if _, object, found := strings.Cut(line, "{"); found && gjson.Get("{"+object, "msg").Str == "request" {
			n[gjson.Get("{"+object, "outcome").Str]++
		}
	}
	return n
}
