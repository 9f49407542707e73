package replay

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// exchange is the outside of a run that is replayed: the client, the engine and what
// executes jobs.
type exchange struct {
	script        *script
	runner        *run.Runner
	run           *run.Run
	ctx           context.Context //nolint:containedctx // of the replay, of the same life
	dialect       engine.Dialect
	disaggregated bool
	// jobs are those of the step; nil: done.
	jobs []api.Job
	// beside are those beside the model call.
	beside []api.Job
	// following are the events of the record after the one that is fed.
	following []record.Event
	// next is the error with which the answer that is being read breaks, at its headers or its end.
	next error
}

// feed gives the run what came in at the i-th event. It returns how many events that was.
func (x *exchange) feed(r *record.Record, i int) int {
	e := &r.Events[i]
	x.following = r.Events[i+1:]
	x.run.At(at(r, e))
	// Tokens that came in one piece are fed in one: the reply may write them together.
	if n, piece := pieceOf(r.Events[i:]); n > 0 {
		x.run.EngineBytes(encoded(piece...), false)
		x.doBeside()
		return n
	}

	switch e.Kind {
	case record.KindAnswer:
		x.answer(r, i)
	case record.KindEnd, record.KindBroken, record.KindPrefill:
		x.engine(e)
	case record.KindStart:
		x.run.Start()
	case record.KindJob:
		x.job(e.Job)
	case record.KindTimer:
		if timer, ok := run.TimerOf(e.Text.String()); ok {
			x.runner.Expire(timer)
		}
	case record.KindFailed:
		var err *apierror.Error
		if errors.As(e.Error.Err(), &err) {
			x.run.Fail(err)
		}
	case record.KindInterrupt:
		x.run.Interrupt(api.Interruption(e.Text.String()))
	case record.KindExhausted:
		x.run.Exhausted()
	case record.KindCancel:
		x.run.Cancel()
	}
	x.doBeside()
	return 1
}

// doBeside does the jobs beside the model call. It makes no difference when they are done:
// what came after them waited for their results.
func (x *exchange) doBeside() {
	// One may begin another.
	for len(x.beside) > 0 {
		job := x.beside[0]
		x.beside = x.beside[1:]
		result, err := job.Do(x.ctx)
		x.run.JobDone(run.JobDone{Result: result, Err: err})
	}
}

// pieceOf returns what came as one piece of the engine's answer, and how many events that
// was; 0: they do not begin with one. Nothing was sent before its last event, so it makes no
// difference whether it came at once.
func pieceOf(events []record.Event) (n int, piece []record.Event) {
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == record.KindTokens:
			piece = append(piece, *e)
			n = i + 1
		case e.Kind == record.KindBroken && e.Text.String() == record.AtBody:
			return i + 1, append(piece, *e)
		// Ids and times between them are those that the reply has asked for meanwhile.
		case n == 0 || e.Kind != record.KindID && e.Kind != record.KindClock:
			return n, piece
		}
	}

	return n, piece
}

// answer begins the engine's answer.
func (x *exchange) answer(r *record.Record, i int) {
	a := r.Events[i].Answer
	fields := map[string]string{
		header.Upstream: a.Replica, "content-type": a.Type, "content-encoding": a.Encoding,
		header.Attempts: a.Attempts,
	}

	// Headers that break the call are two events, and one call of the run.
	x.next = nil
	if i+1 < len(r.Events) && r.Events[i+1].Kind == record.KindBroken &&
		r.Events[i+1].Text.String() == record.AtHeaders {
		x.next = r.Events[i+1].Error.Err()
	}

	// Counts of another call come with a disaggregated engine's answer, which is one event.
	if a.Cached == nil {
		x.run.EngineHeaders(a.Status, func(name string) string { return fields[name] }, false)
		return
	}

	head := http.Header{}
	for name, value := range fields {
		if value != "" {
			head.Set(name, value)
		}
	}
	x.run.EngineEvent(run.Answered(a.Status, head, &engine.Usage{CachedTokens: *a.Cached}))
}

// engine continues the engine's answer.
func (x *exchange) engine(e *record.Event) {
	switch where := e.Text.String(); {
	case e.Kind == record.KindPrefill:
		x.run.EngineEvent(run.Prefilling())
	case e.Kind == record.KindEnd:
		x.next = nil
		x.run.EngineBytes(nil, true)
	case where == record.AtConnection:
		x.run.EngineEvent(run.Broken(e.Error.Err()))
	// The body of an error is the record of it: scripted.ReadError reads it.
	case where == record.AtStatus:
		x.run.EngineBytes(encoded(*e), true)
	case where == record.AtTrailers:
		x.next = e.Error.Err()
		x.run.EngineTrailers(func(string) string { return "" })
	case where == record.AtEnd:
		x.next = e.Error.Err()
		x.run.EngineBytes(nil, true)
	}
}

// job does a job of the step, with what the store and the tools returned.
func (x *exchange) job(i int) {
	// Its number alone: the record does not say what a job was.
	if i >= len(x.jobs) || x.jobs[i] == nil {
		x.script.differ("jobs", "a job was done that is not made any more", "", "")
		return
	}

	job := x.jobs[i]
	x.jobs[i] = nil
	result, err := job.Do(x.ctx)
	x.run.JobDone(run.JobDone{Index: i, Result: result, Err: err})
}

