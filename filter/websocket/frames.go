package websocket

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net"
	"net/http"
	"time"
)

// The frames of a client are bounded as its events are. An event may have any number of them, and
// pings are none; the library that reads frames reports neither. So they are counted in the bytes
// that it reads.

const (
	// frameRate is how many small frames are taken in a second, and frameBurst how many at once.
	// Clients send an event in one frame, or in frames of some KiB. Each costs about as much as an
	// answer to a ping, 5 µs.
	frameRate  = 1000
	frameBurst = 1000
	// smallFrame is the payload from which on a frame does not count: the bytes of a message are
	// bounded by themselves.
	smallFrame = 1 << 10
)

// bucket bounds what comes in time.
type bucket struct {
	rate, burst float64 // in a second, and at once
	left        float64
	at          time.Time
}

func newBucket(rate, burst float64, now time.Time) bucket {
	return bucket{rate: rate, burst: burst, left: burst, at: now}
}

// take takes some, and returns how long the next ones have to wait.
func (b *bucket) take(n int, now time.Time) time.Duration {
	b.left = min(b.left+now.Sub(b.at).Seconds()*b.rate, b.burst) - float64(n)
	b.at = now
	if b.left >= 0 {
		return 0
	}
	return time.Duration(-b.left / b.rate * float64(time.Second))
}

// meteredUpgrade is the writer of an upgrade whose connection counts frames.
type meteredUpgrade struct {
	http.ResponseWriter
	c *connection
}

// Hijack implements [http.Hijacker].
func (u meteredUpgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}

	// Frames may have come with the upgrade: they are read again, and counted.
	early, _ := buffers.Peek(buffers.Reader.Buffered())
	metered := &meteredConn{
		Conn: conn, c: u.c, early: bytes.Clone(early), bucket: newBucket(frameRate, frameBurst, u.c.s.o.Now()),
	}
	buffers.Reader.Reset(metered)
	return metered, buffers, nil
}

// meteredConn is a connection that is read no faster than its frames may come.
type meteredConn struct {
	net.Conn
	c *connection

	early  []byte
	frames frameCounter
	bucket bucket
}

// Read implements [net.Conn]. Who waits for an answer to a ping waits with it.
func (m *meteredConn) Read(p []byte) (n int, err error) {
	if len(m.early) > 0 {
		n = copy(p, m.early)
		m.early = m.early[n:]
	} else {
		n, err = m.Conn.Read(p)
	}

	if small := m.frames.feed(p[:n]); small > 0 && !m.c.wait(m.bucket.take(small, m.c.s.o.Now())) {
		return 0, net.ErrClosed
	}
	return n, err
}

// frameCounter finds frames in the bytes of a client.
type frameCounter struct {
	// head is what there is of the head of a frame, payload what is to come of the last one's payload.
	head    [maxHead]byte
	have    int
	payload uint64
}

// maxHead is how long the head of a frame can be: two bytes, the length, and the mask.
const maxHead = 2 + 8 + 4

// feed returns how many small frames begin in p, which follows what was fed before.
func (f *frameCounter) feed(p []byte) (small int) {
	for len(p) > 0 {
		if f.payload > 0 {
			n := min(f.payload, uint64(len(p)))
			f.payload -= n
			p = p[n:]
			continue
		}

		f.head[f.have] = p[0]
		f.have++
		p = p[1:]
		if length, whole := f.length(); whole {
			f.have, f.payload = 0, length
			if length < smallFrame {
				small++
			}
		}
	}
	return small
}

// length returns the length of the payload, if the head is whole.
func (f *frameCounter) length() (length uint64, whole bool) {
	const masked = 0x80
	if f.have < 2 {
		return 0, false
	}

	length, wide := uint64(f.head[1]&^masked), 0
	switch length {
	case 126:
		wide = 2
	case 127:
		wide = 8
	}

	mask := 0
	if f.head[1]&masked != 0 {
		mask = 4
	}
	if f.have < 2+wide+mask {
		return 0, false
	}

	switch wide {
	case 2:
		length = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 8:
		length = binary.BigEndian.Uint64(f.head[2:])
	}
	return length, true
}
