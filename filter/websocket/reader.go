package websocket

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

const (
	// eventRate is how many events of a client are taken in a second, and eventBurst how many at
	// once. More wait in the socket. A person steers less often, and a program that makes responses
	// waits for them; what is faster costs us more than the client.
	eventRate  = 20
	eventBurst = 100
	// leastRoom is the first room for a message: most of them fit, since history is not sent again.
	leastRoom = 4 << 10
)

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
			// The rest of it would have to be read, which is what the bound is against.
			c.because(reasonMessage)
			c.write(eventOf("", refused))
			_ = c.ws.Close(websocket.StatusMessageTooBig, "the message is too large")
			return
		case refused != nil:
			c.write(eventOf("", refused))
		default:
			c.take(text)
		}

		// After the event, not before it: the first ones of a connection do not wait.
		if !c.wait(bucket.take(c.s.o.Now())) {
			return
		}
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

	// Its reader may be waiting for the rest of it when it has to make room: what is there is free
	// only when the reader returns, and so the connection ends.
	arriving := c.memory.Receive(func() { c.end(reasonMessage) })
	defer arriving.Close()

	for {
		// What a frame says about its length is not believed: room is made for what has come.
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
	// They are a copy of the event without its input. The input itself is not copied before the
	// response is made: many may wait.
	copied := e.settingsBytes()
	if err := c.memory.Take(copied); err != nil {
		return false, err
	}
	settings, err := e.settings()
	if err == nil {
		r := newResponse(c, e.lane, settings, e.turn(), held+copied)
		r.steerable = e.steerable()
		err = c.enqueue(r)
	}

	if err != nil {
		c.giveBack(copied)
	}
	return err == nil, err
}

// cancelResponse cancels a response: one that is named, or the one of a lane that is made, or is
// to be made next.
func (c *connection) cancelResponse(e *clientEvent) *apierror.Error {
	c.mu.Lock()
	r, next := c.made[e.response], (*response)(nil)
	if e.response == "" {
		r, next = c.lanes[e.lane].first()
	}
	c.mu.Unlock()

	// What has ended is in its lane until all is done about it.
	if (r == nil || !r.stop(canceled)) && (next == nil || !next.stop(canceled)) {
		return apierror.New(http.StatusNotFound, "response_not_found", "response_id",
			"No such response is being made on this connection.")
	}
	return nil
}
