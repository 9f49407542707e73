package websocket

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

const steerEvent = `{"type":"response.steer","previous_response_id":"resp_1","input":"more"}`

// What becomes of input that steers a response.
func TestSteer(t *testing.T) {
	t.Parallel()
	call := `{"type":"function_call","call_id":"c","name":"f","status":"completed"}`
	for name, tt := range map[string]struct {
		status, output string
		then           string // the event after the end of the response
		body           string // of the response after it
	}{
		"interrupted": {
			status: "incomplete", then: "response.created",
			body: `{"stream":true,"model":"m","input":[{"type":"message","role":"user","content":"more"}],"previous_response_id":"resp_1"}`,
		},
		"ended by itself": {
			status: "completed", output: `{"type":"message"}`, then: "response.created",
			body: `{"stream":true,"model":"m","input":[{"type":"message","role":"user","content":"more"}],"previous_response_id":"resp_1"}`,
		},
		"with a call": {
			status: "completed", output: call, then: "response.steer.pending",
			body: `{"stream":true,"model":"n","input":[{"type":"message","role":"user","content":"more"},{"type":"function_call_output","call_id":"c","output":"x"}],"previous_response_id":"resp_1"}`,
		},
		"failed": {status: "failed", then: "response.steer.failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bodies := make(chan string, 2)
			s := start(t, nil, func(x *fakeExchange) {
				bodies <- x.body
				if len(bodies) == 2 {
					hello(x)
					return
				}
				x.created("resp_1")
				<-x.interrupt
				x.complete(tt.status, tt.output)
			})

			c := s.dial(t)
			c.send(`{"type":"response.create","stream_id":"l","model":"m","input":"one"}`)
			c.until("response.created")
			c.send(steerEvent)
			if e := c.until("response.steer"); e.Get("type").Str != "response.steer.accepted" || e.Get("stream_id").Str != "l" ||
				e.Get("steer.id").Str == "" || e.Get("steer.previous_response_id").Str != "resp_1" {
				t.Errorf("the answer is %s", e.Raw)
			}

			c.until("response." + tt.status)
			e := c.next()
			if e.Get("type").Str != tt.then || e.Get("stream_id").Str != "l" {
				t.Errorf("then comes %s", e.Raw)
			}
			switch tt.then {
			case "response.steer.failed":
				if e.Get("steer.input").Str != "more" || e.Get("error.code").Str != successorFailed || e.Get("steer.id").Str == "" {
					t.Errorf("it is %s", e.Raw)
				}
				return
			case "response.steer.pending":
				if e.Get("required_input").Raw != `[{"type":"function_call_output","call_id":"c","name":"f"}]` {
					t.Errorf("it is %s", e.Raw)
				}
				c.send(`{"type":"response.create","stream_id":"l","model":"n","previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"c","output":"x"}]}`)
			}

			c.until("response.completed")
			if <-bodies; true {
				if body := <-bodies; body != tt.body {
					t.Errorf("the next body is %s", body)
				}
			}
		})
	}
}

