package tools

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

var errBusy = errors.New("the answers of all servers exceed the limit")

// inflight counts the bytes of servers' answers that are being read or turned into
// results, over all sessions.
type inflight struct {
	limit int64
	bytes atomic.Int64
}

// share is a memory share: the bytes in flight that one request or one stream holds.
type share struct {
	total *inflight

	mu    sync.Mutex
	bytes int64
	// Take has failed for lack of room.
	exhausted bool
	// The share is closed: take fails.
	ended bool
}

// take adds n bytes to the share. It returns errBusy if the limit is reached and
// errClosed if the share has ended.
func (s *share) take(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return errClosed
	case s.total.bytes.Add(int64(n)) > s.total.limit:
		s.total.bytes.Add(-int64(n))
		s.exhausted = true
		return errBusy
	}
	s.bytes += int64(n)
	return nil
}

// move transfers the bytes of s to another share. If that one is nil or has ended,
// they are released.
func (s *share) move(to *share) {
	s.mu.Lock()
	n := s.bytes
	s.bytes = 0
	s.mu.Unlock()

	// The locks are taken one after the other: two shares that move to each other must not wait for
	// each other.
	if to != nil {
		to.mu.Lock()
		defer to.mu.Unlock()
		if !to.ended {
			to.bytes += n
			return
		}
	}
	s.total.bytes.Add(-n)
}

// end releases the bytes of the share and closes it.
func (s *share) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.move(nil)
}

// full reports whether take has failed for lack of room.
func (s *share) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exhausted
}

// counted is a stream whose bytes are added to a share.
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
