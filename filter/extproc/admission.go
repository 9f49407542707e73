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
	// keptPart is the part of the memory budget that can be kept for requests to come: one
	// quarter. What is kept lives long, and the garbage collector lets as much garbage stand
	// beside it.
	keptPart = 4
	// leastRate is how fast a body has to arrive, in bytes a second, and slack is how
	// far it may fall behind, before it counts as stalled. The same holds for what a
	// client reads of a stored answer.
	leastRate = 64 << 10
	slack     = 5 * time.Second
)

// memoryBudget bounds the memory that all requests take: their bodies, the stored items
// that they bring in, what is made of both, and answers. It is taken before it is used.
// Four rules keep requests from shutting each other out:
//
//   - A part of it is for small requests only.
//   - A party, such as a tenant, can take half of it.
//   - What is kept for requests to come makes room for every request, and is a part of the
//     budget at most. The party that holds the most gives up first, and of it what was unused
//     for longest.
//   - Where there is no room after that, two kinds of requests make it. Stalled ones do for every
//     other request: bodies that arrive too slowly, and stored answers whose clients do
//     not read. Of bodies that are still arriving, the largest do for smaller requests.
//     That of a party counts as large as everything that the party holds.
type memoryBudget struct {
	limit int64
	small int64 // of limit, for small requests only
	party int64 // that one party can take
	kept  int64 // of limit, for what is kept for requests to come
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
		kept:  l.MaxInflightBytes / keptPart,
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
	// keepers are the shares of what is kept, and kept is what they hold.
	keepers map[*memoryShare]struct{}
	kept    int64
}

func newHoldings() *holdings {
	return &holdings{
		parties: map[string]int64{}, yielding: map[*memoryShare]struct{}{}, keepers: map[*memoryShare]struct{}{},
	}
}

// memoryShare is what one request has taken of the memory budget. It is safe for concurrent use:
// endpoints and jobs take of it beside the exchange. The lock of the holdings guards
// it.
type memoryShare struct {
	budget *memoryBudget
	party  string                // whose it is; "": of a party of its own
	drop   func(*apierror.Error) // gives up the request that makes room
	forget func(bytes int64)     // gives up so much of what is kept
	bytes  int64
	phase  sharePhase
	behind time.Time       // when it counts as stalled, unless more arrives or is read
	used   time.Time       // when what is kept was of use
	closed *apierror.Error // why nothing more can be taken; nil: it can
}

// sharePhase says whether a request makes room for others. An arriving one becomes
// working when its body is complete, and reading if its answer is a stored one.
type sharePhase uint8

const (
	shareArriving sharePhase = iota // its body arrives: it makes room if that stalls, or is the largest
	shareWorking                    // something is made of it: it makes no room
	shareReading                    // its client gets a stored answer: it makes room if that stalls
	shareKept                       // nothing is made of it now: it makes room for every request
)

// open returns the share of a request whose body begins to arrive.
func (b *memoryBudget) open(party string, drop func(*apierror.Error)) *memoryShare {
	return &memoryShare{budget: b, party: party, drop: drop, behind: b.now().Add(slack)}
}

// take takes n bytes, for which other requests may be given up; less than 0: it returns
// them. The error is for the client.
func (s *memoryShare) take(n int64) *apierror.Error {
	// The victims are told without the lock: what they do returns memory.
	given, err := s.takeLocked(n)
	for _, p := range given {
		// Not its phase: the victim may be changing that.
		if p.victim.forget != nil {
			p.victim.forget(p.bytes)
		} else {
			p.victim.drop(p.victim.closed)
		}
	}
	return err
}

// keeps opens the share of what a party keeps for requests to come. forget is called to make room
// for others, by one of those: it must not wait.
func (b *memoryBudget) keeps(party string, forget func(bytes int64)) *memoryShare {
	s := &memoryShare{budget: b, party: party, forget: forget, phase: shareKept, used: b.now()}
	b.held.mu.Lock()
	defer b.held.mu.Unlock()
	b.held.keepers[s] = struct{}{}
	return s
}

// use notes that what is kept is of use.
func (s *memoryShare) use() {
	h := s.budget.held
	h.mu.Lock()
	defer h.mu.Unlock()
	s.used = s.budget.now()
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

func (s *memoryShare) takeLocked(n int64) (given []place, _ *apierror.Error) {
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

	// Victims give up what they hold until there is room. If they do not hold enough, all keep
	// it: nobody is given up in vain.
	now := b.now()
	for missing, own := h.missing(s, n); missing > 0; missing, own = h.missing(s, n) {
		victim, err := h.victim(s, n, now, own)
		if victim == nil {
			h.restore(given)
			if own {
				return nil, tooMuch()
			}
			return nil, overloaded()
		}

		p := place{victim, victim.bytes}
		if victim.phase == shareKept {
			p.bytes = min(victim.bytes, missing)
		} else {
			victim.closed = err
			delete(h.yielding, victim)
		}
		h.add(victim, -p.bytes)
		given = append(given, p)
	}

	h.add(s, n)
	return given, nil
}

// place is what a victim gives up.
type place struct {
	victim *memoryShare
	bytes  int64
}

// restore gives victims what they held: they would not make enough room.
func (h *holdings) restore(given []place) {
	for _, p := range given {
		h.add(p.victim, p.bytes)
		if p.victim.phase != shareKept {
			p.victim.closed = nil
			h.yielding[p.victim] = struct{}{}
		}
	}
}

// missing returns how many bytes have to be given up for n more of s. own says that only requests
// of the same party can make this room, because it is what the party may take.
func (h *holdings) missing(s *memoryShare, n int64) (bytes int64, own bool) {
	b := s.budget
	if over := h.parties[s.party] + n - b.party; s.party != "" && over > 0 {
		return over, true
	}

	// The room for small requests stays free.
	limit := b.limit
	if s.bytes+n > smallBytes {
		limit -= b.small
	}
	bytes = h.bytes + n - limit
	if s.phase == shareKept {
		bytes = max(bytes, h.kept+n-b.kept)
	}
	return bytes, false
}

// victim returns the request that makes room for n bytes more of s, with the error
// that its client gets; nil: there is none. own says that it has to be one of the same
// party.
func (h *holdings) victim(s *memoryShare, n int64, now time.Time, own bool) (*memoryShare, *apierror.Error) {
	// What is kept is worth less than any request, also to itself.
	if keeper := h.keeper(s.party, own); keeper != nil || s.phase == shareKept {
		return keeper, nil
	}

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

// keeper returns the share whose kept bytes make room first; nil: nothing is kept. own says that it
// has to be of the party.
func (h *holdings) keeper(party string, own bool) (first *memoryShare) {
	for c := range h.keepers {
		if c.bytes == 0 || own && c.party != party {
			continue
		}
		// The heaviest party comes first, so that nobody pushes out what others keep.
		if first == nil || h.weight(c) > h.weight(first) ||
			h.weight(c) == h.weight(first) && c.used.Before(first.used) {
			first = c
		}
	}
	return first
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
	if s.phase == shareKept {
		h.kept += n
	}
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
	delete(h.keepers, s)
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
