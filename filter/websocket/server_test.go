package websocket

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// An exchange gets the event as a POST with the headers of the upgrade, and its reply comes as
// events, one in each message.
func TestResponse(t *testing.T) {
	t.Parallel()
	var got *fakeExchange
	s := start(t, nil, func(x *fakeExchange) { got = x; hello(x) })
	c := s.dial(t, "x-tenant", "a", "x-request-id", "up", "authorization", "Bearer k", "x-forwarded-for", "1.2.3.4, 5.6.7.8")
	c.send(`{"type":"response.create","stream_id":"a.b","stream":true,"stream_options":{},"background":false,` +
		`"model":"m","input":[{"role":"user","content":"\u00fc"}],"previous_response_id":"resp_0","tools":[]}`)
	for _, kind := range []string{"created", "output_text.delta", "completed"} {
		e := c.next()
		if e.Get("type").Str != "response."+kind || e.Get("stream_id").Str != "a.b" {
			t.Errorf("%s: %s", kind, e.Raw)
		}
	}
	const body = `{"stream":true,"model":"m","tools":[],"input":[{"role":"user","content":"\u00fc"}],"previous_response_id":"resp_0"}`
	if got.body != body {
		t.Errorf("the body is %s", got.body)
	}
	for name, want := range map[string]string{
		":method": "POST", ":path": Path, "content-type": "application/json", "x-tenant": "a", "authorization": "Bearer k",
		"x-request-id": "up-1", "content-length": strconv.Itoa(len(body)), "upgrade": "", "connection": "", "sec-websocket-key": "",
	} {
		if got.headers[name] != want {
			t.Errorf("the header %s is %q, want %q", name, got.headers[name], want)
		}
	}

	// Without a lane the events have none.
	c.send(`{"type":"response.create","model":"m","input":"x"}`)
	if e := c.until("response.created"); e.Get("stream_id").Exists() || e.Get("response.id").Str != "resp_up-2" {
		t.Errorf("the second response: %s", e.Raw)
	}
	c.until("response.completed")
}

// What is wrong with an event is an event, and the connection goes on.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(x *fakeExchange) {
		switch gjson.Get(x.body, "model").Str {
		case "refused":
			x.refuse(apierror.New(http.StatusTooManyRequests, "rate_limit_exceeded", "", "Slow down."),
				map[string]string{"retry-after": "2", "x-ratelimit-limit-tokens": "10", "content-type": "application/json"})
		case "panics": // the exchange ends without a word
		case "passes":
			_ = x.driver.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{}})
		default:
			hello(x)
		}
	})
	c := s.dial(t)

	for _, tt := range []struct{ event, status, code, lane string }{
		{`no`, "400", "", ""},
		{`[]`, "400", "", ""},
		{`{}`, "400", "", ""},
		{`{"type":"session.update"}`, "400", "", ""},
		{`{"type":"response.create","stream_id":"l","input":"a","input":"b"}`, "400", "", "l"},
		{`{"type":"response.create","stream_id":"l","previous_response_id":null,"previous_response_id":"resp_1"}`, "400", "", "l"},
		{`{"type":"response.create","stream_id":"l","model":"m","model":"m"}`, "400", "", "l"},
		{`{"type":"response.create","stream_id":"l","stream_id":"m"}`, "400", "", ""},
		{`{"type":"response.cancel","type":"response.create"}`, "400", "", ""},
		{`{"type":"response.steer","stream_id":"l","input":"a","\u0069nput":"b"}`, "400", "", "l"},
		{`{"type":"response.create","stream_id":""}`, "400", "invalid_stream_id", ""},
		{`{"type":"response.create","stream_id":7}`, "400", "invalid_stream_id", ""},
		{`{"type":"response.create","stream_id":"a b"}`, "400", "invalid_stream_id", ""},
		{`{"type":"response.create","stream_id":"` + strings.Repeat("a", maxLane+1) + `"}`, "400", "invalid_stream_id", ""},
		{`{"type":"response.create","stream_id":"l","background":true}`, "400", "", "l"},
		{`{"type":"response.create","stream_id":"l","model":"refused"}`, "429", "rate_limit_exceeded", "l"},
		{`{"type":"response.create","model":"passes"}`, "404", "model_not_found", ""},
	} {
		c.send(tt.event)
		e := c.next()
		if e.Get("type").Str != "error" || e.Get("status").Raw != tt.status || e.Get("error.code").Str != tt.code ||
			e.Get("stream_id").Str != tt.lane || e.Get("error.message").Str == "" {
			t.Errorf("%s: %s", tt.event, e.Raw)
		}
		if want := tt.code == "rate_limit_exceeded"; (e.Get("headers.retry-after").Str == "2") != want || e.Get("headers.content-type").Exists() {
			t.Errorf("%s: the headers are %s", tt.event, e.Get("headers").Raw)
		}
	}

	c.send(`{"type":"response.create","model":"m"}`)
	c.until("response.completed")
}

