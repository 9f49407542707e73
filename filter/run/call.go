package run

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

const (
	// MaxErrorBody is how many bytes of an engine's error reply are read.
	MaxErrorBody = 64 << 10
	// maxRetries is how many calls are made to move a failed one to another
	// replica.
	maxRetries = 3
)

// callPhase is how far a model call has come. Who leaves a phase:
//
//	phase     how it is left                                                for
//	none      await: a call is made                                         sent
//	sent      EngineHeaders: the status is 200                              answered
//	          EngineHeaders: the status is another one                      rejected
//	answered  pushToReply: output of the call is part of the reply          used
//	rejected  engineEnded: the body of the error is there                   as any
//	any       await: the call is repeated, continued, or the step's is over sent
//
// A call can be repeated before it is used, once, where the filter makes it: see retryOrFail.
type callPhase uint8

const (
	callNone     callPhase = iota // none is being made
	callSent                      // no answer yet
	callRejected                  // the status is not 200; the error's body is being read
	callAnswered                  // the status is 200
	callUsed                      // output of the call is part of the reply: it cannot be repeated
)

// modelCall is the model call being made.
type modelCall struct {
	phase   callPhase
	request *engine.Request // nil before the first

	// This attempt of several.
	repeated bool // it has been made once more
	retry    Retry
	replica  string // that answers; "": unknown

	// The answer.
	decoder  engine.Decoder // from callAnswered on
	choices  int            // that have not finished
	limit    outputLimit
	prompt   *engine.Usage // counts in place of the answer's own; nil: that one counts
	verifier *verifier     // nil: the answer needs none

	// A rejection.
	status    int
	header    func(string) string
	errorBody []byte
}

// beginCall makes a model call, once what it can use is reserved.
func (r *Run) beginCall(req *engine.Request) {
	r.reserve(BudgetCall(req), func(output int) {
		LimitOutput(req, output)
		if r.o.Limit != nil {
			r.o.Limit(req)
		}
		r.makeCall(req)
	}, r.Fail)
}

func (r *Run) makeCall(req *engine.Request) {
	if r.call.request == nil {
		setHeaders(r.o.Header, r.env.Keys.Headers(r.o.Request))
		r.o.Prepared()
	}

	// The output is kept if a lost call could be continued, and if a quota that is used up ends
	// the choices in place of the engine.
	r.call = modelCall{}
	if r.o.Mode == api.Loop {
		quotaEnds := r.spend.quota != nil && r.spend.quota.Ends()
		r.continuation.begin(req, r.reply.Turn(), r.env.Limits.Continuations > 0 || quotaEnds)
	}

	r.env.Telemetry.ModelCall(r.rec, req, r.now)
	r.sendCall(req, Retry{})
}

// sendCall makes a model call, which has a number of its own: the engine may not have noticed yet
// that the call before is gone.
func (r *Run) sendCall(req *engine.Request, retry Retry) {
	r.calls++
	req.ID.Number = r.calls
	if err := r.o.Executor.Call(req, retry); err != nil {
		r.fail(err)
		return
	}
	r.rec.Tape.Call(req, retry.Number)
	r.await(req, retry)
	if r.headersSent {
		r.flush(false)
	}
}

// await waits for the engine's answer to a call.
func (r *Run) await(req *engine.Request, retry Retry) {
	r.phase = phaseCall

	// A verifier goes on with a call that continues the one before. It holds the output back to
	// its end, so that memory has to be taken for it.
	verifier := r.call.verifier
	if !r.continuation.continues() {
		verifier = newVerifier(r.reply.Turn().NewCheck())
	}
	if verifier != nil {
		r.output.keeps = true
	}

	r.call = modelCall{
		phase:    callSent,
		request:  req,
		repeated: r.call.repeated,
		retry:    retry,
		choices:  req.N,
		verifier: verifier,
	}
	r.call.limit.begin(req)

	// The deadlines of the call before are not those of this one.
	r.timers.Clear(TimerIdle)
	r.timers.Clear(TimerGrace)
	r.timers.Set(TimerFirst, r.now, r.env.Limits.FirstToken)
}

// EngineEvent takes an event of the model call being made.
func (r *Run) EngineEvent(e Event) {
	if r.phase != phaseCall { // the call was given up while the event was under way
		return
	}

	switch e.Kind {
	case EventPrefilling:
		r.rec.Tape.Happened(record.KindPrefill)
		r.holdHeaders()
	case EventAnswered:
		r.call.prompt = e.Prompt
		r.EngineHeaders(e.Status, e.Header.Get, false)
	case EventBytes:
		r.EngineBytes(e.Body, false)
	case EventEnded:
		r.EngineTrailers(e.Header.Get)
	case EventBroken:
		r.rec.Tape.Broken(record.AtConnection, e.Err)
		r.callFailed(e.Err)
	}
}

