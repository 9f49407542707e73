package websocket

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

const (
	// eventRate is how many events of a client are taken in a second, and eventBurst how many at
	// once. More wait in the socket. A person steers less often, and a program that makes responses
	// waits for them; what is faster costs us more than the client.
	eventRate  = 20
	eventBurst = 100
	// maxRefusals is how many errors can wait for their turn. A client with more is not reading them.
	maxRefusals = 100
	// leastRoom is the first room for a message: most of them fit, since history is not sent again.
	leastRoom = 4 << 10
)

// read takes the events of the client until the connection ends.
func (c *connection) read() {
	bucket := newBucket(eventRate, eventBurst, c.s.o.Now())
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
			// Whose it was is not known.
			c.refuse("", refused)
		default:
			c.take(text)
		}

		// After the event, not before it: the first ones of a connection do not wait.
		if !c.wait(bucket.take(1, c.s.o.Now())) {
			return
		}
	}
}

// readMessage reads a message. Its capacity is taken of the memory budget, unless there is an
// error: refused is for the client, err ends the connection.
func (c *connection) readMessage(r io.Reader) (text []byte, refused *apierror.Error, err error) {
	// A client that has sent a part of a message keeps memory: not for long.
	defer c.within(c.limits.MessageTime, reasonMessage)()

	m := message{}
	arriving := c.memory.Receive(m.drop)
	defer arriving.Close()
	piece := pieces.Get().(*[pieceBytes]byte)
	defer pieces.Put(piece)

	for {
		m.wait()
		n, err := r.Read(piece[:])
		refused := m.goOn()
		arriving.GoesOn(n)
		if refused == nil {
			refused = m.add(piece[:n], arriving.Take)
		}

		switch {
		case refused != nil:
			// The rest is read, so that the next event is found behind it.
			_, err := io.Copy(io.Discard, r)
			return nil, refused, err
		case int64(len(m.text)) > c.limits.MessageBytes:
			return nil, tooLarge(c.limits.MessageBytes), nil
		case errors.Is(err, io.EOF):
			// From now on it is the connection's, and makes no more room. Somebody else may take it
			// in between, as any request may come too late.
			arriving.Close()
			return m.text, c.memory.Take(cap(m.text)), nil
		case err != nil:
			return nil, nil, err
		}
	}
}

// pieceBytes is how much is read of a message at once. A reader waits with a piece that is not of the
// message, which can be dropped meanwhile.
const pieceBytes = 16 << 10

var pieces = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// message is one that arrives. Its text is its reader's. While the reader waits for the client, the text
// is that of a request that drops it.
type message struct {
	text []byte

	mu      sync.Mutex
	waits   bool
	dropped *apierror.Error
}

// wait has the reader wait for the client.
func (m *message) wait() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = true
	if m.dropped != nil {
		m.text = nil
	}
}

// goOn has the reader go on. The error is that of a message that was dropped.
func (m *message) goOn() *apierror.Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = false
	return m.dropped
}

// drop gives up what has arrived. It does not wait: it is called by who needs the room.
func (m *message) drop(err *apierror.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropped = err
	if m.waits {
		m.text = nil
	}
}

// add adds a piece. What a frame says about its length is not believed: room is made for what has come.
func (m *message) add(p []byte, take func(bytes int) *apierror.Error) *apierror.Error {
	if len(m.text)+len(p) > cap(m.text) {
		more := max(cap(m.text), leastRoom, len(p))
		if err := take(more); err != nil {
			return err
		}
		m.text = append(make([]byte, 0, cap(m.text)+more), m.text...)
	}
	m.text = append(m.text, p...)
	return nil
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
			c.cancelResponse(&e)
		}
	}

	if !kept {
		c.giveBack(cap(message))
	}
	if err != nil {
		c.refuse(e.lane, err)
	}
}

// refuse answers an event that makes no response with an error, when those before it of the lane have
// ended: their readers would take it for the end of what they read.
func (c *connection) refuse(lane string, err *apierror.Error) {
	c.mu.Lock()
	l := c.lanes[lane]
	waits := l != nil && l.busy
	full := waits && c.refusals >= maxRefusals
	if waits && !full {
		c.refusals++
		l.waiting = append(l.waiting, &response{lane: lane, refusal: err})
	}
	c.mu.Unlock()

	switch {
	case full:
		c.because(reasonMessage)
		_ = c.ws.Close(websocket.StatusPolicyViolation, "too many events were refused at once")
	case !waits:
		c.write(eventOf(lane, err))
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
		r := newResponse(c, e.lane, settings, e.turn())
		r.eventHeld, r.settingsHeld = held, copied
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
func (c *connection) cancelResponse(e *clientEvent) {
	c.mu.Lock()
	r, next := c.made[e.response], (*response)(nil)
	if e.response == "" {
		r, next = c.lanes[e.lane].first()
	}
	c.mu.Unlock()

	// What has ended is in its lane until all is done about it.
	if r != nil && r.steering.stop(canceled) || next != nil && next.steering.stop(canceled) {
		return
	}

	// It is no error event: the response may have ended on its own meanwhile, and the client may have
	// sent the next one, whose answer such an event would be.
	w := jsontext.Writer{}.Open().Text("type", "response.cancel.failed")
	if e.lane != "" {
		w = w.Text("stream_id", e.lane)
	}
	if e.response != "" {
		w = w.Text("response_id", e.response)
	}
	w = w.Key("error").Open().Text("type", apierror.TypeInvalidRequest).Text("code", "response_not_found")
	c.write(w.Text("message", "No such response is being made on this connection.").Close().Close())
}
