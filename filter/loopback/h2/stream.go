package h2

import (
	"net/http"
	"sync"
)

// streamWindow is how many bytes of an answer wait for the receiver.
const streamWindow = 32 << 10

// Request is a request with its whole body.
type Request struct {
	Method    string
	Scheme    string
	Authority string
	Path      string
	Header    http.Header
	Body      []byte
}

// Piece is the next part of an answer: its beginning, bytes of its body, its end, or
// an error, which is the last.
type Piece struct {
	Status  int
	Header  http.Header // of the beginning; not nil
	Body    []byte      // valid until the next call of Next
	Trailer http.Header // of the end
	End     bool
	Err     error
}

// Stream is a request and its answer. Its methods are safe for concurrent use, but
// only one goroutine calls Next.
type Stream struct {
	notify func() // called when there may be a next piece, also with locks held

	mu      sync.Mutex // of what is received; taken after the session's
	session *session   // nil while it waits for a connection
	closed  bool       // by the receiver

	// What has come and has not been taken.
	begun   bool // the answer's header has come
	status  int
	header  http.Header
	body    []byte
	ended   bool // nothing more comes
	trailer http.Header
	err     error

	// The window of the stream.
	taken  []byte // the piece before
	credit int    // bytes that were taken and not yet returned to the peer's window
	window int    // that the peer may still send

	// Of the session, and guarded by its lock.
	id      uint32
	rest    []byte // of the request's body
	allowed int    // bytes of it that the peer takes
	sending bool   // queued for the writer
	waiting bool   // for the answer's header
}

// Next returns the next piece; ok reports whether there is one. While there are more,
// the receiver is notified again.
func (s *Stream) Next() (p Piece, ok bool) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return p, false
	}

	// Bytes are returned to the peer in halves of the window: a frame for each piece would be
	// one for each token.
	update := 0
	switch {
	case s.header != nil:
		p.Status, p.Header = s.status, s.header
		s.header = nil
	case len(s.body) > 0:
		p.Body = s.body
		s.body, s.taken = s.taken[:0], s.body
		if s.credit += len(p.Body); s.credit >= streamWindow/2 && !s.ended {
			update, s.credit = s.credit, 0
			s.window += update
		}
	case s.ended:
		p.End, p.Trailer, p.Err = s.err == nil, s.trailer, s.err
		s.closed = true
	default:
		s.mu.Unlock()
		return p, false
	}

	// One notification can stand for several pieces.
	more, session := !s.closed && (len(s.body) > 0 || s.ended), s.session
	s.mu.Unlock()

	if update > 0 {
		session.update(s, update)
	}
	if more {
		s.notify()
	}
	return p, true
}

// Close ends the request. The peer sees that it is canceled if the answer has no end
// yet. No piece follows.
func (s *Stream) Close() {
	s.mu.Lock()
	session, open := s.session, !s.ended
	s.closed = true
	s.body, s.taken, s.header = nil, nil, nil
	s.mu.Unlock()
	if open && session != nil {
		session.cancel(s)
	}
}

// begin takes the answer's status and header.
func (s *Stream) begin(status int, h http.Header) {
	s.mu.Lock()
	s.begun, s.status, s.header = true, status, h
	s.mu.Unlock()
	s.notify()
}

// data takes bytes of the answer's body. false: more than the window allows.
func (s *Stream) data(p []byte, flow int) bool {
	s.mu.Lock()
	s.window -= flow
	fits := s.window >= 0
	// The receiver has been notified of what it has not taken yet.
	first := len(s.body) == 0 && len(p) > 0 && !s.closed
	s.credit += flow - len(p) // padding is never taken
	if !s.closed {
		s.body = append(s.body, p...)
	}
	s.mu.Unlock()
	if first {
		s.notify()
	}
	return fits
}

// end takes the end of the answer.
func (s *Stream) end(trailer http.Header, err error) {
	s.mu.Lock()
	if !s.ended {
		s.ended, s.trailer, s.err = true, trailer, err
	}
	s.mu.Unlock()
	s.notify()
}
