package extproc

import (
	"net/http"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

const (
	madeOf = config.BytesOfBody
	// inflatedOf is what an encoded body takes while it is decoded, for each byte that comes
	// out: that byte, and the slice that it is moved to when there are more.
	inflatedOf = 2
	// smallBytes is what a request may hold to count as small: a body of 64 KiB, with what
	// is made of it. A part of the memory budget is for small requests only: one eighth.
	smallBytes = madeOf * (64 << 10)
	smallPart  = 8
	// leastRate is how fast a body has to arrive, in bytes a second, and slack is how
	// far it may fall behind, before it counts as stalled. The same holds for what a
	// client reads of a stored answer.
	leastRate = 64 << 10
	slack     = 5 * time.Second
)

// memoryBudget bounds the memory that all requests take: their bodies, the stored items
// that they bring in, what is made of both, and answers. It is taken before it is used.
// Three rules keep requests from shutting each other out:
//
//   - A part of it is for small requests only.
//   - A party, such as a tenant, can take half of it.
//   - Where there is no room, two kinds of requests make it. Stalled ones do for every
//     other request: bodies that arrive too slowly, and stored answers whose clients do
//     not read. Of bodies that are still arriving, the largest do for smaller requests.
//     That of a party counts as large as everything that the party holds.
type memoryBudget struct {
	limit int64
	small int64 // of limit, for small requests only
	party int64 // that one party can take
	now   func() time.Time
	held  *holdings
}

// newMemoryBudget is the memory budget of a configuration. What is held counts on in it.
func newMemoryBudget(l *config.Limits, now func() time.Time, held *holdings) memoryBudget {
	// Every request that is allowed fits
	one := min(l.MaxInflightBytes, madeOf*(l.MaxBodyBytes+int64(l.MaxConversationBytes)))
	return memoryBudget{
		limit: l.MaxInflightBytes,
		small: min(l.MaxInflightBytes/smallPart, l.MaxInflightBytes-one),
		party: max(l.MaxInflightBytes/2, one),
		now:   now, held: held,
	}
}

// holdings is what the requests of all configurations hold.
type holdings struct {
	mu      sync.Mutex
	bytes   int64
	parties map[string]int64
	// yielding are the requests that may have to make room: whose bodies are still
	// arriving, and whose stored answers are being read.
	yielding map[*memoryShare]struct{}
}

func newHoldings() *holdings {
	return &holdings{parties: map[string]int64{}, yielding: map[*memoryShare]struct{}{}}
}

// memoryShare is what one request has taken of the memory budget. It is safe for concurrent use:
// endpoints and jobs take of it beside the exchange. The lock of the holdings guards
// it.
type memoryShare struct {
	budget *memoryBudget
	party  string                // whose it is; "": of a party of its own
	drop   func(*apierror.Error) // gives up the request that makes room
	bytes  int64
	phase  sharePhase
	behind time.Time       // when it counts as stalled, unless more arrives or is read
	closed *apierror.Error // why nothing more can be taken; nil: it can
}

// sharePhase says whether a request makes room for others. An arriving one becomes
// working when its body is complete, and reading if its answer is a stored one.
type sharePhase uint8

const (
	shareArriving sharePhase = iota // its body arrives: it makes room if that stalls, or is the largest
	shareWorking                    // something is made of it: it makes no room
	shareReading                    // its client gets a stored answer: it makes room if that stalls
)

// open returns the share of a request whose body begins to arrive.
func (b *memoryBudget) open(party string, drop func(*apierror.Error)) *memoryShare {
	return &memoryShare{budget: b, party: party, drop: drop, behind: b.now().Add(slack)}
}

// take takes n bytes, for which other requests may be given up; less than 0: it returns
// them. The error is for the client.
func (s *memoryShare) take(n int64) *apierror.Error {
	// The victims are told without the lock: what they do returns memory.
	dropped, err := s.takeLocked(n)
	for _, d := range dropped {
		d.drop(d.closed)
	}
	return err
}

// takeBytes is take as endpoints and runs have it.
func (s *memoryShare) takeBytes(bytes int) *apierror.Error { return s.take(int64(bytes)) }

// arrive is take for a piece of the body.
func (s *memoryShare) arrive(n int64) *apierror.Error {
	s.goesOn(n)
	return s.take(n)
}

// goesOn notes that n bytes more have arrived, or have been read by the client.
func (s *memoryShare) goesOn(n int64) {
	h, now := s.budget.held, s.budget.now()
	h.mu.Lock()
	defer h.mu.Unlock()

	// Each byte buys its time at leastRate. What was fast before does not count for long: at
	// most slack is left of it.
	if now.After(s.behind) {
		s.behind = now
	}
	s.behind = s.behind.Add(time.Duration(n) * time.Second / leastRate)
	if most := now.Add(slack); s.behind.After(most) {
		s.behind = most
	}

	if s.closed == nil && s.phase != shareWorking {
		h.yielding[s] = struct{}{}
	}
}

// reading says that the client gets what the share holds as fast as it reads.
func (s *memoryShare) reading() {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	s.phase, s.behind = shareReading, s.budget.now().Add(slack)
	if s.closed == nil {
		h.yielding[s] = struct{}{}
	}
}

func (s *memoryShare) takeLocked(n int64) (dropped []*memoryShare, _ *apierror.Error) {
	b, h := s.budget, s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case n <= 0:
		h.add(s, max(n, -s.bytes))
		return nil, nil
	case s.closed != nil:
		return nil, s.closed
	case s.bytes+n > b.limit: // there will never be room
		return nil, tooLarge(b.limit)
	case s.party != "" && s.bytes+n > b.party:
		return nil, tooLarge(b.party)
	}

	// The room for small requests stays free.
	limit := b.limit
	if s.bytes+n > smallBytes {
		limit -= b.small
	}

	// Victims give up what they hold until there is room. If they do not hold enough, all keep
	// it: nobody is given up in vain. Where the party is what has no room, only its own requests
	// can make some.
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
		delete(h.yielding, victim)
		dropped = append(dropped, victim)
	}

	h.add(s, n)
	return dropped, nil
}

