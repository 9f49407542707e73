package h2

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	// maxDials is how many connections are made for one request: others may take their
	// room.
	maxDials = 100
	// fewStreams is how many requests share a connection before there is another one.
	// What comes for all of them is read at once, and Envoy serves their engines on one
	// thread: that costs a tenth less for a token than two connections.
	fewStreams = 256
)

// Pool has the connections to a listener.
type Pool struct {
	dial func(context.Context) (net.Conn, error)
	size int
	tick time.Duration

	mu      sync.Mutex
	conns   []*conn
	dialing *dialing
	closed  bool
}

type dialing struct {
	done chan struct{}
	err  error
}

// NewPool makes a pool of at most size connections that take requests.
func NewPool(size int, tick time.Duration, dial func(context.Context) (net.Conn, error)) *Pool {
	return &Pool{dial: dial, size: size, tick: tick}
}

// Prepare makes a stream. notify is called when there may be a next piece of its answer.
func (p *Pool) Prepare(notify func()) *Stream { return &Stream{notify: notify} }

// Do begins the request of a stream. ctx bounds the wait for a connection.
func (p *Pool) Do(ctx context.Context, st *Stream, r *Request) {
	if !p.send(st, r, true) {
		go p.wait(ctx, st, r)
	}
}

// send sends a request. false: a connection is to be made first, with grows also because
// there are fewer than there may be.
func (p *Pool) send(st *Stream, r *Request, grows bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	best, load, open := p.choose()
	if best == nil || grows && load >= fewStreams && open < p.size {
		return false
	}
	return best.send(st, r)
}

// choose returns the connection for the next request, nil if none takes one, and how
// many requests it has: of those with fewStreams or more the one with the fewest, unless
// there are others, then of these the one with the most. open is how many take requests.
func (p *Pool) choose() (best *conn, load, open int) {
	for _, c := range p.conns {
		n, ok := c.load()
		if !ok {
			continue
		}
		open++
		few, bestHasFew := n < fewStreams, load < fewStreams
		if best == nil || few && (!bestHasFew || n > load) || !few && !bestHasFew && n < load {
			best, load = c, n
		}
	}
	return best, load, open
}

// wait makes a connection and sends the request.
func (p *Pool) wait(ctx context.Context, st *Stream, r *Request) {
	for range maxDials {
		err := p.connect(ctx)

		// The stream may find a place on a connection that others have made, even if this dial failed.
		if p.send(st, r, false) || ctx.Err() != nil {
			return
		}
		if err != nil {
			st.end(nil, err)
			return
		}
	}
	st.end(nil, errFull)
}

// connect makes a connection, or waits for the one that is being made.
func (p *Pool) connect(ctx context.Context) error {
	p.mu.Lock()
	d := p.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		p.dialing = d
		// Also for others: it does not end with this request.
		go p.make(d)
	}
	p.mu.Unlock()

	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Pool) make(d *dialing) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	c, err := p.dial(ctx)
	var k *conn
	if err == nil {
		k, err = newConn(c, p.tick, p.ended)
	}
	if err == nil {
		err = k.await(ctx)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	// The pool was closed during the dial, so Close has not seen this connection.
	if err == nil && p.closed {
		k.retire()
	}
	if err == nil && !k.idle() { // it may have ended since, and was not in the list then
		p.conns = append(p.conns, k)
	}

	d.err = err
	p.dialing = nil
	close(d.done)
}

func (p *Pool) ended(k *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.conns {
		if c == k {
			p.conns = append(p.conns[:i], p.conns[i+1:]...)
			return
		}
	}
}

// Close lets all connections end with their last requests.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		c.retire()
	}
}