// EngineHeaders takes the beginning of the engine's answer.
func (r *Run) EngineHeaders(status int, field func(string) string, end bool) {
	if r.phase != phaseCall {
		return
	}

	r.call.header, r.call.replica = field, field(header.Upstream)
	r.rec.Tape.Answer(status, field, r.call.prompt)
	r.rec.Replica(r.call.replica)
	if r.avoidExcluded() {
		return
	}

	if status != http.StatusOK {
		r.call.phase, r.call.status = callRejected, status
		if end {
			r.engineEnded()
		}
		return
	}
	if enc := field("content-encoding"); enc != "" && enc != "identity" {
		r.fail(apierror.New(http.StatusBadGateway, "engine_encoding", "",
			"The engine's reply is compressed (%s) although the request did not accept that. Switch "+
				"compression off between Envoy and the engine.", enc))
		return
	}

	r.answered = true
	r.call.phase, r.call.decoder = callAnswered, r.o.Target.Dialect.NewDecoder(r.call.request)

	// An answer of gRPC that fails at once is nothing but trailers.
	if err := r.call.decoder.Trailers(field); err != nil {
		r.rec.Tape.Broken(record.AtHeaders, err)
		r.rejected(err)
		return
	}
	if end {
		r.engineEnded()
		return
	}
	r.holdHeaders()
}

// EngineBytes takes the next bytes of the engine's answer, which may be its last.
func (r *Run) EngineBytes(p []byte, end bool) {
	if r.phase != phaseCall {
		return
	}

	c := &r.call
	if c.decoder == nil {
		c.errorBody = append(c.errorBody, p[:min(len(p), MaxErrorBody-len(c.errorBody))]...)
		if end {
			r.engineEnded()
		}
		return
	}

	// The client gets what came before an error.
	r.reply.Turn().BeginEvent()
	chunks, err := c.decoder.Feed(p, r.chunks[:0])
	r.chunks = chunks
	r.rec.Tape.Chunks(chunks)
	if r.push(chunks) {
		return
	}

	switch {
	case err != nil:
		r.rec.Tape.Broken(record.AtBody, err)
		r.callFailed(r.withContentType(err))
	case end:
		r.engineEnded()
	case len(chunks) > 0 && c.verifier == nil:
		r.flush(false)
	}
}

// EngineTrailers takes the end of the engine's answer with its trailers.
func (r *Run) EngineTrailers(field func(string) string) {
	if r.phase != phaseCall {
		return
	}
	if r.call.decoder != nil {
		if err := r.call.decoder.Trailers(field); err != nil {
			r.rec.Tape.Broken(record.AtTrailers, err)
			r.callFailed(err)
			return
		}
	}
	r.engineEnded()
}

// engineEnded takes the end of the engine's answer.
func (r *Run) engineEnded() {
	c := &r.call
	if c.header == nil { // the answer ends before its headers, which Envoy never does
		c.status, c.header = http.StatusBadGateway, func(string) string { return "" }
	}
	if c.decoder == nil {
		err := r.o.Target.Dialect.ReadError(c.status, c.header, c.errorBody)
		r.rec.Tape.Broken(record.AtStatus, err)
		r.rejected(err)
		return
	}

	chunks, err := c.decoder.End(r.chunks[:0])
	r.chunks = chunks
	r.rec.Tape.Chunks(chunks)
	if r.push(chunks) {
		return
	}

	if err != nil {
		r.rec.Tape.Broken(record.AtEnd, err)
		r.retryOrFail(r.withContentType(err))
		return
	}
	r.rec.Tape.Happened(record.KindEnd)
	r.callComplete()
}

// withContentType adds the content type to an error about an answer that cannot be
// read: another service may have answered.
func (r *Run) withContentType(err *apierror.Error) *apierror.Error {
	if err.Cause != nil {
		return err
	}
	kind := r.call.header("content-type")
	return err.With(fmt.Errorf("the answer's content type is %q", kind[:min(len(kind), 100)]))
}

// callFailed takes an error of the engine, a broken connection to it, or the
// failure of a part of the call.
func (r *Run) callFailed(cause error) {
	if r.waits(cause) {
		return
	}

	// Another replica can do better if it is the replica that has failed. A 400 or a 429 would
	// be the same there, or hurts more if it is ignored.
	var engineErr *apierror.Error
	switch {
	case !errors.As(cause, &engineErr):
		r.retryOrFail(apierror.New(http.StatusBadGateway, "engine_disconnected", "",
			"The engine was cut off before its reply was complete. Send the request again.").With(cause))
	case engineErr.Status == http.StatusBadGateway, engineErr.Status == http.StatusServiceUnavailable:
		r.retryOrFail(engineErr)
	// The engine's own word that it was too slow is what the filter's deadlines say. Output is
	// continued. A call without any is not repeated: the client has waited for one deadline, and
	// a load that makes engines slow would be doubled.
	case engineErr.Status == http.StatusGatewayTimeout:
		r.continueOrFail(engineErr)
	default:
		r.fail(engineErr)
	}
}

// rejected takes an error that is the whole answer. If no replica was available,
// Envoy has tried the others already, unless the only one that it tried
// disconnected; it does not try other pairs of a disaggregated engine.
func (r *Run) rejected(err *apierror.Error) {
	triedByEnvoy := r.call.header(header.Attempts) != "1" && !r.o.Target.Disaggregated
	if err.Status == http.StatusServiceUnavailable && triedByEnvoy {
		r.continueOrFail(err)
		return
	}
	r.callFailed(err)
}