// What a response has failed to continue is not found any more, however it has failed; one that was
// canceled or cut has not failed.
func TestFailedContinuation(t *testing.T) {
	t.Parallel()
	found := make(chan bool, 1)
	s := start(t, nil, func(x *fakeExchange) {
		ctx, previous := x.driver.Context(), gjson.Get(x.body, "previous_response_id").Str
		responses := store.WithLocals(missing{})
		if previous == "" {
			if err := responses.Put(store.Locally(ctx), "", &store.Response{ID: "resp_1"}); err != nil {
				t.Error(err)
			}
		}
		_, err := responses.Get(ctx, "", cmp.Or(previous, "resp_1"))
		found <- err == nil

		switch how := gjson.Get(x.body, "model").Str; how {
		case "refused":
			x.refuse(apierror.New(http.StatusBadRequest, "", "input", "No."), nil)
		case "gone":
			x.driver.(*response).cancel()
		default:
			x.created("resp_2")
			x.complete(how, "")
		}
	})

	for how, stays := range map[string]bool{
		"completed": true, "incomplete": true, "cancelled": true, "failed": false, "refused": false, "gone": false,
	} {
		c := s.dial(t)
		for i, e := range []string{
			`{"type":"response.create","model":"completed"}`,
			`{"type":"response.create","previous_response_id":"resp_1","model":"` + how + `"}`,
			`{"type":"response.create","previous_response_id":"resp_1","model":"completed"}`,
		} {
			c.send(e)
			if got := <-found; got != (i < 2 || stays) {
				t.Errorf("%s, event %d: found is %v", how, i, got)
			}
			for kind := ""; kind == "" || kind == "response.created"; {
				kind = c.next().Get("type").Str
			}
		}
	}
}

// missing is a store without responses.
type missing struct{ store.Store }

func (missing) Get(context.Context, string, string) (*store.Response, error) {
	return nil, store.ErrNotFound
}

// An exchange that ends without a reply, as after a panic, leaves no client waiting.
func TestExchangeWithoutReply(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(x *fakeExchange) {
		x.created("resp_1")
		x.driver.(*response).cancel()
	})
	c := s.dial(t)
	c.send(`{"type":"response.create"}`)
	c.until("response.created")
	if e := c.next(); e.Get("type").Str != "error" || e.Get("status").Int() != 500 {
		t.Errorf("the end is %s", e.Raw)
	}
}

