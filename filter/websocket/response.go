package websocket

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/extproc"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/event"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

const (
	steered  = api.Steered
	canceled = api.Canceled
)

// response makes one response. It is the [extproc.Driver] of its exchange: for the exchange it is
// an Envoy that sends a POST and takes a local reply.
//
//	how it stands                              who leaves it, and where to
//	waiting: in its lane                       make: asked; an interruption is noted as early
//	asked: its exchange gets the request       Recv, when all has been handed over: begun
//	begun: it can be interrupted               event, with response.created: made
//	                                           refused, fail: over
//	made: it has an id; input can steer it     event, with the event of its end: ending
//	                                           fail: over
//	ending: it takes no more input             Send, with the end of the stream: over
//	over: ended is closed, and what the        nobody; its input that waits makes a successor, to which
//	exchange still sends nobody gets           a cancellation goes on
//
// Its context, which ends with the connection, lets each of them go to over.
//
// It is both ends of an exchange: what is handed over, and what is known of the reply. What others say
// to it is its steering.
type response struct {
	c    *connection
	lane string
	// refusal is an error in the place of a response, which has nothing else; nil: it is one.
	refusal *apierror.Error

	// settings are the body without its end, turn is what completes it: see [turn.appendTo].
	settings []byte
	turn     turn
	// previous is the id of the response that it continues; "": none.
	previous string
	// steerable is whether a successor can be made by the same settings.
	steerable bool
	// The bytes of the memory budget: of the event until the body is made of it, and of the settings,
	// which successors have too.
	eventHeld, settingsHeld int
	// brings is the input that waited and is a part of the turn. Until the response has begun it may
	// still have to go back to the client.
	brings []steer

	// ctx is that of its exchange.
	ctx    context.Context //nolint:containedctx // see above
	cancel context.CancelFunc

	// The request: begun says that the headers have been handed over, and body is nil once it has.
	begun bool
	body  []byte

	// The reply. ended is closed at its end.
	events event.Reader
	ended  chan struct{}
	id     string
	// status is how the response has ended: the last part of the name of its last event, or "failed"
	// with an error; "": the client has no last event. last is that event, if the response was steered.
	status string
	last   []byte

	steering steering
}

func newResponse(c *connection, lane string, settings []byte, t turn) *response {
	return &response{
		c: c, lane: lane, settings: settings, turn: t, ended: make(chan struct{}),
		steering: steering{spawn: c.s.o.Go},
	}
}

var _ extproc.Interruptible = (*response)(nil)

// make makes the response, and returns when it has ended.
func (r *response) make() {
	// Not before: what the client has to send first may have come while the response waited.
	r.withPending()
	r.body = r.turn.appendTo(r.settings)
	r.previous = strings.Clone(gjson.Parse(r.turn.previous).Str)
	// The event's own bytes are not needed any more.
	r.turn = turn{}
	r.c.giveBack(r.eventHeld)
	r.c.kept.Use()

	r.ctx, r.cancel = context.WithCancel(store.WithLocal(r.c.ctx, r.c.local))
	defer r.cancel()
	// Its error is that of a connection that has ended, or one that the exchange has logged.
	_ = r.c.s.o.Drive(r)
	r.c.forget(r)

	select {
	case <-r.ended:
	default:
		// A panic, or a driver's message that no exchange should have.
		r.finish()
	}
	r.notBegun()
}

// finish ends the response. The client must not wait for a last event that has not come.
func (r *response) finish() {
	if r.c.ctx.Err() == nil {
		r.fail(apierror.New(http.StatusInternalServerError, "", "", "Internal error."))
	}
	r.end()
}

// fail sends an error in place of the response, or of the rest of it.
func (r *response) fail(err *apierror.Error) {
	if r.status == "" {
		r.failed()
	}
	r.endWith(eventOf(r.lane, err))
}

// endWith sends an error as the last event, unless there was one: with it the client begins to read
// what comes of its next request.
func (r *response) endWith(last []byte) {
	if r.status == "" {
		r.status = "failed"
		r.c.write(last)
	}
	r.end()
}

// failed is called before the client learns that the response has failed. If only the connection
// has what it continues, nothing continues that any more: OpenAI's service does so, and Open
// Responses demands it. The client sends its history again.
func (r *response) failed() {
	if r.previous != "" {
		r.c.local.Withdraw(r.previous)
	}
}

// end closes ended, once. Only the goroutine of the exchange calls it.
func (r *response) end() {
	r.steering.close()
	select {
	case <-r.ended:
	default:
		close(r.ended)
	}
}

// Interruptible implements [extproc.Interruptible].
func (r *response) Interruptible(interrupt func(why api.Interruption)) { r.steering.begin(interrupt) }

// Context implements [extproc.Driver].
func (r *response) Context() context.Context { return r.ctx }

// Now implements [extproc.Driver].
func (r *response) Now() time.Time { return r.c.s.o.Now() }

// Go implements [extproc.Driver].
func (r *response) Go(work func()) { r.c.s.o.Go(work) }

// Recv implements [extproc.Driver]: the headers, the body, and the end when the reply has its end.
func (r *response) Recv() (*extprocv3.ProcessingRequest, error) {
	switch {
	case !r.begun:
		r.begun = true
		return r.head(), nil
	case r.body != nil:
		m := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: r.body, EndOfStream: true},
		}}
		r.body = nil
		return m, nil
	}

	r.steering.handOver()
	select {
	case <-r.ended:
		return nil, io.EOF
	case <-r.ctx.Done():
		return nil, r.ctx.Err()
	}
}

