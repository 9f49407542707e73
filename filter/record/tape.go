package record

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Tape takes down one exchange. The methods of a nil Tape do nothing, so that what is
// not recorded costs a comparison. A Tape is safe for concurrent use: jobs use it from
// goroutines of their own.
//
// It is a tape and no recording: a [Record] is what it becomes, and a [Recorder] makes both. A third
// word of that stem for the one that is not complete yet would be read as either.
type Tape struct {
	now func() time.Time
	// live bounds what all tapes take together; nil: nothing does.
	live *live
	// keeper says what is kept of JSON.
	keeper *Keeper

	// mu protects what follows.
	mu     sync.Mutex
	record Record
	// room is how many bytes events may still take.
	room int
	// taken is how many bytes of memory the request and the events take.
	taken int64
	// prompt is that of the last model call.
	prompt []harmony.Token
	ended  bool
}

// eventBytes is what an event takes beside its texts and tokens, roughly.
const eventBytes = 64

// NewTape begins the record of an exchange. Its events take at most about limit bytes
// of memory. now is the exchange's clock.
func NewTape(r Record, limit int, now func() time.Time) *Tape {
	r.Format = Format
	return &Tape{record: r, room: limit, now: now}
}

// Ended returns the record, to which nothing is added any more.
func (t *Tape) Ended(result Result) Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.prompt = true, nil
	result.Micros = t.now().Sub(t.record.Started).Microseconds()
	t.record.Result = result
	return t.record
}

// add adds an event whose texts and tokens take so many bytes.
func (t *Tape) add(bytes int, e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addLocked(bytes, e)
}

func (t *Tape) addLocked(bytes int, e Event) {
	switch bytes += eventBytes; {
	case t.ended, t.record.Cut:
		return
	case bytes > t.room, !t.live.take(e.size()):
		t.record.Cut = true
		return
	}
	t.room -= bytes
	t.taken += e.size()
	e.At = t.now().Sub(t.record.Started).Microseconds()
	t.record.Events = append(t.record.Events, e)
}

// ID takes down an id that was made, and returns it.
func (t *Tape) ID(id string) string {
	if t != nil {
		t.add(len(id), Event{Kind: KindID, Text: NewText([]byte(id))})
	}
	return id
}

// Clock takes down a time that was read, and returns it.
func (t *Tape) Clock(at time.Time) time.Time {
	if t != nil {
		t.add(0, Event{Kind: KindClock, Clock: at.Round(0)})
	}
	return at
}

