package h2

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2/hpack"
)

const (
	// connectionWindow is how much all answers of a connection may have under way. The
	// bytes are returned when they are read: what a receiver does not take is bounded
	// by the window of its stream.
	connectionWindow = 8 << 20
	// maxStreams is how many requests a connection carries at a time.
	maxStreams = 4096
	// lastID is the last id of a request on a connection.
	lastID = 1<<31 - 1<<10
	// Envoy closes a connection of which 250 requests were canceled before they had an
	// answer, in their first second (overload.premature_reset_total_stream_count). After
	// maxCanceled a connection gets no more requests, and it never has more that were
	// canceled or wait for an answer than maxWaiting.
	maxCanceled = 100
	maxWaiting  = 240
	// maxChecks is after how many checks a connection gets no more requests, so that
	// its successors reach the Envoys that there are then.
	maxChecks = 10
	// maxControl bounds the bytes of frames that answer those of the peer and wait to
	// be written.
	maxControl = 64 << 10
)

// errGone is the error of the requests that were on a connection that has ended.
var errGone = errors.New("the connection to Envoy's loopback listener has ended")

// errFull is the error of a request for which all connections have as many as they take.
var errFull = errors.New("the connections to Envoy's loopback listener take no more requests")

// errDead is the error of the requests on a connection whose peer does not answer.
var errDead = errors.New("the loopback listener does not answer")

// errHTTP1 is the error for a listener that does not speak HTTP/2.
var errHTTP1 = errors.New("the loopback listener answers in HTTP/1: set its codec_type to AUTO or HTTP2")

// inbound is what only the receiving goroutine of a session uses.
type inbound struct {
	decoder *hpack.Decoder
	fields  fields
	block   []byte // of fields that are not complete
	opened  bool   // in a block: its stream and flags are below
	inBlock frame
	greeted bool // the first bytes have come
	unread  int  // bytes of the connection's window that were received
}

// session is a connection without its socket: bytes in, bytes out. It is safe for
// concurrent use, but one goroutine calls receive.
type session struct {
	wake  func() // there is something to be written
	ready func() // the peer has said what it takes; called once

	mu sync.Mutex // of all below, except inbound and alive

	// The requests.
	streams  map[uint32]*Stream
	nextID   uint32
	waiting  int // without an answer
	canceled int

	// What the peer takes.
	limit   int // requests at a time
	initial int // window of a new stream
	allowed int // bytes of bodies

	// What is to be written.
	out     []byte    // frames
	answers int       // bytes of out that answer frames of the peer
	uploads []*Stream // with bytes of a body to be sent
	encoder *hpack.Encoder
	encoded strings.Builder

	// The end.
	retired bool // gets no more requests
	ended   error

	life
	inbound
}

// life is what is known of whether the peer lives, and how old the connection is.
type life struct {
	checks int
	asked  bool        // for a sign of life
	alive  atomic.Bool // something has come since the last check
}

func newSession(wake, ready func()) *session {
	s := &session{
		wake:    wake,
		ready:   sync.OnceFunc(ready),
		streams: map[uint32]*Stream{},
		nextID:  1,
		// RFC 9113 asks for no less; it holds until the peer has said its own.
		limit:   100,
		initial: defaultWindow,
		allowed: defaultWindow,
	}
	s.encoder = hpack.NewEncoder(&s.encoded)
	s.decoder = hpack.NewDecoder(4096, s.fields.add)
	s.decoder.SetMaxStringLength(headerLimit)
	s.out = append(s.out, preface...)
	s.out = appendHead(s.out, 18, frameSettings, 0, 0)
	s.out = appendSetting(s.out, settingPush, 0)
	s.out = appendSetting(s.out, settingWindow, streamWindow)
	s.out = appendSetting(s.out, settingHeaderList, headerLimit)
	s.out = appendWord(s.out, frameWindow, 0, connectionWindow-defaultWindow)
	return s
}

// send begins a request. It reports whether the connection takes it.
func (s *session) send(st *Stream, r *Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.takes() {
		return false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	// The caller has given up in the meantime: there is nothing to send,
	// and no other connection is to be tried.
	if st.closed {
		return true
	}

	st.id, st.session, st.window = s.nextID, s, streamWindow
	st.rest, st.allowed = r.Body, s.initial
	s.streams[st.id] = st
	st.waiting = true
	s.waiting++
	if s.nextID += 2; s.nextID > lastID {
		s.retired = true
	}

	// The table of the encoder is part of the connection: fields are encoded in the order in
	// which they are sent, with the lock held.
	s.encoded.Reset()
	s.encode(r)
	s.out = appendFields(s.out, st.id, []byte(s.encoded.String()), len(r.Body) == 0)
	if len(r.Body) > 0 {
		st.sending = true
		s.uploads = append(s.uploads, st)
	}

	s.wake()
	return true
}

func (s *session) encode(r *Request) {
	put := func(name, value string, secret bool) {
		_ = s.encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: secret})
	}
	put(":method", r.Method, false)
	put(":scheme", r.Scheme, false)
	put(":authority", r.Authority, false)
	put(":path", r.Path, false)

	// What differs from call to call is not worth a place in the table: as a field that is
	// never indexed it leaves those that all calls have.
	if len(r.Body) > 0 || r.Method != http.MethodGet {
		put("content-length", strconv.Itoa(len(r.Body)), true)
	}
	for name, values := range r.Header {
		name = strings.ToLower(name)

		// Those of one connection of HTTP/1, which HTTP/2 does not have.
		switch name {
		case "host", "connection", "content-length", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection":
			continue
		}

		for _, v := range values {
			if name == "user-agent" && v == "" || name == "te" && v != "trailers" {
				continue
			}
			put(name, v, name != "content-type")
		}
	}
}

