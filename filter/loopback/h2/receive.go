package h2

import (
	"encoding/binary"
	"fmt"
	"net/http"
)

// receive takes the complete frames of p, and returns how many bytes and how many
// frames of an answer's body these are. An error is the end of the connection.
func (s *session) receive(p []byte) (n, frames int, err error) {
	s.alive.Store(true)
	for {
		// The first bytes of an HTTP/1 listener would be a frame of an absurd size.
		if !s.greeted && len(p) >= 5 {
			if s.greeted = true; string(p[:5]) == "HTTP/" {
				return n, frames, errHTTP1
			}
		}

		f, size, err := nextFrame(p[n:])
		if err != nil || size == 0 {
			s.returnWindow()
			return n, frames, err
		}

		n += size
		if s.opened && f.kind != frameContinuation {
			return n, frames, &ConnectionError{CodeProtocol, "a frame within a block of fields"}
		}

		if f.kind == frameData {
			frames++
			err = s.data(&f)
		} else {
			err = s.control(&f)
		}
		if err != nil {
			return n, frames, err
		}
	}
}

func (s *session) returnWindow() {
	// Credit is returned in quarters: an update for each frame would double the frames that are written.
	if s.unread < connectionWindow/4 {
		return
	}
	s.mu.Lock()
	s.out = appendWord(s.out, frameWindow, 0, uint32(s.unread)) //nolint:gosec // at most a window
	s.mu.Unlock()
	s.unread = 0
	s.wake()
}

func (s *session) data(f *frame) error {
	// Padding counts for the window too, so the size is taken before it is removed.
	flow := len(f.payload)
	if err := f.unpad(); err != nil {
		return err
	}
	if s.unread += flow; s.unread > connectionWindow {
		return &ConnectionError{CodeFlowControl, "more data than the window allows"}
	}

	// Also what a canceled request still gets takes of the connection's window.
	st, err := s.find(f.stream)
	if st == nil || err != nil {
		return err
	}

	switch {
	case !st.begun:
		s.abort(st, CodeProtocol, "data before the answer's header")
	case !st.data(f.payload, flow):
		s.abort(st, CodeFlowControl, "more data than the window allows")
	case f.flags&flagEnd != 0:
		s.finish(st, nil)
	}
	return nil
}

// find returns a request that has not ended; nil: it has.
func (s *session) find(id uint32) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id%2 == 0 || id >= s.nextID {
		return nil, &ConnectionError{CodeProtocol, "a frame of a request that was not sent"}
	}
	return s.streams[id], nil
}

// finish takes the end of an answer.
func (s *session) finish(st *Stream, trailer http.Header) {
	s.mu.Lock()
	if len(st.rest) > 0 { // the peer does not want the rest of the body
		s.out = appendWord(s.out, frameReset, st.id, uint32(CodeNone))
	}
	s.forget(st)
	s.mu.Unlock()
	st.end(trailer, nil)
}

// abort ends a request because of its answer.
func (s *session) abort(st *Stream, code Code, text string) {
	s.mu.Lock()
	s.reset(st, code)
	s.mu.Unlock()
	st.end(nil, &StreamError{code, text})
}

func (s *session) control(f *frame) error {
	switch f.kind {
	case frameHeaders, frameContinuation:
		return s.headers(f)
	case frameReset:
		return s.wasReset(f)
	case frameSettings:
		return s.settings(f)
	case framePush:
		return &ConnectionError{CodeProtocol, "a pushed answer"}
	case framePing:
		return s.ping(f)
	case frameGoAway:
		return s.goAway(f)
	case frameWindow:
		return s.windowUpdate(f)
	}
	return nil
}

// answer queues a frame that answers one of the peer.
func (s *session) answer(frame []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The peer makes these frames for nothing, and could have answers pile up while it does not read.
	if s.answers += len(frame); s.answers > maxControl {
		return &ConnectionError{CodeCalm, "more control frames than can be answered"}
	}
	s.out = append(s.out, frame...)
	s.wake()
	return nil
}