// retryOrFail repeats the call if none of its output is part of the reply. Else
// another call continues it, or the reply fails.
func (r *Run) retryOrFail(err *apierror.Error) {
	if r.waits(err) {
		return
	}

	// What the client has got of the call would come again, and could be different.
	if r.o.Mode != api.Loop || r.call.repeated || r.call.phase == callUsed || r.continuation.grown() {
		r.continueOrFail(err)
		return
	}

	r.repeat(*r.call.request, Retry{Number: 1, Excluded: cmp.Or(r.call.replica, r.call.retry.Excluded)}, err.Code)
}

// repeat makes a call once more. reason is the code of the error that it has ended
// with.
func (r *Run) repeat(req engine.Request, retry Retry, reason string) {
	r.call.repeated = true
	r.continuation.restart()

	left, refused := req.N*req.MaxTokens, r.Fail
	if r.continuation.continues() { // other choices may wait for this one
		left, refused = r.continuation.left(), r.endsWithQuota
	}
	r.reserveAgain(left, func() {
		// Headers wait for the new answer as they did for the first.
		r.timers.Clear(TimerHold)
		r.env.Telemetry.Retried(r.rec, reason, r.now)
		r.sendCall(&req, retry)
	}, refused)
}

// avoidExcluded reports whether a retry has reached the excluded replica again,
// and another attempt is made. The last attempt takes that replica: it may be the
// only one.
func (r *Run) avoidExcluded() bool {
	retry := r.call.retry
	if retry.Excluded == "" || retry.Excluded != r.call.replica || retry.Number == maxRetries {
		return false
	}
	retry.Number++
	again := *r.call.request
	r.sendCall(&again, retry)
	return true
}

// push hands chunks to the reply. It reports whether the model call is over.
func (r *Run) push(chunks []engine.Chunk) (over bool) {
	chunks = r.call.limit.take(chunks)
	r.spent(chunks)

	kept := r.continuation.take(chunks)
	if len(kept) == 0 && len(chunks) > 0 {
		// The watcher holds them back, but the engine goes on.
		r.resetIdle()
	}
	if r.deliver(kept) {
		return true
	}

	// What ends the call here comes after its last chunk: the client has that one.
	if r.deciding() { // which the end of the call waits for
		return false
	}
	if r.continuation.interrupted() {
		r.continueNext(Retry{})
		return true
	}
	if r.call.limit.over() {
		r.env.Telemetry.Interrupted(r.rec, interruptedByLimit, r.now)
		r.callComplete()
		return true
	}
	return false
}

// deliver hands chunks to the reply, once they are verified. It reports whether the model
// call is over.
func (r *Run) deliver(chunks []engine.Chunk) (over bool) {
	for i := range chunks {
		if err := r.output.grow(&chunks[i]); err != nil {
			r.fail(err)
			return true
		}
	}

	if r.call.verifier != nil {
		var repeated bool
		if chunks, repeated = r.verify(chunks); repeated {
			return true
		}
	}
	return r.pushAll(chunks)
}

// pushAll hands chunks to the reply. It reports whether the model call is over.
func (r *Run) pushAll(chunks []engine.Chunk) (over bool) {
	for i := range chunks {
		if c := &chunks[i]; c.Finish == engine.FinishAbort {
			return r.aborted(c)
		} else if r.pushToReply(c) {
			return true
		}
	}
	return false
}

// aborted takes the chunk with which the engine breaks off a choice.
func (r *Run) aborted(c *engine.Chunk) (over bool) {
	// The tokens that came with the abort are output: a call that continues begins after them.
	err := c.Refusal(c.Index + 1)
	c.Finish = engine.FinishNone
	if len(c.Tokens) == 0 || !r.pushToReply(c) {
		r.callFailed(err)
	}
	return true
}

func (r *Run) pushToReply(c *engine.Chunk) (over bool) {
	r.call.phase = callUsed

	// Of a disaggregated engine, the part that has computed the prompt knows what was cached.
	switch {
	case c.Usage == nil:
	case r.call.prompt != nil:
		c.Usage = r.call.prompt
	default:
		c.Usage.Replica = r.call.replica
	}
	if c.Usage != nil {
		c.Usage.Bound(len(r.call.request.Prompt))
	}
	r.continuation.count(c)
	r.rec.Chunk(c, r.now)
	r.resetIdle()

	var err *apierror.Error
	if r.pending.buf, err = r.reply.Push(r.pending.buf, c); err != nil {
		r.fail(err)
		return true
	}
	if r.reply.Done() {
		r.advance()
		return true
	}

	// The counts may come after the last choice's end. They are not waited for long.
	if c.Finish != engine.FinishNone {
		r.call.choices--
		if r.call.choices == 0 {
			r.timers.Set(TimerGrace, r.now, closingGrace)
		}
	}
	return false
}

// resetIdle notes that the engine goes on.
func (r *Run) resetIdle() {
	r.timers.Clear(TimerFirst)
	r.timers.Set(TimerIdle, r.now, r.env.Limits.Idle)
}
