package stack

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// Texts returns the reasoning and the text of a stream.
func (a *FaultAPI) Texts(stream string) string {
	if a.Name == "responses" {
		// Events of Responses name items and parts: the shared rules put them together, and check them.
		object, err := responsestest.Stream([]byte(stream))
		if err != nil {
			return err.Error()
		}
		return gjson.GetBytes(object, "output.#.content.0.text").Raw
	}
	var reasoning, text strings.Builder
	for line := range strings.Lines(stream) {
		if data, ok := strings.CutPrefix(line, "data: {"); ok {
			event := gjson.Parse("{" + data)
			reasoning.WriteString(event.Get("choices.0.delta.reasoning_content").Str + event.Get("delta.thinking").Str)
			text.WriteString(event.Get("choices.0.delta.content").Str + event.Get("delta.text").Str)
		}
	}
	return `["` + reasoning.String() + `","` + text.String() + `"]`
}

// Disconnect sends a request, or a part of it, reads a part of the reply, and closes
// the connection, in good order or with a reset.
func (d *Dataplane) Disconnect(random *rand.Rand) error {
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		return err
	}
	defer conn.Close()

	// Without lingering the connection ends with a reset, else with its orderly end.
	if random.IntN(2) == 0 {
		_ = conn.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // of a TCP address
	}

	a := FaultAPIs[random.IntN(len(FaultAPIs))]
	// With 5 ms before each word no reply ends before its client leaves.
	body := a.Body(VLLMModel, "NOTHINK\nWORDS 100000 5", random.IntN(4) > 0)
	// Written by hand: net/http always sends the whole request. All attacks have one tenant, so
	// that they leave the share of other clients alone.
	text := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nX-Tenant: attacker\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", a.Path, len(body), body)

	// Some clients leave within the request.
	if random.IntN(3) == 0 {
		_, _ = io.WriteString(conn, text[:random.IntN(len(text))]) // Envoy may have closed it
		return nil
	}

	_, _ = io.WriteString(conn, text)
	if strings.Contains(body, `"stream":true`) {
		lines := bufio.NewReader(conn)
		for range random.IntN(14) { // some of them are headers
			_, _ = lines.ReadString('\n')
		}
	}

	return nil
}

// The tests of faults send the same requests to all three APIs.

// FaultAPI is one of them.
type FaultAPI struct {
	Name, Path string
	// fields are those of a request without model and stream; %s is the user's text.
	fields string
	// delta is in each event that has text.
	delta string
	// end returns the error of a stream, "" if there is none; ok says that it has an end.
	end func(events []string) (message string, ok bool)
}

// FaultAPIs are the three APIs.
var FaultAPIs = []FaultAPI{
	{
		"chat", "/v1/chat/completions", `"messages":[{"role":"user","content":%s}]`, `"delta":{"content":"`, chatEnd,
	},
	{"responses", "/v1/responses", `"input":%s`, `response.output_text.delta`, responsesEnd},
	{
		"messages", "/v1/messages", `"max_tokens":100000,"thinking":{"type":"enabled","budget_tokens":1024},` +
			`"messages":[{"role":"user","content":%s}]`, `"text_delta"`, messagesEnd,
	},
}

func chatEnd(events []string) (message string, ok bool) {
	// [DONE] also follows an error, which is the event before it.
	if len(events) < 2 || events[len(events)-1] != "data: [DONE]" {
		return "", false
	}
	return gjson.Get(strings.TrimPrefix(events[len(events)-2], "data: "), "error.message").Str, true
}

func responsesEnd(events []string) (message string, ok bool) {
	object, err := responsestest.Stream([]byte(strings.Join(events, "\n\n") + "\n\n"))
	if err != nil {
		return err.Error(), false
	}
	return gjson.GetBytes(object, "error.message").Str,
		slices.Contains([]string{"completed", "failed"}, gjson.GetBytes(object, "status").Str)
}

func messagesEnd(events []string) (message string, ok bool) {
	if len(events) == 0 {
		return "", false
	}

	// An error takes the place of message_stop: nothing follows it.
	name, data, _ := strings.Cut(events[len(events)-1], "\n")
	return gjson.Get(strings.TrimPrefix(data, "data: "), "error.message").Str,
		name == "event: error" || name == "event: message_stop"
}