// head is the first message: the headers of the POST.
func (r *response) head() *extprocv3.ProcessingRequest {
	m := proto.CloneOf(r.c.headers)
	h := m.GetRequestHeaders().GetHeaders()
	h.Headers = append(h.Headers,
		header("content-length", strconv.Itoa(len(r.body))),
		header("x-request-id", r.c.requestID()))
	return m
}

// requestID returns the id of the next request: that of the upgrade, with a number.
func (c *connection) requestID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	return c.upgradeID + "-" + strconv.Itoa(c.number)
}

// Send implements [extproc.Driver].
func (r *response) Send(m *extprocv3.ProcessingResponse) error {
	// A request that would go on to the upstream comes in several messages, of which the first was
	// answered. The client reads the next response already.
	select {
	case <-r.ended:
		return nil
	default:
	}

	switch reply := m.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_StreamedImmediateResponse:
		// The headers have none: what they say over HTTP the events say, or nobody.
		body := reply.StreamedImmediateResponse.GetBodyResponse()
		if body == nil {
			return nil
		}
		if err := r.events.Feed(body.GetBody(), r.event); err != nil {
			return err
		}
		if body.GetEndOfStream() {
			r.finish()
		}

	case *extprocv3.ProcessingResponse_ImmediateResponse:
		r.refused(reply.ImmediateResponse)

	default:
		// The request would go on to the upstream, as one for another model does.
		r.fail(apierror.New(http.StatusNotFound, "model_not_found", "model",
			"The model is not served over WebSocket here. Send a POST."))
		r.cancel()
	}
	return nil
}

// refused sends the error in place of a reply.
func (r *response) refused(reply *extprocv3.ImmediateResponse) {
	headers := map[string]string{}
	for _, h := range reply.GetHeaders().GetSetHeaders() {
		name := h.GetHeader().GetKey()
		if name == "retry-after" || name == "x-should-retry" || strings.HasPrefix(name, "x-ratelimit-") {
			headers[name] = string(h.GetHeader().GetRawValue())
		}
	}
	status := int(reply.GetStatus().GetCode())
	// One that was canceled before it began has an error too, and has not failed.
	if !r.steering.canceled() && r.status == "" {
		r.failed()
	}
	r.endWith(errorEvent(r.lane, status, fieldsOf(reply.GetBody()), headers))
}

// event sends an event of the reply.
func (r *response) event(e event.Event) error {
	// After its last event nobody reads on.
	if r.status != "" {
		return nil
	}

	switch e.Step {
	case event.Created:
		r.id = e.ID()
		r.c.remember(r)
		r.c.letGo(r.brings)
		r.brings = nil

	case event.ItemChanged:
		// While the model wrote a call it was not interrupted. One of the filter's own has been
		// written now: no model call is to follow it.
		if r.steering.waits() {
			r.steering.stop(steered)
		}

	case event.Ended:
		r.status = e.Status
		if r.status == "failed" {
			r.failed()
		}
		// Before the client has the event: input that it sends then is for the next response.
		if r.steering.close() {
			r.last = bytes.Clone(e.JSON)
		}
	}
	return r.c.send(r.lane, e.JSON)
}

// remember notes a response that has an id, before the client knows it.
func (c *connection) remember(r *response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[r.id] = r
}

// forget notes that a response has ended.
func (c *connection) forget(r *response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, r.id)
	if r.id != "" {
		c.past.add(r.id, r.lane)
	}
}

// maxEnded is how many of the last responses of a connection are known.
const maxEnded = 64

// pastResponses are the last ones that have ended: their lanes by their ids.
type pastResponses struct {
	lanes map[string]string
	ids   [maxEnded]string
	next  int
}

func (p *pastResponses) add(id, lane string) {
	if p.lanes == nil {
		p.lanes = map[string]string{}
	}
	delete(p.lanes, p.ids[p.next])
	p.ids[p.next], p.lanes[id] = id, lane
	p.next = (p.next + 1) % maxEnded
}

// headersOf makes the first message of exchanges of the headers of an upgrade.
func headersOf(r *http.Request) *extprocv3.ProcessingRequest {
	headers := []*corev3.HeaderValue{
		header(":method", http.MethodPost), header(":path", Path), header(":scheme", "http"),
		header(":authority", r.Host), header("content-type", "application/json"),
	}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		if ofUpgrade[name] || strings.HasPrefix(name, "sec-websocket-") {
			continue
		}
		// They are not joined: two tenants are none, and a list of two would be one.
		for _, value := range values {
			headers = append(headers, header(name, value))
		}
	}

	// The mode in which an exchange makes streamed replies of its own.
	const duplex = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
			Headers: &corev3.HeaderMap{Headers: headers},
		}},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: duplex, ResponseBodyMode: duplex},
		Attributes:     extproc.AddressOf(clientOf(r)),
	}
}

// ofUpgrade are the headers of an upgrade that are about the connection, or that each response
// has of its own.
var ofUpgrade = map[string]bool{
	"connection": true, "upgrade": true, "keep-alive": true, "transfer-encoding": true, "content-length": true,
	"content-type": true, "content-encoding": true, "accept": true, "accept-encoding": true, "x-request-id": true,
}

// clientOf is the address of the client, which Envoy appends to those that the client has sent.
func clientOf(r *http.Request) string {
	all := r.Header.Values("x-forwarded-for")
	if len(all) == 0 {
		return ""
	}
	// Those before may be the client's own.
	last := all[len(all)-1]
	return strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
}

func header(name, value string) *corev3.HeaderValue {
	return &corev3.HeaderValue{Key: name, RawValue: []byte(value)}
}