func (s *session) wasReset(f *frame) error {
	if len(f.payload) != 4 {
		return &ConnectionError{CodeFrameSize, "RST_STREAM"}
	}
	st, err := s.find(f.stream)
	if st == nil || err != nil {
		return err
	}

	s.mu.Lock()
	s.forget(st)
	s.mu.Unlock()
	st.end(nil, &StreamError{Code(binary.BigEndian.Uint32(f.payload)), "the peer has ended the request"})
	return nil
}

func (s *session) ping(f *frame) error {
	if len(f.payload) != 8 || f.stream != 0 {
		return &ConnectionError{CodeFrameSize, "PING"}
	}
	if f.flags&flagEnd != 0 {
		return nil // receive has noted that the peer lives
	}
	return s.answer(append(appendHead(nil, 8, framePing, flagEnd, 0), f.payload...))
}

// goAway takes the end of the connection: the requests that the peer does not process
// end at once, and no more are sent.
func (s *session) goAway(f *frame) error {
	if len(f.payload) < 8 || f.stream != 0 {
		return &ConnectionError{CodeFrameSize, "GOAWAY"}
	}
	last, code := binary.BigEndian.Uint32(f.payload)&maxWindow, Code(binary.BigEndian.Uint32(f.payload[4:]))

	var refused []*Stream
	s.mu.Lock()
	s.retired = true
	for id, st := range s.streams {
		if id > last {
			refused = append(refused, st)
			s.forget(st)
		}
	}
	s.mu.Unlock()

	// Without the lock: the receiver may send the request again at once.
	for _, st := range refused {
		st.end(nil, &StreamError{CodeRefused, fmt.Sprintf("the peer has closed the connection with code %d", code)})
	}
	s.wake()
	return nil
}

func (s *session) windowUpdate(f *frame) error {
	if len(f.payload) != 4 {
		return &ConnectionError{CodeFrameSize, "WINDOW_UPDATE"}
	}
	n := int(binary.BigEndian.Uint32(f.payload) & maxWindow)
	s.mu.Lock()
	defer s.mu.Unlock()

	if f.stream == 0 {
		if s.allowed += n; n == 0 || s.allowed > maxWindow {
			return &ConnectionError{CodeFlowControl, "a window update"}
		}
	} else if st := s.streams[f.stream]; st != nil {
		if st.allowed += n; st.allowed > maxWindow {
			return &ConnectionError{CodeFlowControl, "a window update"}
		}
		s.resume(st)
	}

	if len(s.uploads) > 0 {
		s.wake()
	}
	return nil
}

// resume queues a stream whose body can be sent on, with the lock held.
func (s *session) resume(st *Stream) {
	if len(st.rest) > 0 && st.allowed > 0 && !st.sending {
		st.sending = true
		s.uploads = append(s.uploads, st)
	}
}

func (s *session) settings(f *frame) error {
	if f.stream != 0 || len(f.payload)%6 != 0 {
		return &ConnectionError{CodeFrameSize, "SETTINGS"}
	}
	if f.flags&flagEnd != 0 { // the peer has taken ours
		return nil
	}

	s.mu.Lock()
	for p := f.payload; len(p) > 0; p = p[6:] {
		value := int(binary.BigEndian.Uint32(p[2:]))
		switch binary.BigEndian.Uint16(p) {
		case settingTableSize:
			s.encoder.SetMaxDynamicTableSizeLimit(uint32(min(value, 4096))) //nolint:gosec // bounded
		case settingStreams:
			s.limit = value
		case settingWindow:
			if value > maxWindow {
				s.mu.Unlock()
				return &ConnectionError{CodeFlowControl, "SETTINGS"}
			}
			// The windows of streams that are open change too, and may become negative.
			for _, st := range s.streams {
				st.allowed += value - s.initial
				s.resume(st)
			}
			s.initial = value
		}
	}
	s.mu.Unlock()

	s.ready()
	return s.answer(appendHead(nil, 0, frameSettings, flagEnd, 0))
}
