package websocket

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// largeEvent is the size of an event from which on it is not copied.
const largeEvent = 16 << 10

// connection is a connection of a client. Its goroutines: one reads, one watches the time, one
// pings, and each lane that has a response to make has one.
//
//	how it stands                               who leaves it, and where to
//	open: it takes responses                    takeNoMore, idleFor: ending
//	                                            read, write, keepAlive, Server.Close: over
//	ending: it refuses new ones, and those      over, when the last one has ended: over
//	that it has end                             read, write, keepAlive, Server.Close: over
//	over: ctx has ended, and with it all        nobody; serve returns when they have
//	responses
//
// It is large because what a client may do next depends on all that the connection has: its lanes,
// its memory, its age, and what waits.
type connection struct {
	s      *Server
	limits Limits
	ctx    context.Context //nolint:containedctx // its life
	cancel context.CancelFunc
	ws     *websocket.Conn
	// tenant is whose place it has; nil: tenants are not told apart.
	tenant *string

	// headers are the first message of each response's exchange, except for what differs. upgradeID
	// is the request id of the upgrade.
	headers   *extprocv3.ProcessingRequest
	upgradeID string

	memory Memory
	// local are the responses that are kept, and kept what they take of the memory budget.
	local *store.Local
	kept  Kept

	// One event is written at a time. buffer is what it is made in, and late ends the connection if
	// that takes too long: one timer, because nearly every token is an event.
	writing sync.Mutex
	buffer  []byte
	late    *time.Timer

	mu    sync.Mutex
	lanes map[string]*lane
	// open is how many responses wait or are made, and free since when there is none. refusals is how
	// many errors wait for their turn.
	open     int
	refusals int
	free     time.Time
	// number is that of the last response, for its request id.
	number int
	// made are the responses being made, by id.
	made map[string]*response
	// past are the last ones that have ended.
	past pastResponses
	// pending is input that waits for what the client has to send first, by the response that it
	// steers. steerNumber is that of the last event about such input.
	pending     map[string][]steer
	steerNumber int
	// ending is why no more responses are taken; "": they are. reason is why the connection ends.
	ending endReason
	reason endReason

	// changed says that the last response is done.
	changed chan struct{}
	// running are the lanes that make responses.
	running sync.WaitGroup
}

func newConnection(s *Server, limits Limits) *connection {
	c := &connection{
		s: s, limits: limits, free: s.o.Now(),
		lanes: map[string]*lane{}, made: map[string]*response{}, pending: map[string][]steer{},
		changed: make(chan struct{}, 1),
	}
	// Not that of the request: after a hijack net/http ends it no sooner than the handler returns.
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
		if err := c.kept.Take(bytes); err != nil {
			return err
		}
		return nil
	})
	c.kept = c.memory.Keep(c.local.GiveUp)
	c.late = time.AfterFunc(c.limits.WriteTime, func() { c.end(reasonSlow) })
	c.late.Stop()
	// Messages are bounded here, so that the client learns why it is refused.
	ws.SetReadLimit(-1)

	var beside sync.WaitGroup
	beside.Go(c.watch)
	beside.Go(c.keepAlive)

	c.read()

	// The responses end as those of a client of HTTP that leaves. What they keep is dropped, but
	// not before the last of them has ended: it may be about to keep more.
	c.cancel()
	_ = ws.CloseNow()
	c.running.Wait()
	beside.Wait()
	c.local.Close()
	c.kept.Close()
	c.memory.Close()
}

// because notes why the connection ends; the first reason counts.
func (c *connection) because(reason endReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == "" {
		c.reason = reason
	}
}

// ended returns why the connection has ended.
func (c *connection) ended() endReason {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// end ends the connection at once.
func (c *connection) end(reason endReason) {
	// The reason is noted first: the reader, which the end wakes up, would note another one.
	c.because(reason)
	c.cancel()
}

// within ends the connection for a reason, unless done is called in time.
func (c *connection) within(limit time.Duration, reason endReason) (done func() bool) {
	return time.AfterFunc(limit, func() { c.end(reason) }).Stop
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

// write writes an event. A client that does not take it in time loses its connection.
func (c *connection) write(event []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	// The reader notices the end of the connection by itself.
	_ = c.writeLocked(event)
}

// writeLocked writes an event, whose parts become frames if they are several.
func (c *connection) writeLocked(parts ...[]byte) error {
	c.late.Reset(c.limits.WriteTime)
	defer c.late.Stop()

	var err error
	if len(parts) == 1 {
		err = c.ws.Write(c.ctx, websocket.MessageText, parts[0])
	} else {
		err = c.writeFrames(parts)
	}
	if err != nil {
		c.end(reasonClient)
		return fmt.Errorf("write an event: %w", err)
	}
	return nil
}

func (c *connection) writeFrames(parts [][]byte) error {
	w, err := c.ws.Writer(c.ctx, websocket.MessageText)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return w.Close()
}

// send writes an event of a response.
func (c *connection) send(lane string, json []byte) error {
	// A slow client holds all lanes back, not only the one whose event it does not take: there is
	// one socket.
	c.writing.Lock()
	defer c.writing.Unlock()

	switch {
	case lane == "":
		return c.writeLocked(json)
	// The last event of a response may have all of its output: another copy would be of no account.
	case len(json) > largeEvent:
		return c.writeLocked(appendLane(c.buffer[:0], lane), json[1:])
	}
	c.buffer = append(appendLane(c.buffer[:0], lane), json[1:]...)
	return c.writeLocked(c.buffer)
}

// keepAlive pings the client, and ends the connection of one that does not answer. Pings also keep
// what is on the way from closing a connection that nobody uses.
func (c *connection) keepAlive() {
	if c.limits.KeepAlive <= 0 {
		return
	}
	for c.wait(c.limits.KeepAlive) {
		// An answer comes after the events before it have been read, which may take so long.
		answered := c.within(max(c.limits.KeepAlive, c.limits.WriteTime), reasonGone)
		err := c.ws.Ping(c.ctx)
		answered()

		if err != nil {
			c.end(reasonClient)
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
			// It is closed for good, and would be chosen again and again.
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

func (c *connection) takeNoMore(why endReason) {
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
	if c.open+c.refusals == 0 {
		left -= c.s.o.Now().Sub(c.free)
	}
	if left <= 0 && c.ending == "" {
		c.ending = reasonIdle
	}
	// A timer of 0 would fire again before the connection has ended.
	return max(left, time.Millisecond)
}

// over ends a connection that takes no more responses and has none, and reports whether it has.
func (c *connection) over() bool {
	c.mu.Lock()
	why, open := c.ending, c.open+c.refusals
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
		// OpenAI sends the error also to a client that asks for nothing more: its clients read the
		// code, and open another connection before they need it.
		text = "too old"
		c.write(eventOf("", c.refusal(why)))
	}
	// The reader gets the answer of the client, or the end of the time for that.
	_ = c.ws.Close(code, text)
	return true
}

// refusal is the error for a response that comes after the connection has begun to end.
func (c *connection) refusal(why endReason) *apierror.Error {
	const code = "websocket_connection_limit_reached"
	switch why {
	case reasonAge:
		return apierror.New(http.StatusBadRequest, code, "",
			"Responses websocket connection limit reached (%s). Create a new websocket connection to continue.",
			c.limits.MaxAge)
	case reasonIdle:
		return apierror.New(http.StatusBadRequest, code, "",
			"The connection had no response for %s, and ends. Create a new websocket connection to continue.",
			c.limits.IdleTimeout)
	}
	return shutDown()
}