// take returns what is to be written, at most about limit bytes of bodies. The buffer
// p becomes the next one.
func (s *session) take(p []byte, limit int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()

	// Bodies take turns, a frame each: a long prompt does not hold up short ones.
	for len(s.uploads) > 0 && s.allowed > 0 && len(s.out) < limit {
		st := s.uploads[0]
		s.uploads = s.uploads[1:]
		n := min(len(st.rest), st.allowed, s.allowed, maxFrame)
		if st.sending = n > 0 && n < len(st.rest); n <= 0 {
			// Until the peer opens its window, or it has ended.
			continue
		}

		flags := byte(0)
		if n == len(st.rest) {
			flags = flagEnd
		}
		s.out = append(appendHead(s.out, n, frameData, flags, st.id), st.rest[:n]...)
		st.allowed -= n
		s.allowed -= n
		if st.rest = st.rest[n:]; len(st.rest) == 0 {
			st.rest = nil
		} else {
			s.uploads = append(s.uploads, st)
		}
	}

	out := s.out
	s.out, s.answers = p[:0], 0
	return out
}

// update returns bytes to a stream's window.
func (s *session) update(st *Stream, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.id] == st {
		s.out = appendWord(s.out, frameWindow, st.id, uint32(n)) //nolint:gosec // at most a window
		s.wake()
	}
}

// cancel ends a stream.
func (s *session) cancel(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[st.id] == st {
		s.reset(st, CodeCancel)
	}
}

// reset ends a stream, with the lock held.
func (s *session) reset(st *Stream, code Code) {
	s.out = appendWord(s.out, frameReset, st.id, uint32(code))
	s.canceled++
	if s.canceled >= maxCanceled {
		s.retired = true
	}
	s.forget(st)
	s.wake()
}

// forget ends the session's part in a stream, with the lock held.
func (s *session) forget(st *Stream) {
	delete(s.streams, st.id)
	s.answered(st)
	st.rest = nil
	if s.retired && len(s.streams) == 0 {
		// The connection is not needed any more.
		s.wake()
	}
}

// answered notes that a stream has an answer, or needs none, with the lock held.
func (s *session) answered(st *Stream) {
	if st.waiting {
		st.waiting = false
		s.waiting--
	}
}

// takes reports whether the connection takes another request, with the lock held.
func (s *session) takes() bool {
	return !s.retired && s.ended == nil && len(s.streams) < min(s.limit, maxStreams) &&
		s.canceled+s.waiting < maxWaiting
}

// idle reports whether the connection is not needed any more.
func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended != nil || s.retired && len(s.streams) == 0
}

// load is how many requests are on the connection; ok reports whether it takes more.
func (s *session) load() (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams), s.takes()
}

// check is called at intervals. It asks a peer from which nothing has come since the
// last one for a sign of life, and returns an error if it gave none. It retires a
// connection after maxChecks.
func (s *session) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks++
	if s.checks >= maxChecks {
		s.retired = true
	}

	switch {
	// Without requests nobody waits for the peer, and a ping would be all that keeps it busy.
	case s.alive.Swap(false) || len(s.streams) == 0:
		s.asked = false
	case s.asked:
		return errDead
	default:
		s.asked = true
		s.out = append(appendHead(s.out, 8, framePing, 0, 0), 0, 0, 0, 0, 0, 0, 0, 0)
		s.wake()
	}
	return nil
}

// retire lets the connection end with its last request.
func (s *session) retire() {
	s.mu.Lock()
	s.retired = true
	s.mu.Unlock()
	s.wake()
}

// fail ends all requests of the connection.
func (s *session) fail(err error) {
	s.mu.Lock()
	if s.ended == nil {
		s.ended = err
		var bad *ConnectionError
		if errors.As(err, &bad) {
			s.out = appendGoAway(s.out, bad.Code)
		}
	}
	streams := s.streams

	s.streams = map[uint32]*Stream{}
	s.uploads = nil
	for _, st := range streams {
		st.rest = nil
	}
	s.mu.Unlock()

	for _, st := range streams {
		st.end(nil, err)
	}
	s.wake()
}
