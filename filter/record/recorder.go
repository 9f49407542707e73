package record

import (
	"slices"
	"strings"
	"time"
)

// Options say which exchanges are recorded, and where their records are kept.
type Options struct {
	// Percent is the share of exchanges that are recorded.
	Percent int
	// Tenants are the only ones whose exchanges are recorded; none: all.
	Tenants []string
	// Models are the only ones, by the client's name, without regard to case; none: all.
	Models []string
	// Outcomes are the only ones, as in harmony_requests_total; none: all.
	Outcomes []string
	// Header is a request header with which a client has its exchange recorded, with the
	// value "on", or not, with "off", whatever the share. "": there is none.
	Header string
	// Content says that texts, tokens and keys of stored things are kept; else their lengths.
	Content bool
	// Keeper says what is kept of JSON.
	Keeper *Keeper

	// RecordBytes is what the events of one record may take; it is cut beyond them.
	RecordBytes int
	// LiveBytes is what the records of exchanges that go on may take together; they are cut beyond them.
	LiveBytes int64
	// Sinks are where records go.
	Sinks []Sink
	// Draw returns a random number from 0 to below n.
	Draw func(n int) int
	Now  func() time.Time
	// Count counts records by Kept and Cut; nil: nothing does.
	Count func(outcome string)
}

// Sink keeps records. Keep must not block: a sink that is slow or full drops records.
type Sink interface {
	Keep(r *Record)
}

// Recorder decides which exchanges are recorded. The nil Recorder records none. It is
// safe for concurrent use.
type Recorder struct {
	o    Options
	live *live
}

// New makes a recorder.
func New(o Options) *Recorder { return (&Recorder{live: newLive()}).With(o) }

// With returns a recorder with other options, which knows the exchanges that s records.
// With s nil it is New.
func (s *Recorder) With(o Options) *Recorder {
	if s == nil {
		return New(o)
	}
	s.live.limit.Store(o.LiveBytes)
	return &Recorder{o: o, live: s.live}
}

// Header is the request header that asks for a record, in lower case; "": none does.
func (s *Recorder) Header() string {
	if s == nil {
		return ""
	}
	return s.o.Header
}

// Keeper says what its records keep of JSON.
func (s *Recorder) Keeper() *Keeper { return s.o.Keeper }

// Begin begins the record of an exchange, if it is recorded; else it returns nil. asked is
// the value of the request's [Recorder.Header]. r is made only for what is recorded. There is
// no record either if the request alone has no room beside the exchanges that go on.
func (s *Recorder) Begin(tenant, model, asked string, r func() Record) *Tape {
	if s == nil || !s.wants(tenant, model, asked) {
		return nil
	}

	// Memory is taken before anything else is kept: an exchange without room is made all the
	// same, unrecorded.
	t := NewTape(r(), s.o.RecordBytes, s.o.Now)
	t.taken = t.record.Request.size()
	if !s.live.take(t.taken) {
		if s.o.Count != nil {
			s.o.Count(Dropped)
		}
		return nil
	}

	t.live, t.keeper = s.live, s.o.Keeper
	s.live.add(t)
	return t
}

func (s *Recorder) wants(tenant, model, asked string) bool {
	switch {
	case len(s.o.Tenants) > 0 && !slices.Contains(s.o.Tenants, tenant):
		return false
	case len(s.o.Models) > 0 &&
		!slices.ContainsFunc(s.o.Models, func(m string) bool { return strings.EqualFold(m, model) }):
		return false
	case s.o.Header != "" && strings.EqualFold(asked, "on"):
		return true
	case s.o.Header != "" && strings.EqualFold(asked, "off"):
		return false
	}

	return s.o.Percent > s.o.Draw(100)
}

// End ends the record of an exchange, and hands it to the sinks if its outcome is one
// that is recorded.
func (s *Recorder) End(t *Tape, result Result) {
	if t == nil {
		return
	}

	r := t.Ended(result)
	if s == nil {
		return
	}

	s.live.remove(t)
	if len(s.o.Outcomes) > 0 && !slices.Contains(s.o.Outcomes, result.Outcome) {
		return
	}
	if !s.o.Content {
		r = Redact(&r)
	}

	for _, sink := range s.o.Sinks {
		sink.Keep(&r)
	}

	if s.o.Count == nil {
		return
	}
	if r.Cut {
		s.o.Count(Cut)
	} else {
		s.o.Count(Kept)
	}
}

// Drop ends the record of an exchange that was not the filter's.
func (s *Recorder) Drop(t *Tape) {
	if t != nil && s != nil {
		t.Ended(Result{})
		s.live.remove(t)
	}
}

// Live returns the exchanges that are being recorded, as far as they have come, in the
// order of their beginning. At most limit, the last ones; 0: all.
func (s *Recorder) Live(limit int) []Record {
	if s == nil {
		return nil
	}

	var records []Record
	for _, t := range s.live.tapes(limit) {
		r := t.sofar()
		if !s.o.Content {
			r = Redact(&r)
		}
		records = append(records, r)
	}

	return records
}

// sofar is what the tape has come to so far. Events that are added later are not in it.
func (t *Tape) sofar() Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.record
	r.Events = slices.Clip(r.Events)
	r.Result = Result{Micros: t.now().Sub(r.Started).Microseconds()}
	return r
}

// The outcomes of records, as they are counted.
const (
	Kept    = "kept"    // whole
	Cut     = "cut"     // without the events beyond a bound
	Dropped = "dropped" // the folder has lost the record, or there was no memory for its request
)
