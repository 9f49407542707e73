//go:build soak

package operations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// soakRequest is one request of the soak test, and what its reply must be.
type soakRequest struct {
	api          string // of the counters; "" if the request is not for the filter
	method, path string
	body         string
	streamed     bool
	begins       bool          // creates a background response, which is counted once it has ended
	reads        bool          // of a stored object: any one is ok
	may          []string      // outcomes that it may have; default: ok
	text         string        // of a reply that is ok; "" if any
	slow         bool          // the client reads slowly
	leaves       time.Duration // when the client leaves, if it has not read the reply; 0: never
	deaf         bool          // a client that leaves, and reads nothing before
	cut          int           // bytes of the body that a client that leaves sends; 0: all
}

// soakLimit bounds one request of the soak test, whatever it waits for.
const soakLimit = 2 * time.Minute

// do sends a request, checks its reply and counts it. It returns the body, or "" if the
// reply is not complete.
func (s *soak) do(q soakRequest) string {
	timeout := soakLimit
	if q.leaves > 0 {
		timeout = q.leaves
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	if q.method == "" {
		q.method = http.MethodPost
	}

	id := fmt.Sprint("soak-", s.sent.Add(1))
	status, body, err := s.send(ctx, q, id)

	if q.leaves > 0 && ctx.Err() != nil {
		s.count(func() {
			s.account.left[q.api]++
			if status == http.StatusOK {
				s.account.begun[q.api]++
			}
		})
		return ""
	}

	outcome := outcomeFailed
	if err == nil {
		outcome, err = q.outcome(status, body)
	}
	if err == nil && !q.allows(outcome) {
		err = fmt.Errorf("the outcome is %s, not one of %v", outcome, q.may)
	}

	if err != nil {
		s.problem(fmt.Sprintf("%s %s %s: status %d: %v; request %.300s; the reply ends with %q", id, q.method, q.path, status, err, q.body, body[max(0, len(body)-300):]))
		return ""
	}

	if !q.begins {
		s.ended(q.api, outcome)
	}
	return string(body)
}

func (q soakRequest) allows(outcome string) bool {
	if len(q.may) == 0 {
		return outcome == outcomeOK
	}
	return slices.Contains(q.may, outcome)
}

// send returns the status and what was read of the body.
func (s *soak) send(ctx context.Context, q soakRequest, id string) (status int, body []byte, err error) {
	var sent io.Reader = strings.NewReader(q.body)
	if q.cut > 0 {
		sent = io.MultiReader(strings.NewReader(q.body[:min(q.cut, len(q.body))]), endless{ctx})
	}

	r, err := http.NewRequestWithContext(ctx, q.method, s.d.URL+q.path, sent)
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("X-Request-Id", id)
	if q.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}

	client := s.d.Client
	if q.slow || q.deaf {
		client = s.slow
	}

	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()

	if q.deaf {
		<-ctx.Done()
		return resp.StatusCode, nil, ctx.Err()
	}

	from := io.Reader(resp.Body)
	if q.slow {
		from = slowly{resp.Body}
	}
	body, err = io.ReadAll(from)
	return resp.StatusCode, body, err
}

// endless is the rest of a body that does not come.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, e.ctx.Err()
}

// slowly reads four kilobytes at a time, with a pause before each.
type slowly struct{ from io.Reader }

func (r slowly) Read(p []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return r.from.Read(p[:min(len(p), 4096)])
}

// newSlowClient returns a client whose connections take little that is not read.
func newSlowClient() *http.Client {
	dialer := &net.Dialer{}
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, ReadBufferSize: 4096,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok {
				err = errors.Join(err, tcp.SetReadBuffer(4096))
			}
			return conn, err
		},
	}}
}