// Call implements [run.Executor].
func (x *exchange) Call(r *engine.Request, retry run.Retry) *apierror.Error {
	// Only its error matters: the bytes go nowhere, and the request itself is compared.
	if x.disaggregated {
		if d := x.dialect.Traits().Disaggregation; d != nil {
			if _, err := d.PrefillRequest(r, &engine.Bootstrap{}); err != nil {
				return err
			}
		}
	} else if _, err := x.dialect.Encode(r); err != nil {
		return err
	}

	// A call that a quota refused was not made: what the record has next ends the reply.
	if x.refused() {
		return nil
	}
	x.script.called(r, retry.Number)
	return nil
}

// refused reports whether the record says that there was no room for a call in a token
// budget. The budgets themselves are not replayed.
func (x *exchange) refused() bool {
	// A call that was made is the next of these events, whatever else comes between.
	for i := range x.following {
		switch x.following[i].Kind {
		case record.KindCall:
			return false
		case record.KindExhausted, record.KindFailed:
			return true
		}
	}

	return false
}

// Start implements [run.Executor].
func (x *exchange) Start(jobs []api.Job) {
	x.drop()
	x.jobs = jobs
}

// drop does the jobs of the step whose results came too late for the reply, as far as they
// had come.
func (x *exchange) drop() {
	// The run gave them up, or nobody took their results. What they began may be in the record.
	x.script.late = true
	for _, job := range x.jobs {
		if job != nil {
			_, _ = job.Do(x.ctx)
		}
	}
	x.jobs, x.script.late = nil, false
}

// Beside implements [run.Executor].
func (x *exchange) Beside(job api.Job) { x.beside = append(x.beside, job) }

// Detach implements [run.Executor]. Records end before such jobs.
func (x *exchange) Detach([]api.Job) {}

// SendHeaders implements [run.Downstream].
func (x *exchange) SendHeaders(headers []engine.Header) {
	sent := make(map[string]string, len(headers))
	for _, h := range headers {
		sent[h.Name] = h.Value
	}
	x.script.made.header = sent
}

// SendBody implements [run.Downstream].
func (x *exchange) SendBody(p []byte, _ bool) {
	x.script.made.reply = append(x.script.made.reply, x.script.keeper.Reply(p)...)
}

// SendError implements [run.Downstream].
func (x *exchange) SendError(err *apierror.Error) { x.script.made.refused = err }

// scripted is a dialect whose answers are events of a record, each as JSON.
type scripted struct {
	engine.Dialect

	x *exchange
}

// encoded is events as an answer of a scripted engine.
func encoded(events ...record.Event) []byte {
	text, err := json.Marshal(events)
	if err != nil {
		// This cannot be: the events were read as JSON.
		return nil
	}
	return text
}

// NewDecoder implements [engine.Dialect].
func (s scripted) NewDecoder(*engine.Request) engine.Decoder { return &decoder{x: s.x} }

// ReadError implements [engine.Dialect].
func (s scripted) ReadError(_ int, _ func(string) string, body []byte) *apierror.Error {
	return errorOf(body)
}

// errorOf is the error of events as JSON.
func errorOf(body []byte) *apierror.Error {
	var events []record.Event
	if err := json.Unmarshal(body, &events); err == nil && len(events) > 0 && events[0].Error != nil {
		return apiError(events[0].Error.Err())
	}
	return apierror.New(http.StatusBadGateway, "", "", "the record has no error here")
}

func apiError(err error) *apierror.Error {
	var e *apierror.Error
	if !errors.As(err, &e) {
		return apierror.New(http.StatusBadGateway, "", "", "%s", err)
	}
	return e
}

// decoder reads events of a record.
type decoder struct{ x *exchange }

// Feed implements [engine.Decoder].
func (d *decoder) Feed(p []byte, chunks []engine.Chunk) ([]engine.Chunk, *apierror.Error) {
	if len(p) == 0 {
		return chunks, nil
	}

	// The bytes of this engine are the record's events, as encoded makes them.
	var events []record.Event
	if err := json.Unmarshal(p, &events); err != nil {
		return chunks, errorOf(p)
	}

	for i := range events {
		t := events[i].Tokens
		if t == nil {
			return chunks, errorOf(encoded(events[i]))
		}
		c := engine.Chunk{
			Index: t.Choice, Tokens: t.IDs, Logprobs: t.Logprobs, Finish: engine.Finish(t.Finish),
			Fingerprint: t.Fingerprint,
		}
		if t.Usage {
			c.Usage = &engine.Usage{CachedTokens: t.Cached}
		}
		chunks = append(chunks, c)
	}

	return chunks, nil
}

// End implements [engine.Decoder].
func (d *decoder) End(chunks []engine.Chunk) ([]engine.Chunk, *apierror.Error) {
	return chunks, d.broken()
}

// Trailers implements [engine.Decoder].
func (d *decoder) Trailers(func(string) string) *apierror.Error { return d.broken() }

// Advice implements [engine.Decoder].
func (d *decoder) Advice() string { return "" }

// broken is the error with which the answer ends here.
func (d *decoder) broken() *apierror.Error {
	err := d.x.next
	if d.x.next = nil; err == nil {
		return nil
	}
	return apiError(err)
}