// Call takes down a model call. Of a prompt that begins as the one before only the rest
// is kept.
func (t *Tape) Call(r *engine.Request, retry int) {
	if t == nil {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	// The prompts of one exchange continue one another: whole, a long exchange would take the
	// square of its length.
	shared := sharedTokens(t.prompt, r.Prompt)
	t.prompt = r.Prompt
	c := &Call{
		ID: r.ID.String(), Retry: retry, Shared: shared, Prompt: slices.Clone(r.Prompt[shared:]), Count: len(r.Prompt),
		Options: r.AppendSampling(nil),
	}
	t.addLocked(4*len(c.Prompt)+len(c.Options), Event{Kind: KindCall, Call: c})
}

// sharedTokens is how many tokens two prompts have in common at their beginning.
func sharedTokens(a, b []harmony.Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Answer takes down the beginning of an engine's answer: its status, its headers, and
// the counts that another call had, of a disaggregated engine.
func (t *Tape) Answer(status int, field func(string) string, counts *engine.Usage) {
	if t == nil {
		return
	}
	a := &Answer{
		Status: status, Replica: field(header.Upstream), Type: field("content-type"),
		Encoding: field("content-encoding"), Attempts: field(header.Attempts),
	}
	if counts != nil {
		a.Cached = &counts.CachedTokens
	}
	t.add(len(a.Replica), Event{Kind: KindAnswer, Answer: a})
}

// Chunks takes down output of the engine.
func (t *Tape) Chunks(chunks []engine.Chunk) {
	if t == nil {
		return
	}

	// Copies: the engine's decoder uses its memory again.
	for i := range chunks {
		c := &chunks[i]
		k := &Tokens{
			Choice: c.Index, IDs: slices.Clone(c.Tokens), Logprobs: c.Clone().Logprobs,
			Finish: string(c.Finish), Fingerprint: c.Fingerprint,
		}
		if c.Usage != nil {
			k.Usage, k.Cached = true, c.Usage.CachedTokens
		}
		size := 4 * len(k.IDs)
		for j := range k.Logprobs {
			size += 24 + 16*len(k.Logprobs[j].Top)
		}
		t.add(size, Event{Kind: KindTokens, Tokens: k})
	}
}

// Happened takes down an event of a kind that has nothing but its time.
func (t *Tape) Happened(kind string) {
	if t != nil {
		t.add(0, Event{Kind: kind})
	}
}

// Broken takes down an error of the engine, or of the way to it. where is one of the
// At constants.
func (t *Tape) Broken(where string, err error) {
	if t != nil {
		t.add(len(where), Event{Kind: KindBroken, Text: NewText([]byte(where)), Error: newError(err)})
	}
}

// Failed takes down an error that ended the reply from outside, such as a drain.
func (t *Tape) Failed(err *apierror.Error) {
	if t != nil {
		t.add(len(err.Message), Event{Kind: KindFailed, Error: newError(err)})
	}
}

// Job takes down that the i-th job of a step is done.
func (t *Tape) Job(i int) {
	if t != nil {
		t.add(0, Event{Kind: KindJob, Job: i})
	}
}

// Timer takes down that a timer has expired.
func (t *Tape) Timer(name string) {
	if t != nil {
		t.add(0, Event{Kind: KindTimer, Text: NewText([]byte(name))})
	}
}

// Interrupted takes down that the client has interrupted the reply.
func (t *Tape) Interrupted(why string) {
	if t != nil {
		t.add(0, Event{Kind: KindInterrupt, Text: NewText([]byte(why))})
	}
}

// Headers takes down the reply's headers.
func (t *Tape) Headers(h []engine.Header) {
	if t == nil {
		return
	}
	fields, size := make(map[string]string, len(h)), 0
	for _, f := range h {
		fields[f.Name] = f.Value
		size += len(f.Name) + len(f.Value)
	}
	t.add(size, Event{Kind: KindHeaders, Header: fields})
}

// Sent takes down bytes of the reply: whole events, or a whole object.
func (t *Tape) Sent(p []byte) {
	if t != nil && len(p) > 0 {
		// Cleaned first: a client's key that the reply repeats is in no record.
		text := slices.Clone(t.keeper.Reply(p))
		t.add(len(text), Event{Kind: KindSent, Text: NewText(text)})
	}
}

// Refused takes down an error in place of the reply.
func (t *Tape) Refused(err *apierror.Error) {
	if t != nil {
		t.add(len(err.Message), Event{Kind: KindRefused, Error: newError(err)})
	}
}

// newError is an error in a record. Its cause is not in it: it may have addresses.
func newError(err error) *Error {
	var e *apierror.Error
	if !errors.As(err, &e) {
		return &Error{Status: http.StatusBadGateway, Plain: "the connection to the engine broke"}
	}
	var cause *engine.Cause
	return &Error{
		Status: e.Status, Type: e.Type, Code: e.Code, Param: e.Param, Message: e.Message,
		RetryAfter: e.RetryAfter, Overflow: e.Overflow, Grammar: errors.As(err, &cause) && cause.Grammar,
	}
}

// Err returns the error as the exchange had it.
func (e *Error) Err() error {
	if e.Plain != "" {
		return errors.New(e.Plain)
	}
	err := &apierror.Error{
		Status: e.Status, Type: e.Type, Code: e.Code, Param: e.Param, Message: e.Message,
		RetryAfter: e.RetryAfter, Overflow: e.Overflow,
	}
	// By it the run knows that the error is of a field of the request.
	if e.Grammar {
		err.Cause = &engine.Cause{Grammar: true}
	}
	return err
}

// Set sets what becomes known of the exchange after its tape has begun.
func (t *Tape) Set(change func(r *Record)) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		change(&t.record)
	}
}

// tapeKey is the key of a tape in a context.
type tapeKey struct{}

// With returns ctx with what notes the effects that are made for it: a [Tape] of an
// exchange that goes on, or what replays one; nil: nothing does.
func With(ctx context.Context, e Effects) context.Context {
	return context.WithValue(ctx, tapeKey{}, e)
}

// From returns the effects of ctx; nil: there are none.
func From(ctx context.Context) Effects {
	e, _ := ctx.Value(tapeKey{}).(Effects)
	return e
}

// Effects stands between an exchange and what it does outside.
type Effects interface {
	// Access makes an access to the store, or replays it. key is what is asked for or
	// written, as JSON; do returns the result as JSON.
	Access(operation string, key json.RawMessage, do func() (json.RawMessage, error)) (json.RawMessage, error)
	// Tool runs a tool, or replays that.
	Tool(j tools.Job, do func() tools.Result) tools.Result
}

// Access implements [Effects]: it makes the access and takes it down.
func (t *Tape) Access(
	operation string, key json.RawMessage, do func() (json.RawMessage, error),
) (json.RawMessage, error) {
	begun := t.now()
	result, err := do()

	// Of an error only its name: its text may have the address of the store.
	a := &Access{
		Operation: operation, Key: NewText(t.keeper.Stored(key)), Result: t.keeper.Stored(result),
		Micros: t.now().Sub(begun).Microseconds(),
	}
	if err != nil {
		a.Error = errorName(err)
	}
	t.add(a.Key.Len()+len(a.Result), Event{Kind: KindStore, Store: a})
	return result, err
}
