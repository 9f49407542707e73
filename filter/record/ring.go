package record

import "sync"

// Ring is a [Sink] in memory: a new record takes the place of the oldest ones.
type Ring struct {
	limit int64

	mu      sync.Mutex
	bytes   int64
	records []*Record // the oldest first
}

// NewRing makes a ring whose records take at most about limit bytes of memory.
func NewRing(limit int64) *Ring { return &Ring{limit: limit} }

// Keep implements [Sink].
func (g *Ring) Keep(r *Record) {
	// It would push out all others, and not fit itself.
	size := r.size()
	if size > g.limit {
		return
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	g.records, g.bytes = append(g.records, r), g.bytes+size
	n := 0
	for ; g.bytes > g.limit; n++ {
		g.bytes -= g.records[n].size()
		// The array behind the slice must not keep it.
		g.records[n] = nil
	}
	g.records = g.records[n:]
}

// Records returns the records, the oldest first. They must not be changed.
func (g *Ring) Records() []*Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*Record(nil), g.records...)
}

// Find returns the last record of a request; nil if there is none.
func (g *Ring) Find(id string) *Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Clients can send one request id several times: the last one is meant.
	for i := len(g.records) - 1; i >= 0; i-- {
		if g.records[i].ID == id {
			return g.records[i]
		}
	}
	return nil
}

// recordBytes is what a record takes beside its texts and events, roughly.
const recordBytes = 2 << 10

// size is about how many bytes of memory a record takes.
func (r *Record) size() int64 {
	n := int64(recordBytes+len(r.Config)) + r.Request.size()
	for i := range r.Events {
		n += r.Events[i].size()
	}
	return n
}

func (r *Request) size() int64 {
	n := len(r.Body.bytes) + len(r.Path)
	for name, value := range r.Header {
		n += len(name) + len(value)
	}
	return int64(n)
}

// memoryOfEvent is the size of an Event beside what it points to.
const memoryOfEvent = 256

func (e *Event) size() int64 {
	n := memoryOfEvent + len(e.Text.bytes)
	if e.Call != nil {
		n += 4*len(e.Call.Prompt) + len(e.Call.Options)
	}
	if e.Tokens != nil {
		n += 4 * len(e.Tokens.IDs)
		for i := range e.Tokens.Logprobs {
			n += 32 + 16*len(e.Tokens.Logprobs[i].Top)
		}
	}
	if e.Store != nil {
		n += len(e.Store.Key.bytes) + len(e.Store.Result)
	}
	if e.Tool != nil {
		n += len(e.Tool.Arguments.bytes) + len(e.Tool.Result)
	}

	return int64(n)
}
