package extproc

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// budget counts the bytes that all requests hold: their bodies, and the stored
// items that they bring in.
type budget struct {
	limit int64
	used  *atomic.Int64
}

// share is what one request has taken of the budget. It is safe for concurrent use:
// endpoints and jobs take of it beside the exchange.
type share struct {
	budget *budget

	mu     sync.Mutex
	bytes  int64
	closed bool
}

// take takes n bytes, and reports whether there is room.
func (s *share) take(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.budget.used.Add(n) > s.budget.limit {
		s.budget.used.Add(-n)
		return false
	}
	s.bytes += n
	return true
}

// reserve is take with the error that the client gets.
func (s *share) reserve(n int) *apierror.Error {
	if !s.take(int64(n)) {
		return overloaded()
	}
	return nil
}

// release returns what was taken. More can be taken after it.
func (s *share) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget.used.Add(-s.bytes)
	s.bytes = 0
}

// close returns what was taken, for good.
func (s *share) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.release()
}

// move returns a share with what was taken, and leaves an empty one.
func (s *share) move() *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := &share{budget: s.budget, bytes: s.bytes}
	s.bytes = 0
	return moved
}

func overloaded() *apierror.Error {
	err := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "Too many requests are being received at once. Try again shortly.")
	err.RetryAfter = time.Second
	return err
}