// Body is a request of the API.
func (a *FaultAPI) Body(model, content string, stream bool) string {
	quoted, _ := json.Marshal(content)
	return fmt.Sprintf(`{"model":%q,"stream":%t,`+a.fields+`}`, model, stream, quoted)
}

// ErrNoEnd means that a stream has ended without its last event.
var ErrNoEnd = errors.New("the stream has no end")

// Read reads a stream to its end: what it has in all, and the message of the error
// that it ends with. err is ErrNoEnd if it ends without an end.
func (a *FaultAPI) Read(r io.Reader) (text, message string, err error) {
	all, err := io.ReadAll(r)
	text = string(all)

	// What has arrived is judged even if the connection broke: an error event may be in it.
	events, broken := apitest.Frames(text)
	for i := range events {
		events[i] = strings.TrimSuffix(events[i], "\n\n")
	}
	message, ok := a.end(events)
	if !ok {
		err = errors.Join(ErrNoEnd, err)
	}
	return text, message, errors.Join(err, broken)
}

// FaultStream is a reply that is being received.
type FaultStream struct {
	API  FaultAPI
	resp *http.Response
	// head is what was read so far, rest what follows.
	head strings.Builder
	rest *bufio.Reader
}

// Stream begins a stream, and reads it until the text begins.
func (d *Dataplane) Stream(t *testing.T, a FaultAPI, model, content string, headers ...string) *FaultStream {
	t.Helper()
	resp := d.Do(t, http.MethodPost, a.Path, "application/json", strings.NewReader(a.Body(model, content, true)),
		headers...)
	s := &FaultStream{API: a, resp: resp, rest: bufio.NewReader(resp.Body)}
	for {
		line, err := s.rest.ReadString('\n')
		s.head.WriteString(line)
		// Before its first token a call that failed would be made again, and the fault of the test would
		// have no effect: the text has to be there.
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d, %v, before the text of %s", a.Name, resp.StatusCode, err, s.head.String())
		}
		if strings.Contains(line, a.delta) {
			return s
		}
	}
}

// End reads the rest of the stream: see [FaultAPI.Read].
func (s *FaultStream) End() (text, message string, err error) {
	return s.API.Read(io.MultiReader(strings.NewReader(s.head.String()), s.rest))
}

// Works checks that a request of each API gets its whole reply, at once.
func (d *Dataplane) Works(t *testing.T, model string) {
	t.Helper()
	for _, a := range FaultAPIs {
		resp := d.Do(t, http.MethodPost, a.Path, "application/json", strings.NewReader(a.Body(model,
			"SAY It works.", false)))
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK ||
			!strings.Contains(string(text), "It works.") {
			t.Errorf("%s: the next request: status %d, %v, %s", a.Name, resp.StatusCode, err, text)
		}
	}
}

// Eventually waits until a state is there.
func Eventually(t testing.TB, what string, state func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !state(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout while waiting for: %s", what)
		}
	}
}

// Outcomes counts the log lines of requests by outcome.
func (l *LogFile) Outcomes() map[string]int {
	n := map[string]int{}
	for line := range strings.SplitSeq(l.String(), "\n") {
		// A name stands before each line. Envoy's access log is JSON as well, but has no msg.
		if _, object, found := strings.Cut(line, "{"); found && gjson.Get("{"+object, "msg").Str == "request" {
			n[gjson.Get("{"+object, "outcome").Str]++
		}
	}
	return n
}

// Status sends a short request, and returns the status of the answer.
func (d *Dataplane) Status(t *testing.T, a FaultAPI, model string) int {
	t.Helper()
	resp, err := d.Client.Do(d.Request(t, a.Path, a.Body(model, "SAY x", false), ""))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	// A connection whose reply was not read to its end cannot be used again.
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// AwaitCancelled waits until the engine has nothing to do.
func (d *Dataplane) AwaitCancelled(t *testing.T) {
	t.Helper()
	Eventually(t, "the end of the engine's requests", func() bool {
		for _, r := range d.AllEngineRequests(t) {
			if r.State == StateRunning {
				return false
			}
		}
		return true
	})
}

// Signal sends a signal to a process.
func Signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}
