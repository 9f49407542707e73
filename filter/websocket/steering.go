package websocket

import (
	"sync"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
)

// steering is what other goroutines say to a response while it is made: the reader of the connection
// brings input and cancellations, the exchange says how it is interrupted.
//
//	how it stands                             input (keep)     to stop it (stop)
//	the exchange has not the whole request    waits            is noted: handOver interrupts
//	the exchange has it                       waits            interrupts the exchange
//	closed: it has ended, input waits         is refused       the exchange has ended; no successor is made
//	closed: it has ended                      is refused       is refused
//	followed: its successor is made           is refused       goes to the successor
//
// A response that was canceled takes no input, and has no successor, however it stands.
type steering struct {
	spawn func(work func()) // begins a goroutine

	// mu protects what follows.
	mu sync.Mutex
	// interrupt is the exchange's, once it has been asked. handed says that the exchange has the whole
	// request; early is an interruption that came before.
	interrupt func(why api.Interruption)
	handed    bool
	early     api.Interruption
	// unwanted says that the client has canceled the response.
	unwanted bool
	// waiting is the input that waits for the end; closed says that no more is taken. Once it is closed,
	// only the goroutine of the response touches waiting. next is the successor that is made of it.
	waiting []steer
	closed  bool
	next    *response
}

// begin notes how the exchange is interrupted.
func (s *steering) begin(interrupt func(why api.Interruption)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt = interrupt
}

// handOver says that the exchange has the whole request.
func (s *steering) handOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handed = true; s.early != "" {
		s.interruptLocked(s.early)
	}
}

// keep lets input wait for the end of the response.
func (s *steering) keep(input steer) (code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed, s.unwanted:
		return responseEnded()
	case len(s.waiting) >= maxSteers:
		return "too_many_pending_steers", "Too much input waits for the response."
	}
	s.waiting = append(s.waiting, input)
	return "", ""
}

// stop has the response end with what there is of it, and reports whether that can be: of one that
// has ended, only its successor can be stopped. It does not wait.
func (s *steering) stop(why api.Interruption) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.next != nil:
		return s.next.steering.stop(why)
	case s.closed && len(s.waiting) == 0:
		return false
	}

	s.unwanted = s.unwanted || why == canceled
	// The exchange would answer before it has been asked. It is told when it has the whole request.
	if !s.handed {
		s.early = why
		return true
	}
	s.interruptLocked(why)
	return true
}

// interruptLocked interrupts the exchange, on another goroutine: it may be waiting for the client
// to read, whose events must be read meanwhile.
func (s *steering) interruptLocked(why api.Interruption) {
	interrupt := s.interrupt
	s.spawn(func() { interrupt(why) })
}

// waits reports whether input waits for the end of the response.
func (s *steering) waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

// canceled reports whether the client has canceled the response.
func (s *steering) canceled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unwanted
}

// close has the response take no more input, and reports whether it has taken some.
func (s *steering) close() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return len(s.waiting) > 0
}

// followedBy notes the successor, to which what stops the response goes from now on. It reports
// whether there is to be one: the client may have canceled the response when it had its end.
func (s *steering) followedBy(successor *response) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unwanted {
		s.next = successor
	}
	return !s.unwanted
}
