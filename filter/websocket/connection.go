package websocket

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

const (
	// eventRate is how many events of a client are taken in a second, and eventBurst how many at
	// once. More wait in the socket.
	eventRate  = 20
	eventBurst = 100
	// leastRoom is the first room for a message.
	leastRoom = 4 << 10
)

// connection is a connection of a client. Its goroutines: one reads, one watches the time, one
// pings, and each lane that has a response to make has one.
//
// It is large because what a client may do next depends on all that the connection has: its lanes,
// its memory, its age, and what waits.
type connection struct {
	s      *Server
	limits Limits
	ctx    context.Context //nolint:containedctx // its life
	cancel context.CancelFunc
	ws     *websocket.Conn
	tenant *string // whose place it has; nil: tenants are not told apart

	// headers are the first message of each response's exchange, but for what differs. upgradeID is
	// the request id of the upgrade.
	headers   *extprocv3.ProcessingRequest
	upgradeID string

	memory Memory
	local  *store.Local

	// One event is written at a time. buffer is what it is made in.
	writing sync.Mutex
	buffer  []byte

	mu    sync.Mutex
	lanes map[string]*lane
	// open is how many responses wait or are made, and free since when there is none. number is
	// that of the last response, for its request id.
	open   int
	free   time.Time
	number int
	// made are the responses being made, by id. pending is input that waits for what the client
	// has to send first, by the response that it steers. steerNumber is that of the last event
	// about such input.
	made        map[string]*response
	pending     map[string][]steer
	steerNumber int
	// ending is why no more responses are taken; "": they are. reason is why the connection ends.
	ending string
	reason string

	// changed says that the last response is done.
	changed chan struct{}
	running sync.WaitGroup // lanes
}

// lane is an order of responses.
type lane struct {
	name    string
	busy    bool // a goroutine makes its responses
	waiting []*response
	current *response
}