// Responses of a lane follow one another, those of different lanes are made side by side.
func TestLanes(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var mu sync.Mutex
	var order []string
	s := start(t, nil, func(x *fakeExchange) {
		model := gjson.Get(x.body, "model").Str
		mu.Lock()
		order = append(order, model)
		mu.Unlock()
		if model == "a1" {
			<-release
		}
		hello(x)
	})

	c := s.dial(t)
	for _, model := range []string{"a1", "a2", "b1"} {
		c.send(`{"type":"response.create","stream_id":"` + model[:1] + `","model":"` + model + `"}`)
	}
	if e := c.until("response.completed"); e.Get("stream_id").Str != "b" {
		t.Errorf("the first to end: %s", e.Raw)
	}
	close(release)
	c.until("response.completed")
	c.until("response.completed")

	mu.Lock()
	defer mu.Unlock()
	if slices.Index(order, "a2") != 2 {
		t.Errorf("they were made in the order %v", order)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := start(t, func(l *Limits) { l.Responses, l.Connections, l.MessageBytes = 2, 2, 5000 }, func(x *fakeExchange) {
		select {
		case <-release:
		case <-x.driver.Context().Done():
		}
		hello(x)
	})
	c := s.dial(t)
	for range 2 {
		c.send(`{"type":"response.create"}`)
	}
	c.send(`{"type":"response.create","stream_id":"another"}`)
	if e := c.next(); e.Get("error.code").Str != "websocket_response_limit_reached" || e.Get("status").Int() != 429 {
		t.Errorf("one response too many: %s", e.Raw)
	}
	close(release)
	c.until("response.completed")
	c.until("response.completed")

	// The name of a lane counts for good, as it does at OpenAI.
	for i := range maxLanes - 1 {
		c.send(fmt.Sprintf(`{"type":"response.create","stream_id":"l%d"}`, i))
		c.until("response.completed")
	}
	c.send(`{"type":"response.create","stream_id":"last"}`)
	c.until("response.completed")
	c.send(`{"type":"response.create","stream_id":"more"}`)
	if e := c.until("error"); e.Get("error.code").Str != "websocket_stream_limit_reached" || e.Get("stream_id").Str != "more" {
		t.Errorf("one lane too many: %s", e.Raw)
	}

	second := s.dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, resp, err := websocket.Dial(ctx, s.url, nil); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one connection too many: %v", err)
	}
	second.send(`{"type":"response.create","input":"` + strings.Repeat("x", 6000) + `"}`)
	if code, last := second.ends(); code != websocket.StatusMessageTooBig || last.Get("error.code").Str != "request_too_large" {
		t.Errorf("a large message: %d after %s", code, last.Raw)
	}
}

// A tenant has half of the connections at most, so that others get in.
func TestTenantsShareConnections(t *testing.T) {
	t.Parallel()
	s := start(t, func(l *Limits) { l.Connections = 4 }, hello)
	opens := func(tenant string) bool {
		conn, resp, err := websocket.Dial(t.Context(), s.url, &websocket.DialOptions{HTTPHeader: http.Header{"X-Tenant": {tenant}}})
		if err == nil {
			t.Cleanup(func() { _ = conn.CloseNow() })
			return true
		}
		if resp == nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("retry-after") == "" {
			t.Errorf("%s: %v", tenant, err)
		}
		return false
	}

	first := s.dial(t, "x-tenant", "a")
	if got := []bool{opens("a"), opens("a"), opens("b"), opens("b"), opens("c")}; !slices.Equal(got, []bool{true, false, true, true, false}) {
		t.Errorf("they open: %v", got)
	}

	// A place that is left is free for the same tenant again.
	_ = first.Close(websocket.StatusNormalClosure, "")
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		s.Server.mu.Lock()
		left := s.ofTenant["a"]
		s.Server.mu.Unlock()
		if left == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are left", left)
		}
	}
	if !opens("a") || opens("a") {
		t.Error("the place is not free, or there are more than one")
	}
}

// A message for which there is no memory is refused, and the connection goes on.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	s := start(t, func(l *Limits) { l.MessageBytes = 64 << 20 }, hello)
	c := s.dial(t)
	c.send(`{"type":"response.create","input":"` + strings.Repeat("x", 5<<20) + `"}`)
	if e := c.next(); e.Get("error.code").Str != "overloaded" || e.Get("status").Int() != 503 {
		t.Errorf("got %s", e.Raw)
	}
	c.send(`{"type":"response.create"}`)
	c.until("response.completed")
}

// A message that is not whole makes room for others: it is refused, and its connection goes on.
func TestMakesRoom(t *testing.T) {
	t.Parallel()
	s := start(t, nil, hello)
	c := s.dial(t)
	w, err := c.Writer(t.Context(), websocket.MessageText)
	if err == nil {
		_, err = w.Write([]byte(`{"type":"response.create","input":"` + strings.Repeat("x", 3*pieceBytes)))
	}
	if err != nil {
		t.Fatal(err)
	}
	for s.memory.Load() < pieceBytes {
		time.Sleep(time.Millisecond)
	}

	s.mu.Lock()
	drop := s.drop
	s.mu.Unlock()
	drop(apierror.New(http.StatusServiceUnavailable, "overloaded", "", "Others need the room."))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if e := c.next(); e.Get("error.code").Str != "overloaded" || s.memory.Load() != 0 {
		t.Errorf("the message that was given up: %s, %d bytes are held", e.Raw, s.memory.Load())
	}
	c.send(`{"type":"response.create"}`)
	c.until("response.completed")
}

