package stores

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// storeProxy is a TCP proxy in front of a server of a store, which a test makes
// slow, hang or unreachable.
type storeProxy struct {
	t       *testing.T
	address string
	server  string

	mu       sync.Mutex
	changed  *sync.Cond
	delay    time.Duration // of each piece of bytes, in each direction
	hangs    bool          // nothing is passed on
	listener net.Listener  // nil: unreachable
	conns    map[net.Conn]bool
	done     sync.WaitGroup
}

// newStoreProxy starts a proxy until the test ends.
func newStoreProxy(t *testing.T, server string) *storeProxy {
	t.Helper()
	p := &storeProxy{t: t, address: "127.0.0.1:" + stack.FreePort(t), server: server, conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.up()
	t.Cleanup(func() {
		p.set(0, false)
		p.down()
		p.done.Wait()
	})
	return p
}

// set changes what happens to bytes from now on.
func (p *storeProxy) set(delay time.Duration, hangs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.hangs = delay, hangs
	p.changed.Broadcast()
}

// up makes the server reachable.
func (p *storeProxy) up() {
	p.t.Helper()
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.listener = listener
	p.mu.Unlock()
	p.done.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.done.Go(func() { p.connect(client) })
		}
	})
}

// down makes the server unreachable, and closes all connections.
func (p *storeProxy) down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for conn := range p.conns {
		conn.Close()
	}
}

// connect serves a connection.
func (p *storeProxy) connect(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()

	p.mu.Lock()
	up := p.listener != nil
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()

	if up {
		p.done.Go(func() {
			p.copy(server, client)
			server.Close()
		})
		p.copy(client, server)
	}

	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
}

// copy passes bytes on until a connection is closed.
func (p *storeProxy) copy(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for p.hangs {
			p.changed.Wait()
		}
		delay := p.delay
		p.mu.Unlock()
		time.Sleep(delay)
		if _, write := to.Write(buffer[:n]); err != nil || write != nil {
			return
		}
	}
}
