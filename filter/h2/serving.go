package h2

import (
	"encoding/binary"
	"slices"
	"sync"

	"golang.org/x/net/http2/hpack"
)

// serving is a server's side of a connection, without its socket. It is safe for
// concurrent use, but one goroutine calls receive.
type serving struct {
	header string // of a request that names its reply
	claim  func(key string) *Reply
	wake   func()

	mu      sync.Mutex
	replies map[uint32]*Reply
	blocked []*Reply // that wait for the connection's window
	out     []byte   // frames to be written
	answers int      // bytes of out that answer frames of the peer
	window  int      // of the connection: bytes that the peer takes
	ended   bool

	// Of the goroutine that calls receive.
	greeted bool
	initial int    // window of a new stream
	lastID  uint32 // of a request
	block   block
	decoder *hpack.Decoder
	key     string // that the block names
	size    int    // of the block's fields
}

func newServing(header string, claim func(string) *Reply, wake func()) *serving {
	s := &serving{header: header, claim: claim, wake: wake, replies: map[uint32]*Reply{}, window: defaultWindow, initial: defaultWindow}
	s.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		s.size += len(f.Name) + len(f.Value) + 32
		if f.Name == header {
			s.key = f.Value
		}
	})
	s.decoder.SetMaxStringLength(headerLimit)
	s.out = appendHead(s.out, settingSize, frameSettings, 0, 0)
	s.out = appendSetting(s.out, settingHeaderList, headerLimit)
	return s
}

// write sends what waits of a reply and then p, as far as the windows allow. The rest
// waits. The reply's lock is held.
func (s *serving) write(r *Reply, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.head) > 0 {
		s.out = appendFields(s.out, r.id, r.head, false)
		r.head = nil
	}
	if len(r.rest) > 0 {
		r.rest = r.rest[s.data(r, r.rest):]
	}
	if len(r.rest) == 0 {
		p = p[s.data(r, p):]
	}
	if r.rest = append(r.rest, p...); len(r.rest) == 0 && r.trailer != nil {
		s.out = appendFields(s.out, r.id, r.trailer, true)
		delete(s.replies, r.id)
		r.drop()
	}
	if len(r.rest) > 0 && s.window <= 0 && !r.queued {
		r.queued = true
		s.blocked = append(s.blocked, r)
	}
	s.wake()
}

// data appends as much of p as the windows allow, and returns how much that is, with
// the locks held.
func (s *serving) data(r *Reply, p []byte) (sent int) {
	for sent < len(p) {
		n := min(len(p)-sent, r.window, s.window, maxFrame)
		if n <= 0 {
			break
		}
		s.out = append(appendHead(s.out, n, frameData, 0, r.id), p[sent:sent+n]...)
		r.window -= n
		s.window -= n
		sent += n
	}
	return sent
}

// add adds a reply whose request has come, with its lock held. false: the connection has
// ended.
func (s *serving) add(r *Reply) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return false
	case r.over:
		s.out = appendWord(s.out, frameReset, r.id, uint32(CodeInternal))
		s.wake()
	default:
		s.replies[r.id] = r
	}
	return true
}

// reset breaks a reply off.
func (s *serving) reset(id uint32, code Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forget(id) != nil {
		s.out = appendWord(s.out, frameReset, id, uint32(code))
		s.wake()
	}
}

// forget removes a reply that has no end, with the lock held. nil: there is none.
func (s *serving) forget(id uint32) *Reply {
	r := s.replies[id]
	delete(s.replies, id)
	if r != nil && r.queued {
		s.blocked = slices.DeleteFunc(s.blocked, func(q *Reply) bool { return q == r })
	}
	return r
}

// take implements protocol.
func (s *serving) take(p []byte, _ int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.out
	s.out, s.answers = p[:0], 0
	return out
}

// check implements protocol. The peer asks for signs of life.
func (s *serving) check() error { return nil }

// idle implements protocol. The peer closes connections.
func (s *serving) idle() bool { return false }

// fail implements protocol.
func (s *serving) fail(error) {
	s.mu.Lock()
	s.ended = true
	replies := s.replies
	s.replies, s.blocked = nil, nil
	s.mu.Unlock()
	for _, r := range replies {
		r.lost()
	}
}

// receive implements protocol.
func (s *serving) receive(p []byte) (n, frames int, err error) {
	if !s.greeted {
		if len(p) < len(preface) {
			return 0, 0, nil
		}
		if string(p[:len(preface)]) != preface {
			return 0, 0, &ConnectionError{CodeProtocol, "the connection does not begin as HTTP/2 does"}
		}
		s.greeted, n = true, len(preface)
	}
	for {
		f, size, err := nextFrame(p[n:])
		if err != nil || size == 0 {
			return n, 0, err
		}
		n += size
		if s.block.open && f.kind != frameContinuation {
			return n, 0, &ConnectionError{CodeProtocol, "a frame within a block of fields"}
		}
		if err := s.frame(&f); err != nil {
			return n, 0, err
		}
	}
}