// An upgrade with a body is refused at once: who waited for the body would wait for the client.
func TestUpgradeWithABody(t *testing.T) {
	t.Parallel()
	s := start(t, nil, hello)
	for _, body := range []string{"content-length: 5", "transfer-encoding: chunked"} {
		conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), Path))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n\r\n", Path, body)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v, %v", body, resp, err)
		}
		_ = conn.Close()
	}
}

// A client that leaves cancels its responses.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	canceled := make(chan struct{})
	s := start(t, nil, func(x *fakeExchange) {
		x.created("resp_1")
		<-x.driver.Context().Done()
		close(canceled)
	})
	c := s.dial(t)
	c.send(`{"type":"response.create"}`)
	c.until("response.created")
	_ = c.CloseNow()
	select {
	case <-canceled:
	case <-time.After(patience):
		t.Error("the response goes on")
	}
}

// A client that does not read loses its connection, and its response what it waits in.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	canceled := make(chan struct{})
	s := start(t, func(l *Limits) { l.WriteTime = 50 * time.Millisecond }, func(x *fakeExchange) {
		defer close(canceled)
		x.created("resp_1")
		// More than any buffer of sockets takes.
		delta := eventText("response.output_text.delta", `,"delta":"`+strings.Repeat("x", 1<<20)+`"`)
		for range 1000 {
			if x.driver.Context().Err() != nil {
				return
			}
			x.sendPiece(delta, false)
		}
		t.Error("a thousand megabytes were written")
	})

	c := s.dial(t)
	c.send(`{"type":"response.create"}`)
	select {
	case <-canceled:
	case <-time.After(patience):
		t.Fatal("the response goes on")
	}

	s.Close(t.Context())
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.reasons, []endReason{reasonSlow}) {
		t.Errorf("the reasons are %q", s.reasons)
	}
}

// A client that is gone answers no ping, and one that is slow does not end its message. Both leave
// their place.
func TestGoneClients(t *testing.T) {
	t.Parallel()
	for reason, part := range map[endReason]string{reasonGone: "", reasonMessage: `{"type":`} {
		s := start(t, func(l *Limits) {
			if reason == reasonGone {
				l.KeepAlive, l.WriteTime = 20*time.Millisecond, 50*time.Millisecond
			}
			l.MessageTime = 100 * time.Millisecond
		}, hello)
		c := s.dial(t)
		if part != "" {
			w, err := c.Writer(t.Context(), websocket.MessageText)
			if err == nil {
				_, err = w.Write([]byte(strings.Repeat(part, leastRoom)))
			}
			if err != nil {
				t.Fatal(err)
			}
		}

		// Its pings are answered while it is read, which it is not.
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			s.mu.Lock()
			reasons := slices.Clone(s.reasons)
			s.mu.Unlock()
			if slices.Equal(reasons, []endReason{reason}) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the reasons are %q, want %s", reasons, reason)
			}
		}
	}
}

