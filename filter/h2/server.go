package h2

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Server answers requests with replies that are written elsewhere in this process. A
// request names its reply by a key in a header; its other fields and its body are not
// read. It is for peers that are trusted, such as Envoy.
type Server struct {
	header string
	newKey func() string

	mu      sync.Mutex
	waiting map[string]*Reply // by key, until the request comes
	conns   map[*serving]*conn
	running sync.WaitGroup
	closed  bool
}

// NewServer makes a server. header is the request header with the key of a reply, in
// lower case. newKey makes keys, which nobody can guess.
func NewServer(header string, newKey func() string) *Server {
	return &Server{header: header, newKey: newKey, waiting: map[string]*Reply{}, conns: map[*serving]*conn{}}
}

// Prepare makes a reply, which is to be closed. bell is called when it is no longer
// [Reply.Behind]; it must not wait.
func (s *Server) Prepare(bell func()) *Reply {
	r := &Reply{server: s, key: s.newKey(), bell: bell}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[r.key] = r
	return r
}

// claim returns the reply with a key, which no other request gets; nil: there is none.
func (s *Server) claim(key string) *Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.waiting[key]
	delete(s.waiting, key)
	return r
}

func (s *Server) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, key)
}

// ErrServerClosed is the error of [Server.Serve] after [Server.Close].
var ErrServerClosed = errors.New("HTTP/2: the server is closed")

// Serve takes a connection over, of which first has been read, and serves it until it
// ends. It does not wait for that.
func (s *Server) Serve(c net.Conn, first []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.Join(ErrServerClosed, c.Close())
	}
	var side *serving
	k, err := start(c, 0, first, func(wake func()) protocol {
		side = newServing(s.header, s.claim, wake)
		return side
	}, func() { s.ended(side) })
	if err != nil {
		return err
	}
	s.conns[side] = k
	s.running.Add(1)
	return nil
}

func (s *Server) ended(side *serving) {
	s.mu.Lock()
	delete(s.conns, side)
	s.mu.Unlock()
	s.running.Done()
}

// Close ends all connections, and waits until they have ended.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, k := range s.conns {
		go k.end(errGone)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// peekTimeout is how long a peer may take for the beginning of a connection.
const peekTimeout = 10 * time.Second

// Peek reads the beginning of a connection of HTTP/2: the preface and the first frame,
// the peer's settings. marked reports whether these have a setting, with any value. The
// connection goes on behind first.
func Peek(c net.Conn, setting uint16) (first []byte, marked bool, err error) {
	if err := c.SetReadDeadline(time.Now().Add(peekTimeout)); err != nil {
		return nil, false, err
	}
	first = make([]byte, len(preface)+frameHead, 128)
	if _, err := io.ReadFull(c, first); err != nil {
		return nil, false, err
	}
	head := first[len(preface):]
	size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	if string(first[:len(preface)]) == preface && head[3] == frameSettings && size <= maxFrame {
		at := len(first)
		first = append(first, make([]byte, size)...)
		if _, err := io.ReadFull(c, first[at:]); err != nil {
			return nil, false, err
		}
		marked = hasSetting(first[at:], setting)
	}
	return first, marked, c.SetReadDeadline(time.Time{})
}

func hasSetting(p []byte, setting uint16) bool {
	for ; len(p) >= settingSize; p = p[settingSize:] {
		if uint16(p[0])<<8|uint16(p[1]) == setting {
			return true
		}
	}
	return false
}
