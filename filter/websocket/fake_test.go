package websocket

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/extproc"
)

// patience is how long a test waits for what has to come.
const patience = 10 * time.Second

// fakeExchange is an exchange as a test scripts it.
type fakeExchange struct {
	driver    extproc.Driver
	headers   map[string]string
	body      string
	interrupt chan api.Interruption
}

// fakeServer is a server whose exchanges are fakes.
type fakeServer struct {
	*Server
	url string

	// memory is what is taken.
	memory atomic.Int64
	ids    atomic.Int64

	// reasons are those of the connections that have ended, drop is of the last message that began
	// to arrive, forget of the last connection.
	mu      sync.Mutex
	reasons []endReason
	drop    func(*apierror.Error)
	forget  func(bytes int)
}

// fakeMemory counts what is taken, and has so much at most.
type fakeMemory struct {
	s     *fakeServer
	most  int64
	mu    sync.Mutex
	taken int64
}

func (m *fakeMemory) Take(bytes int) *apierror.Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken+int64(bytes) > m.most {
		return apierror.New(http.StatusServiceUnavailable, "overloaded", "", "There is no memory.")
	}
	m.taken += int64(bytes)
	m.s.memory.Add(int64(bytes))
	return nil
}

func (m *fakeMemory) Receive(drop func(*apierror.Error)) Arriving {
	m.s.mu.Lock()
	m.s.drop = drop
	m.s.mu.Unlock()

	m.mu.Lock()
	defer m.mu.Unlock()
	return &fakeMemory{s: m.s, most: m.most - m.taken}
}

// Keep is for a part of its own, as what is kept makes room.
func (m *fakeMemory) Keep(forget func(int)) Kept {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.forget = forget
	return &fakeMemory{s: m.s, most: m.most}
}

func (*fakeMemory) Use() {}

func (*fakeMemory) GoesOn(int) {}

func (m *fakeMemory) Close() { _ = m.Take(-int(m.taken)) }

// testLimits are limits that no test reaches unless it changes them.
func testLimits() Limits {
	return Limits{
		Connections: 10, Responses: 16, MessageBytes: 1 << 20, MessageTime: time.Minute, LocalBytes: 1 << 20,
		WriteTime: time.Minute, IdleTimeout: time.Minute, MaxAge: time.Minute, KeepAlive: time.Minute,
	}
}

// start starts a server. Its exchanges are what script makes of them.
func start(t testing.TB, change func(l *Limits), script func(x *fakeExchange)) *fakeServer {
	t.Helper()
	limits := testLimits()
	if change != nil {
		change(&limits)
	}

	s := &fakeServer{}
	var work sync.WaitGroup
	s.Server = New(Options{
		Drive: func(d extproc.Driver) error {
			x := &fakeExchange{driver: d, interrupt: make(chan api.Interruption, 8)}
			d.(extproc.Interruptible).Interruptible(func(why api.Interruption) {
				// As an exchange takes it: unless it has ended.
				select {
				case x.interrupt <- why:
				case <-d.Context().Done():
				}
			})
			if !x.receive() {
				return d.Context().Err()
			}

			// As an exchange does, it waits for the end beside its work.
			end := make(chan error, 1)
			go func() {
				_, err := d.Recv()
				end <- err
			}()
			script(x)

			if d.Context().Err() == nil {
				if err := <-end; !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
					t.Errorf("after the reply: %v", err)
				}
			}
			return nil
		},
		Hold:   func(*extprocv3.ProcessingRequest) Memory { return &fakeMemory{s: s, most: 4 << 20} },
		Limits: func() Limits { return limits },
		Tenant: func(h http.Header) (string, bool) { return h.Get("x-tenant"), h.Get("x-tenant") != "" },
		Now:    time.Now,
		Go:     func(do func()) { work.Go(do) },
		NewID:  func(prefix string) string { return prefix + strconv.FormatInt(s.ids.Add(1), 10) },
		Opened: func() func(string) {
			return func(reason string) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.reasons = append(s.reasons, endReason(reason))
			}
		},
	})

	web := httptest.NewServer(s.Server)
	s.url = web.URL + Path
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		s.Close(now)
		web.Close()
		work.Wait()
		if left := s.memory.Load(); left != 0 {
			t.Errorf("%d bytes of memory were not returned", left)
		}
	})
	return s
}