// Connections end for their reasons, with their codes, and responses that are made end first.
func TestEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[endReason]struct {
		change func(l *Limits)
		drain  bool
		busy   bool
		text   bool
		code   websocket.StatusCode
		last   string // of the last event: its code, or its type
	}{
		reasonIdle:     {change: func(l *Limits) { l.IdleTimeout = 50 * time.Millisecond }, code: 1000},
		reasonAge:      {change: func(l *Limits) { l.MaxAge = 100 * time.Millisecond }, busy: true, code: 1000, last: "websocket_connection_limit_reached"},
		reasonShutdown: {drain: true, busy: true, code: 1001, last: "response.completed"},
		reasonMessage:  {text: true, code: 1003},
	} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			begun, release := make(chan struct{}), make(chan struct{})
			s := start(t, tt.change, func(x *fakeExchange) {
				close(begun)
				<-release
				hello(x)
			})
			c := s.dial(t)

			if tt.busy {
				c.send(`{"type":"response.create"}`)
				<-begun
			}
			if tt.drain {
				s.Drain()
			}
			// Others are refused meanwhile.
			if tt.busy {
				for refused := false; !refused; time.Sleep(10 * time.Millisecond) {
					s.Server.mu.Lock()
					for conn := range s.connections {
						conn.mu.Lock()
						refused = conn.ending != ""
						conn.mu.Unlock()
					}
					s.Server.mu.Unlock()
				}
				c.send(`{"type":"response.create","stream_id":"another"}`)
				c.until("error")
			}
			if tt.text {
				if err := c.Write(t.Context(), websocket.MessageBinary, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}

			close(release)
			code, last := c.ends()
			if kind := last.Get("type").Str; code != tt.code || tt.last != "" && kind != tt.last && last.Get("error.code").Str != tt.last {
				t.Errorf("the end is %d after %s", code, last.Raw)
			}
			s.Close(t.Context())
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(s.reasons, []endReason{name}) {
				t.Errorf("the reasons are %q", s.reasons)
			}
		})
	}
}

// When the time of a drain is over, what is left is ended.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	s := start(t, nil, func(x *fakeExchange) { close(begun); <-x.driver.Context().Done() })
	c := s.dial(t)
	c.send(`{"type":"response.create"}`)
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	s.Close(ctx)
	s.mu.Lock()
	if !slices.Equal(s.reasons, []endReason{reasonShutdown}) {
		t.Errorf("the reasons are %q", s.reasons)
	}
	s.mu.Unlock()
	if resp, err := http.Get(s.url); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a connection after the end: %v %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
}

// A canceled response ends with what there is of it.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]string{
		"by its id":   `{"type":"response.cancel","response_id":"resp_1"}`,
		"by its lane": `{"type":"response.cancel","stream_id":"l"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, nil, func(x *fakeExchange) {
				x.created("resp_1")
				if why := <-x.interrupt; why != api.Canceled {
					t.Errorf("interrupted: %s", why)
				}
				x.complete("cancelled", "")
			})

			c := s.dial(t)
			c.send(`{"type":"response.create","stream_id":"l"}`)
			c.until("response.created")
			c.send(event)
			c.until("response.cancelled")
		})
	}
}

// A response is canceled by its lane also before it has begun, and while it waits for that.
func TestCancelAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := start(t, nil, func(x *fakeExchange) {
			select {
			case <-x.interrupt:
				x.refuse(apierror.Invalid("", "canceled"), nil)
			case <-time.After(patience):
				hello(x)
			}
		})
		c := s.dial(t)
		c.send(`{"type":"response.create","stream_id":"l"}`)
		c.send(`{"type":"response.cancel","stream_id":"l"}`)
		if e := c.next(); e.Get("type").Str != "error" || e.Get("error.message").Str != "canceled" {
			t.Fatalf("it ends with %s", e.Raw)
		}
	}
}

// By its lane a client cancels what it has not had the end of.
func TestCancelTheNextOne(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := start(t, nil, func(x *fakeExchange) {
		if gjson.Get(x.body, "model").Str == "next" {
			select {
			case <-x.interrupt:
				x.refuse(apierror.Invalid("", "canceled"), nil)
			case <-time.After(patience):
				hello(x)
			}
			return
		}
		x.created("resp_1")
		x.send(eventText("response.completed", `,"response":{"output":[]}`), false)
		<-release
		x.send("data: [DONE]\n\n", true)
	})

	c := s.dial(t)
	c.send(`{"type":"response.create","model":"first"}`)
	c.until("response.completed")
	c.send(`{"type":"response.cancel"}`)
	if e := c.next(); e.Get("error.code").Str != "response_not_found" {
		t.Errorf("nothing is made, and the answer is %s", e.Raw)
	}

	c.send(`{"type":"response.create","model":"next"}`)
	c.send(`{"type":"response.cancel"}`)
	c.send(`{"type":"read after the others","stream_id":"another"}`)
	c.until("error")
	close(release)
	if e := c.next(); e.Get("error.message").Str != "canceled" {
		t.Errorf("then comes %s", e.Raw)
	}
}