func TestSteerIsRefused(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := start(t, nil, func(x *fakeExchange) {
		x.created("resp_" + gjson.Get(x.body, "model").Str)
		<-release
		x.refuse(apierror.Invalid("", "x"), nil)
	})

	c := s.dial(t)
	c.send(`{"type":"response.create","stream_id":"a","model":"1"}`)
	c.send(`{"type":"response.create","stream_id":"b","model":"2","conversation":"conv_1"}`)
	c.until("response.created")
	c.until("response.created")
	steer := func(members string) string {
		return `{"type":"response.steer","previous_response_id":"resp_1",` + members + `}`
	}
	for event, code := range map[string]string{
		steer(`"input":""`): "invalid_input", steer(`"input":[]`): "invalid_input", steer(`"input":7`): "invalid_input",
		steer(`"input":[{"role":"system","content":"x"}]`):               "invalid_input",
		steer(`"input":[{"type":"function_call_output","role":"user"}]`): "invalid_input",
		steer(`"input":"x","model":"m"`):                                 "invalid_input",
		strings.Replace(steerEvent, "resp_1", "resp_3", 1):               "response_not_found",
		strings.Replace(steerEvent, "resp_1", "resp_2", 1):               "steering_not_supported",
	} {
		c.send(event)
		if e := c.next(); e.Get("type").Str != "response.steer.failed" || e.Get("error.code").Str != code || e.Get("steer.id").Exists() {
			t.Errorf("%s: %s", event, e.Raw)
		}
	}

	for range maxSteers {
		c.send(steerEvent)
		c.until("response.steer.accepted")
	}
	c.send(steerEvent)
	if e := c.next(); e.Get("error.code").Str != "too_many_pending_steers" {
		t.Errorf("one too many: %s", e.Raw)
	}

	close(release)
	for range maxSteers {
		c.until("response.steer.failed")
	}
}

// What steers a response while the model writes a call of the filter's does not interrupt it. It is
// tried again when the call is whole.
func TestSteerInACall(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(x *fakeExchange) {
		if gjson.Get(x.body, "previous_response_id").Exists() {
			hello(x)
			return
		}
		x.created("resp_1")
		x.tells("added")
		<-x.interrupt // a call is being written: it has no effect
		x.tells("done")
		select {
		case <-x.interrupt:
			x.complete("incomplete", "")
		case <-time.After(patience):
			x.complete("failed", "")
		}
	})

	c := s.dial(t)
	c.send(`{"type":"response.create","model":"m","input":"x"}`)
	c.until("response.output_item.added")
	c.send(steerEvent)
	c.until("response.incomplete")
	c.until("response.completed")
}

// Input whose response is refused goes back to the client: it was accepted, and is used by nobody.
func TestSteerOfARefusedResponse(t *testing.T) {
	t.Parallel()
	call := `{"type":"function_call","call_id":"c","name":"f","status":"completed"}`
	for name, output := range map[string]string{"at once": "", "pending": call} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, nil, func(x *fakeExchange) {
				if gjson.Get(x.body, "previous_response_id").Exists() {
					x.refuse(apierror.New(http.StatusTooManyRequests, "rate_limit_exceeded", "", "No."), nil)
					return
				}
				x.created("resp_1")
				<-x.interrupt
				x.complete("completed", output)
			})

			c := s.dial(t)
			c.send(`{"type":"response.create","stream_id":"l","model":"m","input":"one"}`)
			c.until("response.created")
			c.send(steerEvent)
			id := c.until("response.steer.accepted").Get("steer.id").Str
			c.until("response.completed")
			if output != "" {
				c.until("response.steer.pending")
				c.send(`{"type":"response.create","stream_id":"l","previous_response_id":"resp_1","input":[]}`)
			}

			c.until("error")
			if e := c.next(); e.Get("type").Str != "response.steer.failed" || e.Get("steer.id").Str != id ||
				e.Get("steer.input").Str != "more" || e.Get("error.code").Str != successorFailed || e.Get("stream_id").Str != "l" {
				t.Errorf("the input comes back with %s", e.Raw)
			}
		})
	}
}

// Input that comes after the end is told from input for a response that there never was here.
func TestSteerAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t, nil, hello)
	c := s.dial(t, "x-request-id", "up")
	for i := range 3 {
		c.send(`{"type":"response.create","stream_id":"l","model":"m","input":"one"}`)
		c.until("response.completed")
		for number, code := range map[int]string{i + 1: "response_already_completed", 0: "response_not_found"} {
			c.send(fmt.Sprintf(`{"type":"response.steer","previous_response_id":"resp_up-%d","input":"more"}`, number))
			e := c.until("response.steer.failed")
			if e.Get("error.code").Str != code || (e.Get("stream_id").Str == "l") != (number > 0) {
				t.Errorf("of response %d of %d: %s", number, i+1, e.Raw)
			}
		}
	}
}

