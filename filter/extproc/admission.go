package extproc

import (
	"net/http"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const (
	// smallBytes is what a request may hold to count as small. A part of the budget
	// is for small requests only: one eighth.
	smallBytes = 64 << 10
	smallPart  = 8
	// leastRate is how fast a body has to arrive, in bytes a second, and slack is how
	// far it may fall behind, before it counts as stalled.
	leastRate = 64 << 10
	slack     = 5 * time.Second
)

// byteBudget bounds the bytes that all requests hold: their bodies, and the stored items
// that they bring in. Three rules keep requests from shutting each other out:
//
//   - A part of it is for small requests only.
//   - A party, such as a tenant, can take half of it.
//   - Where there is no room, bodies that are still arriving make it: stalled ones for
//     every other request, the largest ones for smaller ones. That of a party counts
//     as large as everything that the party holds.
type byteBudget struct {
	limit int64
	small int64 // of limit, for small requests only
	party int64 // that one party can take
	now   func() time.Time
	held  *holdings
}

// newBudget is the budget of a configuration. What is held counts on in it.
func newBudget(l *config.Limits, now func() time.Time, held *holdings) byteBudget {
	one := min(l.MaxInflightBytes, l.MaxBodyBytes+int64(l.MaxConversationBytes)) // every request that is allowed fits
	return byteBudget{
		limit: l.MaxInflightBytes,
		small: min(l.MaxInflightBytes/smallPart, l.MaxInflightBytes-one),
		party: max(l.MaxInflightBytes/2, one),
		now:   now, held: held,
	}
}

// holdings is what the requests of all configurations hold.
type holdings struct {
	mu       sync.Mutex
	bytes    int64
	parties  map[string]int64
	arriving map[*share]struct{} // requests whose bodies are still arriving
}

func newHoldings() *holdings {
	return &holdings{parties: map[string]int64{}, arriving: map[*share]struct{}{}}
}

// share is what one request has taken of the budget. It is safe for concurrent use:
// endpoints and jobs take of it beside the exchange. The lock of the holdings guards
// it.
type share struct {
	budget *byteBudget
	party  string                // whose it is; "": of a party of its own
	drop   func(*apierror.Error) // gives up the request, whose body makes room
	bytes  int64
	whole  bool            // the body is complete
	behind time.Time       // when the body counts as stalled, unless more arrives
	closed *apierror.Error // why nothing more can be taken; nil: it can
}

// open returns the share of a request whose body begins to arrive.
func (b *byteBudget) open(party string, drop func(*apierror.Error)) *share {
	return &share{budget: b, party: party, drop: drop, behind: b.now().Add(slack)}
}

// take takes n bytes, for which other requests may be given up. The error is for the
// client.
func (s *share) take(n int64) *apierror.Error {
	dropped, err := s.takeLocked(n)
	for _, d := range dropped {
		d.drop(d.closed)
	}
	return err
}

// arrive is take for a piece of the body.
func (s *share) arrive(n int64) *apierror.Error {
	h, now := s.budget.held, s.budget.now()
	h.mu.Lock()
	if now.After(s.behind) {
		s.behind = now
	}
	s.behind = s.behind.Add(time.Duration(n) * time.Second / leastRate)
	if most := now.Add(slack); s.behind.After(most) {
		s.behind = most
	}
	if s.closed == nil && !s.whole {
		h.arriving[s] = struct{}{}
	}
	h.mu.Unlock()
	return s.take(n)
}

func (s *share) takeLocked(n int64) (dropped []*share, _ *apierror.Error) {
	b, h := s.budget, s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := b.limit
	if s.bytes+n > smallBytes {
		limit -= b.small
	}
	if s.closed != nil {
		return nil, s.closed
	}
	now := b.now()
	var places []place // of the victims
	for full, party := h.bytes+n > limit, h.over(s, n); full || party; full, party = h.bytes+n > limit, h.over(s, n) {
		victim, err := h.victim(s, n, now, party)
		if victim == nil {
			h.restore(places)
			if party {
				return nil, tooMuch()
			}
			return nil, overloaded()
		}
		places = append(places, place{victim, victim.bytes})
		h.add(victim, -victim.bytes)
		victim.closed = err
		delete(h.arriving, victim)
		dropped = append(dropped, victim)
	}
	h.add(s, n)
	return dropped, nil
}

// place is what a victim has held.
type place struct {
	victim *share
	bytes  int64
}

// restore gives victims what they held: they would not make enough room.
func (h *holdings) restore(places []place) {
	for _, p := range places {
		p.victim.closed = nil
		h.arriving[p.victim] = struct{}{}
		h.add(p.victim, p.bytes)
	}
}

// over reports whether the party of a share would hold more than it may.
func (h *holdings) over(s *share, n int64) bool {
	return s.party != "" && h.parties[s.party]+n > s.budget.party
}

// victim returns the request that makes room for n bytes more of s, with the error
// that its client gets; nil: there is none. own says that it has to be one of the same
// party.
func (h *holdings) victim(s *share, n int64, now time.Time, own bool) (*share, *apierror.Error) {
	var stalled, largest *share
	for c := range h.arriving {
		if c == s || c.bytes == 0 || own && c.party != s.party {
			continue
		}
		if now.After(c.behind) && (stalled == nil || c.bytes > stalled.bytes) {
			stalled = c
		}
		if largest == nil || h.weight(c) > h.weight(largest) || h.weight(c) == h.weight(largest) && c.bytes > largest.bytes {
			largest = c
		}
	}
	switch {
	case stalled != nil:
		return stalled, tooSlow()
	case largest == nil:
	case largest.party != "" && largest.party == s.party:
		if largest.bytes > s.bytes+n {
			return largest, overloaded()
		}
	case h.weight(largest) > h.weight(s)+n:
		return largest, overloaded()
	}
	return nil, nil
}

// weight is what the party of a share holds.
func (h *holdings) weight(s *share) int64 {
	if s.party == "" {
		return s.bytes
	}
	return h.parties[s.party]
}

// add adds n bytes to a share.
func (h *holdings) add(s *share, n int64) {
	s.bytes += n
	h.bytes += n
	if s.party == "" {
		return
	}
	if h.parties[s.party] += n; h.parties[s.party] == 0 {
		delete(h.parties, s.party)
	}
}

// complete notes that the body has arrived: the request makes room no more. The
// error is that of one that has already done so.
func (s *share) complete() *apierror.Error {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	s.whole = true
	delete(h.arriving, s)
	return s.closed
}

// release returns what was taken. More can be taken after it.
func (s *share) release() {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(s, -s.bytes)
	delete(h.arriving, s)
}

// close returns what was taken, for good.
func (s *share) close() {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(s, -s.bytes)
	delete(h.arriving, s)
	if s.closed == nil {
		s.closed = closedShare
	}
}

// move returns a share with what was taken, and leaves an empty one.
func (s *share) move() *share {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	moved := &share{budget: s.budget, party: s.party, bytes: s.bytes, whole: true}
	s.bytes = 0
	return moved
}

// closedShare is why nothing can be taken for a request that has ended.
var closedShare = overloaded()

func overloaded() *apierror.Error {
	err := apierror.New(http.StatusServiceUnavailable, "overloaded", "", "Too many requests are being received at once. Try again shortly.")
	err.RetryAfter = time.Second
	return err
}

// tooMuch is the error of a party that has taken all it can.
func tooMuch() *apierror.Error {
	err := apierror.New(http.StatusTooManyRequests, "rate_limit_exceeded", "", "Too many large requests of yours are being received at once. Try again shortly.")
	err.RetryAfter = time.Second
	return err
}

// tooSlow is the error of a request whose body has stalled and made room for others.
func tooSlow() *apierror.Error {
	return apierror.New(http.StatusRequestTimeout, "request_timeout", "", "The request body arrived too slowly while others needed the room. Send the request again.")
}
