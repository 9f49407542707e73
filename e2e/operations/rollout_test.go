package operations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/rollout"
)

func rolledOut(percent int) func(*config.Config) {
	return func(c *config.Config) { c.Rollout = []config.Rollout{{Percent: &percent}} }
}

// postBody sends a body, and returns the reply.
func postBody(t *testing.T, d *stack.Dataplane, path string, body []byte, headers ...string) string {
	t.Helper()
	resp := d.Do(t, http.MethodPost, path, "application/json", bytes.NewReader(body), headers...)
	return stack.ReadText(t, resp)
}

// Of many conversations a twentieth are handled by the filter, with all their turns;
// the others pass through byte for byte.
func TestRolloutCanary(t *testing.T) {
	d := stack.Start(t, stack.Options{Quiet: true, Config: rolledOut(5)})
	d.Upstream.Handle(stack.Echo)
	const conversations, turns = 200, 3

	handled := 0
	var mu sync.Mutex
	var all sync.WaitGroup
	next := make(chan int)
	for range 8 {
		all.Go(func() {
			for n := range next {
				in := converse(t, d, n, turns)
				mu.Lock()
				if in {
					handled++
				}
				mu.Unlock()
			}
		})
	}

	for n := range conversations {
		next <- n
	}
	close(next)
	all.Wait()

	if handled < 2 || handled > 25 {
		t.Errorf("%d of %d conversations are the filter's", handled, conversations)
	}
	t.Logf("%d of %d conversations are the filter's", handled, conversations)
}

// converse has a conversation, and reports whether the filter handled it. All its
// turns have to be on the side that their key has.
func converse(t *testing.T, d *stack.Dataplane, n, turns int) (in bool) {
	t.Helper()
	first := fmt.Sprintf("NOTHINK\nSAY %d.", n)

	messages := make([]map[string]string, 0, 2+2*turns)
	messages = append(messages, map[string]string{"role": "system", "content": "Be brief."}, map[string]string{"role": "user", "content": first})
	path, field := "/v1/chat/completions", "messages"
	if n%2 == 1 {
		path, field = "/v1/responses", "input"
	}

	for turn := range turns {
		body, err := json.MarshalIndent(map[string]any{field: messages, "model": stack.SGLangModel, "temperature": 1, "store": false}, "", strings.Repeat(" ", n%3))
		if err != nil {
			t.Error(err)
		}

		q := rollout.Read(body)
		want := q.Beginning("", stack.SGLangModel).In(5)
		reply := postBody(t, d, path, body)

		switch passed := reply == string(body); {
		case passed == want, !passed && !strings.Contains(reply, fmt.Sprintf("%d.", n)):
			t.Errorf("conversation %d, turn %d: passed through unchanged: %t, is the filter's: %t: %s", n, turn, passed, want, reply)
		case turn > 0 && want != in:
			t.Errorf("conversation %d changes its side at turn %d", n, turn)
		}

		in = want
		messages = append(messages, map[string]string{"role": "assistant", "content": "ok"}, map[string]string{"role": "user", "content": first})
	}
	return in
}

// A session that is named by a header, large bodies included.
func TestRolloutByHeader(t *testing.T) {
	d := stack.Start(t, stack.Options{Quiet: true, Config: rolledOut(50)})
	d.Upstream.Handle(stack.Echo)
	sides := map[bool]int{}
	for n := range 6 {
		session := fmt.Sprint("s", n)
		in := rollout.Named("", session).In(50)
		sides[in]++
		for _, size := range []int{10, 1_000_000} {
			body := fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":"NOTHINK\nSAY Yes."}], "x" : %q}`, stack.SGLangModel, strings.Repeat("é", size))
			if reply := postBody(t, d, "/v1/chat/completions", body, "session-id", session); (reply == string(body)) == in || in && !strings.Contains(reply, "Yes.") {
				t.Errorf("session %s, %d bytes, is the filter's: %t: %d bytes of a reply, %.80s", session, size, in, len(reply), reply)
			}
		}
	}
	if sides[true] == 0 || sides[false] == 0 {
		t.Errorf("the sessions are on one side: %v", sides)
	}
}

// A conversation in a store goes on where it is stored.
func TestRolloutOfStored(t *testing.T) {
	d := stack.Start(t, stack.Options{Quiet: true, Config: rolledOut(50)})
	d.Upstream.Handle(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if id := gjson.GetBytes(body, "previous_response_id").String(); id != "" && id != "resp_upstream" {
			http.Error(w, "not stored here: "+id, http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, `{"id":"resp_upstream"}`)
	})

	for n := range 8 {
		session := fmt.Sprint("s", n)
		in := rollout.Named("", session).In(50)
		previous := "null"
		for turn := range 3 {
			body := fmt.Appendf(nil, `{"model":%q,"input":"NOTHINK\nSAY Yes.","previous_response_id":%s}`, stack.SGLangModel, previous)
			reply := postBody(t, d, "/v1/responses", body, "session-id", session)

			id := gjson.Get(reply, "id").String()
			if (id == "resp_upstream") == in || id == "" {
				t.Fatalf("session %s, turn %d, is the filter's: %t: %s", session, turn, in, reply)
			}

			previous = `"` + id + `"`
			session = fmt.Sprint(session, "x") // the response decides, not the session
		}
	}
}
