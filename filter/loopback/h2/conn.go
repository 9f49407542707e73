package h2

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	readBytes  = 64 << 10
	writeBytes = 64 << 10
	// checkInterval is how long a peer may be silent before it is asked for a sign of
	// life, and how long it has for that.
	checkInterval = 30 * time.Second
	// minFrames is how many frames of answers must come in the time between two ticks
	// for the connection to be read at ticks.
	minFrames = 2
)

// socket is what a connection reads and writes.
type socket interface {
	poll(p []byte) (int, error) // reads what is there; 0: nothing
	wait() error                // for bytes
	Write(p []byte) (int, error)
	stop()
	close()
}

// plain is a connection whose reads block.
type plain struct{ net.Conn }

func (c plain) poll(p []byte) (int, error) { return c.Read(p) }
func (plain) wait() error                  { return nil }
func (c plain) stop()                      { _ = c.Close() }
func (plain) close()                       {}

// conn is a connection.
type conn struct {
	*session

	socket socket
	tick   time.Duration
	due    chan struct{} // there is something to be written
	opened chan struct{} // the peer has said what it takes

	// The end.
	gone  chan struct{}
	once  sync.Once
	cause error // set when gone is closed
}

func newConn(c net.Conn, tick time.Duration, ended func(*conn)) (*conn, error) {
	k := &conn{tick: tick, due: make(chan struct{}, 1), opened: make(chan struct{}), gone: make(chan struct{})}
	k.session = newSession(func() {
		select {
		case k.due <- struct{}{}:
		default:
		}
	}, func() { close(k.opened) })

	q, ok, err := newQuiet(c)
	switch {
	case err != nil:
		_ = c.Close()
		return nil, err
	case ok:
		k.socket = q
	default:
		k.socket = plain{c}
	}

	// Either goroutine ends the other one. The socket is closed when both have ended, since its
	// descriptor may be another connection's after that.
	k.wake() // the preface
	go func() {
		read := make(chan struct{})
		go func() {
			defer close(read)
			k.end(k.read())
		}()
		k.end(k.write())
		<-read
		k.socket.close()
		ended(k)
	}()
	return k, nil
}

// await waits until the connection takes requests.
func (k *conn) await(ctx context.Context) error {
	select {
	case <-k.opened:
		return nil
	case <-k.gone:
		return k.cause
	case <-ctx.Done():
		// A connection that does not answer in time would hold up all requests that are given to it.
		k.end(errDead)
		return errDead
	}
}

func (k *conn) end(err error) {
	// Requests fail before gone is closed, so nobody who waits for that finds one that still waits.
	k.once.Do(func() {
		k.fail(err)
		k.cause = err
		close(k.gone)
		k.socket.stop()
	})
}

func (k *conn) write() error {
	var buf []byte
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	for {
		select {
		case <-k.due:
		case <-check.C:
			if err := k.check(); err != nil {
				return err
			}
		case <-k.gone:
			return errGone
		}

		// Two buffers take turns: the session fills one while the other is written.
		for {
			out := k.take(buf, writeBytes)
			if len(out) == 0 {
				buf = out
				break
			}
			if _, err := k.socket.Write(out); err != nil {
				return err
			}
			if buf = out; cap(buf) > 2*writeBytes { // of a large header, which is rare
				buf = nil
			}
		}

		if k.idle() {
			return errGone
		}
	}
}

func (k *conn) read() error {
	var (
		buf  = make([]byte, readBytes)
		have int
		m    = moderation{tick: k.tick}
	)
	for {
		n, err := k.socket.poll(buf[have:])
		if err != nil {
			return err
		}
		if n > 0 {
			have += n
			used, frames, err := k.receive(buf[:have])
			if err != nil {
				return err
			}
			full := have == len(buf)
			have = copy(buf, buf[used:have])
			m.frames += frames
			if full { // there may be more
				continue
			}
		}

		// A busy connection sleeps until the next tick, whatever arrives. Another one waits for
		// bytes: at ticks, it has not looked whether there are any since the last read.
		if wait := m.next(time.Now()); wait > 0 {
			time.Sleep(wait)
		} else if n == 0 || k.tick > 0 {
			if err := k.socket.wait(); err != nil {
				return err
			}
		}
	}
}

// moderation says when a connection is read next.
type moderation struct {
	tick   time.Duration
	frames int // since the last window began
	since  time.Time
	busy   bool
}

// next returns how long to wait before the next read; 0: until bytes arrive. All
// connections have the same ticks.
func (m *moderation) next(now time.Time) time.Duration {
	if m.tick == 0 {
		return 0
	}
	if window := now.Sub(m.since); window >= 4*m.tick {
		m.busy = m.frames >= minFrames*int(window/m.tick)
		m.frames, m.since = 0, now
	}
	if !m.busy {
		return 0
	}
	return m.tick - time.Duration(now.UnixNano())%m.tick
}
