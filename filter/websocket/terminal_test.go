package websocket

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// terminals are the types of events after which a client sends its next request.
var terminals = []string{"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"}

// requests are kinds of events for which a client awaits one terminal event: how one is written, what the
// exchange does, and what comes back, as types of events.
var requests = map[string]struct {
	event  string // with the lane and the number; "": a response.create whose model is the kind
	script func(x *fakeExchange, id string)
	want   string
}{
	"good": {script: func(x *fakeExchange, id string) {
		x.created(id)
		x.complete("completed", "")
	}, want: "response.created response.completed"},
	"refused": {script: func(x *fakeExchange, id string) {
		x.refuse(apierror.New(http.StatusBadRequest, "previous_response_not_found", "", "%s", id), nil)
	}, want: "error"},
	// A request for another model goes on in as many messages as it has come in, and more.
	"passes": {script: func(x *fakeExchange, _ string) {
		for _, m := range []*extprocv3.ProcessingResponse{
			{Response: &extprocv3.ProcessingResponse_RequestHeaders{}},
			{Response: &extprocv3.ProcessingResponse_RequestBody{}},
			{Response: &extprocv3.ProcessingResponse_RequestTrailers{}},
		} {
			_ = x.driver.Send(m)
		}
	}, want: "error"},
	"panics": {script: func(x *fakeExchange, id string) {
		x.created(id)
		x.driver.(*response).cancel()
	}, want: "response.created error"},
	"has no last event": {script: func(x *fakeExchange, id string) {
		x.created(id)
		x.send("data: [DONE]\n\n", true)
	}, want: "response.created error"},
	"breaks off": {script: func(x *fakeExchange, id string) {
		x.created(id)
		x.send(eventText("error", `,"code":"shutdown"`)+"data: [DONE]\n\n", true)
	}, want: "response.created error"},
	"does not end": {script: func(x *fakeExchange, id string) {
		x.created(id)
		x.send(eventText("response.failed", `,"response":{}`)+eventText("response.completed", `,"response":{}`), false)
		x.refuse(apierror.Invalid("", "late"), nil)
		x.send(eventText("response.completed", `,"response":{}`), true)
	}, want: "response.created response.failed"},
	"is steered": {script: func(x *fakeExchange, id string) {
		x.created(id)
		if !gjson.Get(x.body, "previous_response_id").Exists() {
			x.interrupted()
			x.complete("incomplete", "")
			return
		}
		x.complete("completed", "")
	}, want: "response.created response.incomplete response.created response.completed"},
	"is canceled": {script: func(x *fakeExchange, id string) {
		x.created(id)
		x.interrupted()
		x.complete("cancelled", "")
	}, want: "response.created response.cancelled"},
	"names a member twice": {
		event: `{"type":"response.create","stream_id":"%s","model":"m","model":"%s"}`, want: "error",
	},
	"is in the background": {
		event: `{"type":"response.create","stream_id":"%s","background":true,"model":"%s"}`, want: "error",
	},
}

// Each request has one terminal event, and what comes of the next one of its lane comes after it, whatever the
// requests are and however soon they follow one another.
func TestOneTerminalEvent(t *testing.T) {
	t.Parallel()
	s := start(t, func(l *Limits) { l.Connections, l.Responses, l.MessageBytes = 100, 1000, 2000 }, func(x *fakeExchange) {
		kind, number, _ := strings.Cut(gjson.Get(x.body, "model").Str, "/")
		if gjson.Get(x.body, "previous_response_id").Exists() {
			number += "s"
		}
		requests[kind].script(x, "resp_"+number)
	})
	for round := range 60 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(round), 0))
			tryLanes(t, s.dial(t), random, round%3 == 0)
		})
	}
}

// tryLanes sends requests, in several lanes at once, and reads what comes. tooLarge says that the last one
// is so.
func tryLanes(t *testing.T, c client, random *rand.Rand, tooLarge bool) {
	t.Helper()
	kinds := slices.Sorted(maps.Keys(requests))
	sent := map[string][]string{} // what is to come, by lane
	all := make([]string, 30)     // kinds, by number
	waiting := 0
	for i := range all {
		lane, kind := string(rune('a'+random.IntN(3))), kinds[random.IntN(len(kinds))]
		r := requests[kind]
		if r.event == "" {
			r.event = `{"type":"response.create","stream_id":"%s","model":"%s","input":"x"}`
		}
		c.send(fmt.Sprintf(r.event, lane, fmt.Sprintf("%s/%d", kind, i)))
		all[i], sent[lane] = kind, append(sent[lane], r.want)
		waiting += len(strings.Fields(r.want)) - strings.Count(r.want, "created")
	}
	// What is no JSON has no lane.
	for range random.IntN(3) {
		c.send(`{"type":"response.create","model"`)
		sent[""] = append(sent[""], "error")
		waiting++
	}

	got := map[string][]string{} // types of events, by lane
	for waiting > 0 {
		e := c.next()
		kind, lane := e.Get("type").Str, e.Get("stream_id").Str
		if strings.HasPrefix(kind, "response.steer.") || kind == "response.cancel.failed" {
			continue
		}
		got[lane] = append(got[lane], kind)
		if slices.Contains(terminals, kind) {
			waiting--
		}

		id := e.Get("response.id").Str
		number, err := strconv.Atoi(strings.TrimPrefix(id, "resp_"))
		switch {
		case kind != "response.created" || err != nil:
		case all[number] == "is steered":
			c.send(`{"type":"response.steer","previous_response_id":"` + id + `","input":"y"}`)
		case all[number] == "is canceled":
			// The second one may come too late.
			for range 2 {
				c.send(`{"type":"response.cancel","stream_id":"` + lane + `","response_id":"` + id + `"}`)
			}
		}
	}

	if tooLarge {
		c.send(`{"type":"response.create","input":"` + strings.Repeat("x", 3000) + `"}`)
		if code, e := c.ends(); code != websocket.StatusMessageTooBig || e.Get("error.code").Str != "request_too_large" {
			t.Errorf("one too large ends with %d after %s", code, e.Raw)
		}
	}
	for lane, want := range sent {
		if got, want := strings.Join(got[lane], " "), strings.Join(want, " "); got != want {
			t.Errorf("lane %q has\n%s\nwant\n%s", lane, got, want)
		}
	}
}

// interrupted waits for the client.
func (x *fakeExchange) interrupted() {
	select {
	case <-x.interrupt:
	case <-x.driver.Context().Done():
	}
}