// place is what a victim has held.
type place struct {
	victim *memoryShare
	bytes  int64
}

// restore gives victims what they held: they would not make enough room.
func (h *holdings) restore(places []place) {
	for _, p := range places {
		p.victim.closed = nil
		h.yielding[p.victim] = struct{}{}
		h.add(p.victim, p.bytes)
	}
}

// over reports whether the party of a share would hold more than it may.
func (h *holdings) over(s *memoryShare, n int64) bool {
	return s.party != "" && h.parties[s.party]+n > s.budget.party
}

// victim returns the request that makes room for n bytes more of s, with the error
// that its client gets; nil: there is none. own says that it has to be one of the same
// party.
func (h *holdings) victim(s *memoryShare, n int64, now time.Time, own bool) (*memoryShare, *apierror.Error) {
	var stalled, largest *memoryShare
	for c := range h.yielding {
		if c == s || c.bytes == 0 || own && c.party != s.party {
			continue
		}
		if now.After(c.behind) && (stalled == nil || c.bytes > stalled.bytes) {
			stalled = c
		}
		if c.phase != shareArriving {
			// Its client reads: that it holds much is no reason.
			continue
		}
		heavier := largest == nil || h.weight(c) > h.weight(largest)
		if heavier || h.weight(c) == h.weight(largest) && c.bytes > largest.bytes {
			largest = c
		}
	}

	// A stalled request makes room for any other one. The largest does for one that would hold
	// less than it: between two of one party their own bytes count, since the party's are the same.
	switch {
	case stalled != nil:
		return stalled, tooSlow(stalled.phase)
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
func (h *holdings) weight(s *memoryShare) int64 {
	if s.party == "" {
		return s.bytes
	}
	return h.parties[s.party]
}

// add adds n bytes to a share.
func (h *holdings) add(s *memoryShare, n int64) {
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
func (s *memoryShare) complete() *apierror.Error {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	s.phase = shareWorking
	delete(h.yielding, s)
	return s.closed
}

// keep returns what was taken except n bytes, of which some may not have been taken. More
// can be taken after it.
func (s *memoryShare) keep(n int64) (missing int64) {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()

	h.add(s, min(n-s.bytes, 0))
	delete(h.yielding, s)
	return n - s.bytes
}

// release returns what was taken. More can be taken after it.
func (s *memoryShare) release() { _ = s.keep(0) }

// close returns what was taken, for good.
func (s *memoryShare) close() {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(s, -s.bytes)
	delete(h.yielding, s)
	if s.closed == nil {
		s.closed = closedShare
	}
}

// move returns a share with what was taken, and leaves an empty one.
func (s *memoryShare) move() *memoryShare {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	moved := &memoryShare{budget: s.budget, party: s.party, bytes: s.bytes, phase: shareWorking}
	s.bytes = 0
	return moved
}

// closedShare is why nothing can be taken for a request that has ended.
var closedShare = overloaded()

func overloaded() *apierror.Error {
	return apierror.New(http.StatusServiceUnavailable, "overloaded", "",
		"Too many requests are being received at once. Try again shortly.")
}

// tooMuch is the error of a party that has taken all it can.
func tooMuch() *apierror.Error {
	return apierror.New(http.StatusTooManyRequests, "rate_limit_exceeded", "",
		"Too many large requests of yours are being received at once. Try again shortly.")
}

// tooLarge is the error of a request that needs more than there can ever be.
func tooLarge(limit int64) *apierror.Error {
	return apierror.New(http.StatusRequestEntityTooLarge, "request_too_large", "",
		"The request, with what is stored of its conversation and with its answer, takes more than the %d bytes "+
			"of memory that all requests may take (limits.max_inflight_bytes). Send less, or ask for less.", limit)
}

// tooSlow is the error of a request that has stalled and made room for others.
func tooSlow(phase sharePhase) *apierror.Error {
	if phase == shareReading {
		return apierror.New(http.StatusServiceUnavailable, "overloaded", "",
			"The answer was read too slowly while others needed the room. Ask for it again, a stream after its "+
				"last event.")
	}
	return apierror.New(http.StatusRequestTimeout, "request_timeout", "",
		"The request body arrived too slowly while others needed the room. Send the request again.")
}
