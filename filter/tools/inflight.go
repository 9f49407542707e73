package tools

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

var errBusy = errors.New("the answers of servers are too much together")

// inflight counts the bytes of servers' answers that are being read, or made into
// results, in all sessions together.
type inflight struct {
	limit int64
	bytes atomic.Int64
}

// share is what one call, or one stream, holds of the bytes in flight.
type share struct {
	of *inflight

	mu      sync.Mutex
	bytes   int64
	refused bool // there was no room
	ended   bool // it gets no more
}

// take holds n bytes more, if there is room.
func (s *share) take(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return errClosed
	case s.of.bytes.Add(int64(n)) > s.of.limit:
		s.of.bytes.Add(-int64(n))
		s.refused = true
		return errBusy
	}
	s.bytes += int64(n)
	return nil
}

// move gives what s holds to another share, which may be none or have ended.
func (s *share) move(to *share) {
	s.mu.Lock()
	n := s.bytes
	s.bytes = 0
	s.mu.Unlock()
	if to != nil {
		to.mu.Lock()
		defer to.mu.Unlock()
		if !to.ended {
			to.bytes += n
			return
		}
	}
	s.of.bytes.Add(-n)
}

// end gives back all that the share holds.
func (s *share) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.move(nil)
}

// full tells whether there was no room for what came.
func (s *share) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// counted is a stream whose bytes a share holds.
type counted struct {
	io.ReadCloser
	share *share
}

// Read implements [io.Reader].
func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if e := c.share.take(n); e != nil {
		return 0, e
	}
	return n, err
}
