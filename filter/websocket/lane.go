package websocket

import (
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// lane is an order of responses. The lock of the connection guards it.
//
//	how it stands                            who leaves it, and where to
//	idle: nothing waits                      enqueue: busy, with a goroutine that makes responses
//	busy: one is made, or the next one       next: idle, when none waits
//	taken; others wait
//
// A lane stays for as long as its connection: its name counts for good, as it does at OpenAI.
type lane struct {
	name string
	busy bool

	// waiting are the responses to be made, the next one first, and the errors that wait for those
	// before them; current is the response that is made.
	waiting []*response
	current *response
}

// first returns the response that is made, and the one that is made next; nil for one that there is
// not. The lane may be nil.
func (l *lane) first() (current, next *response) {
	if l == nil {
		return nil, nil
	}
	for _, r := range l.waiting {
		if r.refusal == nil {
			return l.current, r
		}
	}
	return l.current, nil
}

// enqueue lets a response wait in its lane.
func (c *connection) enqueue(r *response) *apierror.Error {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case c.ending != "":
		return c.refusal(c.ending)
	case c.open >= c.limits.Responses:
		return apierror.New(http.StatusTooManyRequests, "websocket_response_limit_reached", "",
			"This WebSocket connection has %d responses that wait or are made. Wait for one of them, or open another "+
				"connection.", c.open)
	}

	l := c.lanes[r.lane]
	if l == nil {
		// The lane without a name is beside the bound.
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
	// The goroutine ends with the last response that waits: idle lanes cost nothing but their name.
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
		if r.refusal != nil {
			c.write(eventOf(l.name, r.refusal))
			c.refused()
			continue
		}
		held := r.settingsHeld

		// What steers a response makes another one, before those that wait: it belongs to what the
		// client has seen last.
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

	l.current = l.waiting[0]
	// Without it the slice's array would hold the response, with its body.
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	return l.current
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
	c.notifyChange()
}

// refused ends an error that has waited for its turn.
func (c *connection) refused() {
	c.mu.Lock()
	c.refusals--
	c.mu.Unlock()
	c.notifyChange()
}

func (c *connection) notifyChange() {
	// One that has not been received says the same.
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