// outcome checks that a reply has the form of its API, from the first byte to the end
// marker, and returns how it ended.
func (q soakRequest) outcome(status int, body []byte) (string, error) {
	switch {
	case status >= http.StatusInternalServerError:
		return outcomeFailed, wantErrorObject(body)
	case status >= http.StatusBadRequest:
		return outcomeRejected, wantErrorObject(body)
	case status != http.StatusOK:
		return "", errors.New("unknown status")
	}
	text, outcome, err := q.read(body)
	if q.reads {
		outcome = outcomeOK
	}
	if err == nil && outcome == outcomeOK && q.text != "" && text != q.text {
		err = fmt.Errorf("the text is %q, want %q", text, q.text)
	}
	return outcome, err
}

// read checks the form of a reply with status 200, and returns its text and its outcome.
func (q soakRequest) read(body []byte) (text, outcome string, err error) {
	switch {
	case q.streamed && q.api == "chat":
		return chatStream(body)
	case q.streamed && q.api == "messages":
		return messageStream(body)
	case q.streamed && q.api == "responses":
		if body, err = responsestest.Stream(body); err != nil {
			return "", "", err
		}
		return responseObject(body)

	case q.streamed:
		if !bytes.HasSuffix(body, []byte("[DONE]\n\n")) {
			return "", "", errors.New("the stream does not end in [DONE]")
		}
		return "", outcomeOK, nil

	case !gjson.ValidBytes(body):
		return "", "", errors.New("not JSON")
	case q.reads:
		return "", outcomeOK, nil
	case q.api == "responses":
		return responseObject(body)
	case q.api == "messages":
		return joined(gjson.GetBytes(body, "content.#(type==text)#.text")), outcomeOK, nil
	}

	return gjson.GetBytes(body, "choices.0.message.content").Str, outcomeOK, nil
}

func wantErrorObject(body []byte) error {
	if !gjson.GetBytes(body, "error.message").Exists() {
		return errors.New("the body is no error object")
	}
	return nil
}

// joined returns the texts of an array, one after the other.
func joined(texts gjson.Result) string {
	var all strings.Builder
	for _, text := range texts.Array() {
		all.WriteString(text.Str)
	}
	return all.String()
}

// responseObject returns the text of a response and its outcome, "" while it runs.
func responseObject(body []byte) (text, outcome string, err error) {
	r := gjson.ParseBytes(body)
	text = joined(r.Get(`output.#(type=="message")#.content.0.text`))
	switch status := r.Get("status").Str; status {
	case "completed", "incomplete":
		return text, outcomeOK, nil
	case "failed":
		return text, outcomeFailed, nil
	case "cancelled":
		return text, outcomeCanceled, nil
	case "queued", "in_progress":
		return text, outcomeOK, nil
	default:
		return "", "", fmt.Errorf("unknown status %q", status)
	}
}

// chatStream returns the text of a stream of chunks, and whether it failed.
func chatStream(body []byte) (text, outcome string, err error) {
	rest, ok := bytes.CutSuffix(body, []byte("data: [DONE]\n\n"))
	if !ok {
		return "", "", errors.New("the stream does not end in [DONE]")
	}

	finish := false
	for line := range strings.Lines(string(rest)) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}

		e := gjson.Parse(data)
		if e.Get("error").Exists() {
			return text, outcomeFailed, nil
		}

		text += e.Get("choices.0.delta.content").Str
		finish = finish || e.Get("choices.0.finish_reason").Str != ""
	}

	if !finish {
		return "", "", errors.New("the stream has no finish_reason and no error")
	}
	return text, outcomeOK, nil
}

// messageStream returns the text of a stream of Messages, and whether it failed.
func messageStream(body []byte) (text, outcome string, err error) {
	var said strings.Builder
	last := ""
	for line := range strings.Lines(string(body)) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		e := gjson.Parse(data)
		last = e.Get("type").Str
		said.WriteString(e.Get("delta.text").Str)
	}
	text = said.String()
	switch {
	case !bytes.HasSuffix(body, []byte("\n\n")):
	case last == "error":
		return text, outcomeFailed, nil
	case last == "message_stop":
		return text, outcomeOK, nil
	}
	return "", "", fmt.Errorf("the stream ends with %q", last)
}