func newConnection(s *Server, limits Limits) *connection {
	c := &connection{
		s: s, limits: limits, free: s.o.Now(),
		lanes: map[string]*lane{}, made: map[string]*response{}, pending: map[string][]steer{},
		changed: make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// serve serves the connection until it has ended.
func (c *connection) serve(ws *websocket.Conn, r *http.Request) {
	c.ws, c.headers = ws, headersOf(r)
	c.upgradeID = cmp.Or(r.Header.Get("x-request-id"), c.s.o.NewID(""))
	c.memory = c.s.o.Hold(c.headers)
	c.local = store.NewLocal(c.limits.LocalBytes, func(bytes int) error {
		// Not returned as it is: it is no nil error where it is a nil pointer.
		if err := c.memory.Take(bytes); err != nil {
			return err
		}
		return nil
	})
	// Messages are bounded here, so that the client learns why it is refused.
	ws.SetReadLimit(-1)

	var beside sync.WaitGroup
	beside.Go(c.watch)
	beside.Go(c.keepAlive)

	c.read()

	// The responses end as those of a client of HTTP that leaves. What they keep is dropped.
	c.cancel()
	_ = ws.CloseNow()
	c.running.Wait()
	beside.Wait()
	c.local.Close()
	c.memory.Close()
}

// because notes why the connection ends; the first reason counts.
func (c *connection) because(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == "" {
		c.reason = reason
	}
}

// read takes the events of the client until the connection ends.
func (c *connection) read() {
	bucket := bucket{left: eventBurst, at: c.s.o.Now()}
	for {
		kind, message, err := c.ws.Reader(c.ctx)
		if err != nil {
			c.because(reasonClient)
			return
		}
		if kind != websocket.MessageText {
			c.because(reasonMessage)
			_ = c.ws.Close(websocket.StatusUnsupportedData, "send events as texts")
			return
		}

		text, refused, err := c.readMessage(message)
		switch {
		case err != nil:
			c.because(reasonClient)
			return
		case refused != nil && refused.Status == http.StatusRequestEntityTooLarge:
			c.because(reasonMessage)
			c.write(eventOf("", refused))
			_ = c.ws.Close(websocket.StatusMessageTooBig, "the message is too large")
			return
		case refused != nil:
			c.write(eventOf("", refused))
		default:
			c.take(text)
		}

		if !c.wait(bucket.take(c.s.o.Now())) {
			return
		}
	}
}

// wait waits, and reports whether the connection goes on.
func (c *connection) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// bucket bounds events in time.
type bucket struct {
	left float64
	at   time.Time
}

// take takes one event, and returns how long the next one has to wait.
func (b *bucket) take(now time.Time) time.Duration {
	b.left = min(b.left+now.Sub(b.at).Seconds()*eventRate, eventBurst) - 1
	b.at = now
	if b.left >= 0 {
		return 0
	}
	return time.Duration(-b.left / eventRate * float64(time.Second))
}

// readMessage reads a message. Its capacity is taken of the memory budget, unless there is an
// error: refused is for the client, err ends the connection.
func (c *connection) readMessage(r io.Reader) (text []byte, refused *apierror.Error, err error) {
	// A client that has sent a part of a message keeps memory: not for long.
	defer c.within(c.limits.MessageTime, reasonMessage)()

	arriving := c.memory.Receive(c.makeRoom)
	defer arriving.Close()

	for {
		if len(text) == cap(text) {
			more := max(cap(text), leastRoom)
			if refused := arriving.Take(more); refused != nil {
				// The rest is read, so that the next event is found behind it.
				_, err := io.Copy(io.Discard, r)
				return nil, refused, err
			}
			text = append(make([]byte, 0, cap(text)+more), text...)
		}

		n, err := r.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		arriving.GoesOn(n)
		switch {
		case int64(len(text)) > c.limits.MessageBytes:
			return nil, tooLarge(c.limits.MessageBytes), nil
		case errors.Is(err, io.EOF):
			// From now on it is the connection's, and makes no more room. Somebody else may take it
			// in between, as any request may come too late.
			arriving.Close()
			return text, c.memory.Take(cap(text)), nil
		case err != nil:
			return nil, nil, err
		}
	}
}

// makeRoom ends the connection whose message has to make room: its reader may be waiting for the
// rest of it, and what is there of it is free when the reader returns.
func (c *connection) makeRoom() {
	c.because(reasonMessage)
	c.cancel()
}

// giveBack returns memory.
func (c *connection) giveBack(bytes int) {
	if bytes > 0 {
		// Returning is not refused.
		_ = c.memory.Take(-bytes)
	}
}

func tooLarge(limit int64) *apierror.Error {
	return apierror.New(http.StatusRequestEntityTooLarge, "request_too_large", "",
		"The event is larger than %d bytes. Send less history or smaller attachments.", limit)
}

// take takes an event of the client.
func (c *connection) take(message []byte) {
	e, err := readEvent(message)
	kept := false
	if err == nil {
		switch e.kind {
		case typeCreate:
			kept, err = c.create(&e, cap(message))
		case typeSteer:
			kept = c.steer(&e, cap(message))
		case typeCancel:
			err = c.cancelResponse(&e)
		}
	}
	if !kept {
		c.giveBack(cap(message))
	}
	if err != nil {
		c.write(eventOf(e.lane, err))
	}
}

// create takes a response that is to be made. It keeps the event's memory if there is no error.
func (c *connection) create(e *clientEvent, held int) (kept bool, err *apierror.Error) {
	settings, err := e.settings()
	if err != nil {
		return false, err
	}
	if err := c.memory.Take(cap(settings)); err != nil {
		return false, err
	}
	r := newResponse(c, e.lane, settings, e.turn(), held+cap(settings))
	if err := c.enqueue(r); err != nil {
		c.giveBack(cap(settings))
		return false, err
	}
	return true, nil
}

// enqueue lets a response wait in its lane.
func (c *connection) enqueue(r *response) *apierror.Error {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case c.ending == reasonAge:
		return c.tooOld()
	case c.ending != "":
		return shutDown()
	case c.open >= c.limits.Responses:
		return apierror.New(http.StatusTooManyRequests, "websocket_response_limit_reached", "",
			"This WebSocket connection has %d responses that wait or are made. Wait for one of them, or open another "+
				"connection.", c.open)
	}

	l := c.lanes[r.lane]
	if l == nil {
		named := len(c.lanes)
		if c.lanes[""] != nil {
			named--
		}
		if r.lane != "" && named >= maxLanes {
			return apierror.New(http.StatusBadRequest, "websocket_stream_limit_reached", "stream_id",
				"This WebSocket connection has reached its maximum number of distinct stream IDs (%d). Reuse an "+
					"existing stream_id or open a new WebSocket connection.", maxLanes)
		}
		l = &lane{name: r.lane}
		c.lanes[r.lane] = l
	}

	c.open++
	l.waiting = append(l.waiting, r)
	if !l.busy {
		l.busy = true
		c.running.Add(1)
		c.s.o.Go(func() { c.makeAll(l) })
	}
	return nil
}

// makeAll makes the responses of a lane, until none waits.
func (c *connection) makeAll(l *lane) {
	defer c.running.Done()
	for r := c.next(l); r != nil; r = c.next(l) {
		held := r.held
		for made := r; made != nil; {
			c.setCurrent(l, made)
			made.make()
			made = c.successor(made)
		}
		c.done(l, held)
	}
}

// next takes the response that is to be made next; nil if none waits.
func (c *connection) next(l *lane) *response {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(l.waiting) == 0 {
		l.busy = false
		return nil
	}
	r := l.waiting[0]
	l.waiting = l.waiting[1:]
	return r
}

func (c *connection) setCurrent(l *lane, r *response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.current = r
}

// done ends a response.
func (c *connection) done(l *lane, held int) {
	c.giveBack(held)
	c.mu.Lock()
	l.current = nil
	c.open--
	c.free = c.s.o.Now()
	c.mu.Unlock()

	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// cancelResponse cancels a response that is being made: one that is named, or that of a lane.
func (c *connection) cancelResponse(e *clientEvent) *apierror.Error {
	c.mu.Lock()
	r := c.made[e.response]
	if l := c.lanes[e.lane]; e.response == "" && l != nil {
		r = l.current
	}
	c.mu.Unlock()
	if r == nil {
		return apierror.New(http.StatusNotFound, "response_not_found", "response_id",
			"No such response is being made on this connection.")
	}
	r.stop(canceled)
	return nil
}

// write writes an event. A client that does not take it in time loses its connection.
func (c *connection) write(event []byte) bool {
	defer c.within(c.limits.WriteTime, reasonSlow)()
	if err := c.ws.Write(c.ctx, websocket.MessageText, event); err != nil {
		c.because(reasonClient)
		c.cancel()
		return false
	}
	return true
}

// within ends the connection for a reason, unless done is called in time. The reason is noted
// first: the reader, which the end wakes up, would note another one.
func (c *connection) within(limit time.Duration, reason string) (done func() bool) {
	return time.AfterFunc(limit, func() {
		c.because(reason)
		c.cancel()
	}).Stop
}

// send writes an event of a response.
func (c *connection) send(lane string, json []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	event := json
	if lane != "" {
		c.buffer = appendEvent(c.buffer[:0], lane, json)
		event = c.buffer
	}
	ok := c.write(event)
	// The last event of a response may have all of its output: it is not kept.
	if cap(c.buffer) > keptBuffer {
		c.buffer = nil
	}
	if !ok {
		return errors.New("the connection has ended")
	}
	return nil
}

// keptBuffer is how large a buffer may be that is kept for the next event.
const keptBuffer = 16 << 10

// keepAlive pings the client, and ends the connection of one that does not answer.
func (c *connection) keepAlive() {
	if c.limits.KeepAlive <= 0 {
		return
	}
	for c.wait(c.limits.KeepAlive) {
		answered := c.within(max(c.limits.KeepAlive, c.limits.WriteTime), reasonGone)
		err := c.ws.Ping(c.ctx)
		answered()
		if err != nil {
			c.because(reasonClient)
			c.cancel()
			return
		}
	}
}

// watch ends the connection when it is idle or too old, or when the process drains.
func (c *connection) watch() {
	age := time.NewTimer(c.limits.MaxAge)
	defer age.Stop()
	idle := time.NewTimer(c.limits.IdleTimeout)
	defer idle.Stop()
	drained := c.s.drained

	for {
		select {
		case <-c.ctx.Done():
			return
		case <-drained:
			c.takeNoMore(reasonShutdown)
			drained = nil
		case <-age.C:
			c.takeNoMore(reasonAge)
		case <-idle.C:
			idle.Reset(c.idleFor())
		case <-c.changed:
		}
		if c.over() {
			return
		}
	}
}

func (c *connection) takeNoMore(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending == "" {
		c.ending = why
	}
}

// idleFor returns when to look again whether the connection is idle, and notes if it is.
func (c *connection) idleFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.limits.IdleTimeout
	if c.open == 0 {
		left -= c.s.o.Now().Sub(c.free)
	}
	if left <= 0 && c.ending == "" {
		c.ending = reasonIdle
	}
	return max(left, time.Millisecond)
}

// over ends a connection that takes no more responses and has none, and reports whether it has.
func (c *connection) over() bool {
	c.mu.Lock()
	why, open := c.ending, c.open
	c.mu.Unlock()
	if why == "" || open > 0 {
		return false
	}

	c.because(why)
	code, text := websocket.StatusNormalClosure, "idle"
	switch why {
	case reasonShutdown:
		code, text = websocket.StatusGoingAway, "the service is restarting"
	case reasonAge:
		text = "too old"
		c.write(eventOf("", c.tooOld()))
	}
	// The reader gets the answer of the client, or the end of the time for that.
	_ = c.ws.Close(code, text)
	return true
}

// tooOld is the error that tells a client to open another connection.
func (c *connection) tooOld() *apierror.Error {
	return apierror.New(http.StatusBadRequest, "websocket_connection_limit_reached", "",
		"Responses websocket connection limit reached (%s). Create a new websocket connection to continue.",
		c.limits.MaxAge)
}