// A client that cancels what has just ended wants nothing of its successor.
func TestCancelBeforeTheSuccessor(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := start(t, nil, func(x *fakeExchange) {
		x.created("resp_1")
		<-x.interrupt
		x.send(eventText("response.incomplete", `,"response":{"output":[]}`), false)
		<-release
		x.send("data: [DONE]\n\n", true)
	})

	c := s.dial(t)
	c.send(`{"type":"response.create","model":"m","input":"one"}`)
	c.until("response.created")
	c.send(steerEvent)
	c.until("response.incomplete")
	c.send(`{"type":"response.cancel"}`)
	c.send(`{"type":"read after the others","stream_id":"another"}`)
	c.until("error")
	close(release)
	if e := c.next(); e.Get("type").Str != "response.steer.failed" || e.Get("error.code").Str != successorFailed {
		t.Errorf("then comes %s", e.Raw)
	}
}

// What is canceled takes no more input.
func TestSteerAfterCancel(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(x *fakeExchange) {
		x.created("resp_1")
		<-x.interrupt // a tool of the filter's is running: the end comes later
		x.tells("done")
		x.complete("cancelled", "")
	})

	c := s.dial(t)
	c.send(`{"type":"response.create","model":"m","input":"one"}`)
	c.until("response.created")
	c.send(`{"type":"response.cancel"}`)
	c.send(steerEvent)
	if e := c.until("response.steer"); e.Get("type").Str != "response.steer.failed" {
		t.Errorf("the answer is %s", e.Raw)
	}
}

// A connection that takes no more responses takes none that steering would make: by one after the
// other it would never end.
func TestSteerOfAnOldConnection(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := start(t, nil, func(x *fakeExchange) {
		x.created("resp_1")
		<-release
		x.complete("completed", "")
	})

	c := s.dial(t)
	c.send(`{"type":"response.create","model":"m","input":"one"}`)
	c.until("response.created")
	s.Server.mu.Lock()
	for c := range s.connections {
		c.takeNoMore(reasonAge)
	}
	s.Server.mu.Unlock()

	c.send(steerEvent)
	if e := c.until("response.steer"); e.Get("error.code").Str != successorFailed || e.Get("steer.input").Str != "more" {
		t.Errorf("the answer is %s", e.Raw)
	}
	close(release)
	c.ends()
}

// What was accepted is said before the events that it brings about, also when the response ends at
// that moment.
func TestSteerAtTheEnd(t *testing.T) {
	t.Parallel()
	for range 50 {
		var made atomic.Int32
		s := start(t, nil, func(x *fakeExchange) {
			if made.Add(1) > 1 {
				x.created("resp_2")
				x.complete("completed", "")
				return
			}

			x.created("resp_1")
			for !x.driver.(*response).steering.waits() {
				runtime.Gosched()
			}
			x.complete("completed", "")
		})

		c := s.dial(t)
		c.send(`{"type":"response.create","model":"m","input":"one"}`)
		c.until("response.created")
		c.send(steerEvent)
		if e := c.until("response."); e.Get("type").Str != "response.steer.accepted" {
			t.Fatalf("the first event after the input is %s", e.Raw)
		}
		c.until("response.created")
	}
}

// Of what has ended, the last ones are known.
func TestPastResponses(t *testing.T) {
	t.Parallel()
	var past pastResponses
	for i := range 3 * maxEnded {
		past.add(strconv.Itoa(i), "l")
	}
	_, first := past.lanes[strconv.Itoa(2*maxEnded)]
	_, before := past.lanes[strconv.Itoa(2*maxEnded-1)]
	if len(past.lanes) != maxEnded || !first || before {
		t.Errorf("%d are known: %v", len(past.lanes), past.lanes)
	}
}