// receive takes the request, and reports whether there is one.
func (x *fakeExchange) receive() bool {
	head, err := x.driver.Recv()
	if err != nil {
		return false
	}
	x.headers = map[string]string{}
	for _, h := range head.GetRequestHeaders().GetHeaders().GetHeaders() {
		x.headers[h.GetKey()] = string(h.GetRawValue())
	}
	body, err := x.driver.Recv()
	if err != nil {
		return false
	}
	x.body = string(body.GetRequestBody().GetBody())
	return true
}

// send sends bytes of a reply, in pieces that do not respect events.
func (x *fakeExchange) send(sse string, end bool) {
	for len(sse) > 0 || end {
		n := min(len(sse), 17)
		x.sendPiece(sse[:n], end && n == len(sse))
		if sse = sse[n:]; len(sse) == 0 {
			return
		}
	}
}

func (x *fakeExchange) sendPiece(sse string, end bool) {
	p := &extprocv3.StreamedBodyResponse{Body: []byte(sse), EndOfStream: end}
	_ = x.driver.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_StreamedImmediateResponse{
		StreamedImmediateResponse: &extprocv3.StreamedImmediateResponse{Response: &extprocv3.StreamedImmediateResponse_BodyResponse{BodyResponse: p}},
	}})
}

func eventText(name, members string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + members + "}\n\n"
}

func (x *fakeExchange) created(id string) {
	x.send(eventText("response.created", `,"response":{"id":"`+id+`"}`), false)
}

// tells sends an event about an item.
func (x *fakeExchange) tells(step string) {
	x.send(eventText("response.output_item."+step, `,"item":{}`), false)
}

// complete sends the end of a response.
func (x *fakeExchange) complete(status, output string) {
	x.send(eventText("response."+status, `,"response":{"output":[`+output+`]}`)+"data: [DONE]\n\n", true)
}

// refuse sends an error in place of a reply.
func (x *fakeExchange) refuse(err *apierror.Error, headers map[string]string) {
	m := &extprocv3.HeaderMutation{}
	for name := range maps.Keys(headers) {
		m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{Header: header(name, headers[name])})
	}
	_ = x.driver.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode(err.Status)}, Body: err.JSON(), Headers: m, //nolint:gosec // an HTTP status
		},
	}})
}

// hello is a script of a short response, whose id is the request's.
func hello(x *fakeExchange) {
	x.created("resp_" + x.headers["x-request-id"])
	x.send(": keep-alive\n"+eventText("response.output_text.delta", `,"delta":"hi"`), false)
	x.complete("completed", "")
}

// client is a connection of a client.
type client struct {
	t *testing.T
	*websocket.Conn
}

func (s *fakeServer) dial(t *testing.T, headers ...string) client {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, s.url, &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return client{t, conn}
}

func (c client) send(event string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte(event)); err != nil {
		c.t.Fatal(err)
	}
}

// next returns the next event.
func (c client) next() gjson.Result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, text, err := c.Read(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	if !gjson.ValidBytes(text) {
		c.t.Fatalf("no JSON: %s", text)
	}
	return gjson.ParseBytes(text)
}

// until returns the next event with a type that begins so.
func (c client) until(kind string) gjson.Result {
	c.t.Helper()
	for {
		if e := c.next(); strings.HasPrefix(e.Get("type").Str, kind) {
			return e
		}
	}
}

// ends returns the status with which the server closes the connection, and the last event before.
func (c client) ends() (code websocket.StatusCode, last gjson.Result) {
	c.t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, text, err := c.Read(ctx)
		cancel()
		if err != nil {
			return websocket.CloseStatus(err), last
		}
		last = gjson.ParseBytes(text)
	}
}