// frame takes a frame. Bodies of requests, and frames of other kinds, are dropped.
func (s *serving) frame(f *frame) error {
	switch f.kind {
	case frameHeaders, frameContinuation:
		return s.headers(f)
	case frameReset:
		return s.wasReset(f)
	case frameSettings:
		return s.settings(f)
	case framePush:
		return &ConnectionError{CodeProtocol, "a pushed request"}
	case framePing:
		return s.ping(f)
	case frameWindow:
		return s.windowUpdate(f)
	}
	return nil
}

// headers takes a part of the fields of a request.
func (s *serving) headers(f *frame) error {
	whole, err := s.block.add(f)
	if !whole || err != nil {
		return err
	}
	s.key, s.size = "", 0
	if err := s.block.decode(s.decoder); err != nil {
		return err
	}
	id := s.block.stream
	switch {
	case s.size > headerLimit:
		return &ConnectionError{CodeCalm, "a block of fields is too large"}
	case id%2 == 0:
		return &ConnectionError{CodeProtocol, "a request with an even number"}
	case id <= s.lastID:
		return nil // trailers
	}
	s.lastID = id
	if r := s.claim(s.key); r != nil {
		r.attach(s, id, s.initial)
		return nil
	}
	return s.answer(appendFields(nil, id, appendText([]byte{statusName}, "503"), true))
}

func (s *serving) wasReset(f *frame) error {
	if len(f.payload) != 4 {
		return &ConnectionError{CodeFrameSize, "RST_STREAM"}
	}
	s.mu.Lock()
	r := s.forget(f.stream)
	s.mu.Unlock()
	if r != nil {
		r.lost()
	}
	return nil
}

// answer queues a frame that answers one of the peer.
func (s *serving) answer(frame []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers += len(frame); s.answers > maxControl {
		return &ConnectionError{CodeCalm, "more control frames than can be answered"}
	}
	s.out = append(s.out, frame...)
	s.wake()
	return nil
}

func (s *serving) ping(f *frame) error {
	if len(f.payload) != 8 || f.stream != 0 {
		return &ConnectionError{CodeFrameSize, "PING"}
	}
	if f.flags&flagEnd != 0 {
		return nil
	}
	return s.answer(append(appendHead(nil, 8, framePing, flagEnd, 0), f.payload...))
}

func (s *serving) settings(f *frame) error {
	if f.stream != 0 || len(f.payload)%settingSize != 0 {
		return &ConnectionError{CodeFrameSize, "SETTINGS"}
	}
	if f.flags&flagEnd != 0 {
		return nil
	}
	for p := f.payload; len(p) > 0; p = p[settingSize:] {
		value := int(binary.BigEndian.Uint32(p[2:]))
		if binary.BigEndian.Uint16(p) != settingWindow {
			continue
		}
		if value > maxWindow {
			return &ConnectionError{CodeFlowControl, "SETTINGS"}
		}
		change := value - s.initial
		s.initial = value
		for _, r := range s.all() {
			if err := r.update(change); err != nil {
				return err
			}
		}
	}
	return s.answer(appendHead(nil, 0, frameSettings, flagEnd, 0))
}

// all returns the replies that have not ended.
func (s *serving) all() []*Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Reply, 0, len(s.replies))
	for _, r := range s.replies {
		all = append(all, r)
	}
	return all
}

func (s *serving) windowUpdate(f *frame) error {
	if len(f.payload) != 4 {
		return &ConnectionError{CodeFrameSize, "WINDOW_UPDATE"}
	}
	n := int(binary.BigEndian.Uint32(f.payload) & maxWindow)
	if f.stream == 0 {
		return s.connectionWindow(n)
	}
	s.mu.Lock()
	r := s.replies[f.stream]
	s.mu.Unlock()
	if r == nil {
		return nil // it has ended
	}
	return r.update(n)
}

// connectionWindow takes an update of the connection's window. The replies that wait
// for it take turns.
func (s *serving) connectionWindow(n int) error {
	s.mu.Lock()
	s.window += n
	tooLarge := s.window > maxWindow
	s.mu.Unlock()
	if tooLarge || n == 0 {
		return &ConnectionError{CodeFlowControl, "a window update"}
	}
	for r := s.next(); r != nil; r = s.next() {
		_ = r.update(0) // its window does not change
	}
	return nil
}

// next takes the first of the replies that wait for the connection's window off their
// queue; nil: the window is closed again, or none waits.
func (s *serving) next() *Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.window <= 0 || len(s.blocked) == 0 {
		return nil
	}
	r := s.blocked[0]
	s.blocked = s.blocked[1:]
	r.queued = false
	return r
}
