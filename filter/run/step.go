package run

import (
	"cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// What a run does for the model calls of a step: it plans and makes them, passes on what comes of
// them, and decides what follows.

const (
	// interruptedByQuota is the reason why output ends where a token quota is used up.
	interruptedByQuota = "token_budget"
	// interruptedByClient is the reason why output ends that the client does not want.
	interruptedByClient = "client"
)

// plannedCall is a model call that is to be made, once what it can use is reserved.
type plannedCall struct {
	request *engine.Request
	further bool // of the step: it is not the first
	retry   Retry
	// repeats is that it repeats the call before, which has ended with an error of the code reason; an
	// error may have none.
	repeats bool
	reason  string
}

// plan makes a model call, once what it can use of token quotas is reserved.
func (r *Run) plan(c plannedCall, cost budget.Call) {
	r.planned = c
	if r.spend.quota == nil || c.further && r.spend.covers(cost.Output) {
		r.granted(grant{output: cost.Output})
		return
	}
	r.granted(r.spend.reserve(r.usedSoFar(), cost))
}

// granted takes what the reservation of the planned call has come to.
func (r *Run) granted(g grant) {
	c := r.planned
	switch {
	case g.wait != nil: // the store has to be asked, which may take a while
		r.startJobs(phaseReserve, []api.Job{g.wait})
		return
	case g.refused != nil && c.further && r.continuation.continues(): // other choices may wait for this one
		r.endsWithQuota()
		return
	case g.refused != nil:
		r.Fail(g.refused)
		return
	case !c.further:
		r.beginStep(c.request, g.output)
	case c.repeats:
		// Headers wait for the new answer as they did for the first.
		r.timers.Clear(TimerHold)
		r.env.Telemetry.Retried(r.rec, c.reason, r.now)
	}
	r.send(c.request, c.retry)
}

// beginStep prepares the first call of a step, which may have so much output.
func (r *Run) beginStep(req *engine.Request, output int) {
	LimitOutput(req, output)
	if r.o.Limit != nil {
		r.o.Limit(req)
	}
	if r.call.request == nil {
		setHeaders(r.o.Header, r.env.Keys.Headers(r.o.Request))
		r.o.Prepared()
	}

	// The output is kept if a lost call could be continued, and if a quota that is used up ends
	// the choices in place of the engine.
	r.call.reset()
	if r.o.Mode == api.Loop {
		quotaEnds := r.spend.quota != nil && r.spend.quota.Ends()
		r.continuation.begin(req, r.reply.Turn(), r.env.Limits.Continuations > 0 || quotaEnds)
	}
	r.env.Telemetry.ModelCall(r.rec, req, r.now)
}

// send makes a model call, which has a number of its own: the engine may not have noticed yet
// that the call before is gone.
func (r *Run) send(req *engine.Request, retry Retry) {
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
	r.call.begin(req, retry, verifier)

	// The deadlines of the call before are not those of this one.
	r.timers.clearCall()
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
		r.follow(lostBy(e.Err).shown(record.AtConnection, e.Err))
	}
}

// EngineHeaders takes the beginning of the engine's answer.
func (r *Run) EngineHeaders(status int, field func(string) string, end bool) {
	if r.phase != phaseCall {
		return
	}

	o := r.call.answer(status, field)
	answered := r.call.decoder != nil
	r.spend.answered = r.spend.answered || answered
	switch {
	case o.over != overNot:
		r.follow(o)
	case end:
		r.follow(r.watched(r.call.end()))
	case answered:
		r.holdHeaders()
	}
}

// EngineBytes takes the next bytes of the engine's answer, which may be its last.
func (r *Run) EngineBytes(p []byte, end bool) {
	if r.phase != phaseCall {
		return
	}

	r.reply.Turn().BeginEvent()
	o := r.watched(r.call.bytes(p))
	switch {
	case o.over != overNot:
		r.follow(o)
	case end:
		r.follow(r.watched(r.call.end()))
	case len(o.chunks) > 0 && r.call.verifier == nil:
		r.flush(false)
	}
}

// EngineTrailers takes the end of the engine's answer with its trailers.
func (r *Run) EngineTrailers(field func(string) string) {
	if r.phase != phaseCall {
		return
	}
	if o := r.call.trailers(field); o.over != overNot {
		r.follow(o)
		return
	}
	r.follow(r.watched(r.call.end()))
}

// watched hands on the output of an outcome: it counts, is kept for calls that continue it, and
// may be where the model is interrupted. It returns the outcome that follows: what ends the call
// in the output comes before what has ended it after.
func (r *Run) watched(o outcome) outcome {
	if r.call.decoder == nil { // a rejection
		return o
	}

	r.beside(r.spend.made(countTokens(o.chunks)))
	kept := r.continuation.take(o.chunks)
	if len(kept) == 0 && len(o.chunks) > 0 {
		// The watcher holds them back, but the engine goes on.
		r.timers.engineGoesOn(r.now, &r.env.Limits)
	}
	if first := r.verified(kept); first.over != overNot {
		return first
	}

	// What ends the call here comes after its last chunk: the client has that one.
	switch {
	case r.call.deciding(): // which the end of the call waits for
		return o
	case r.continuation.interrupted():
		return outcome{over: overInterrupted}
	case r.call.limit.over():
		return outcome{over: overLimit}
	}
	return o
}

// beside executes a job beside the model call, if there is one.
func (r *Run) beside(job api.Job) {
	if job != nil {
		r.o.Executor.Beside(job)
	}
}

// verified hands on chunks, once the answer is verified and there is memory for it.
func (r *Run) verified(chunks []engine.Chunk) outcome {
	for i := range chunks {
		if err := r.output.grow(&chunks[i]); err != nil {
			return outcome{over: overFailed, err: err}
		}
	}

	v := r.call.verifier
	if v == nil {
		return r.toReply(chunks)
	}
	before := v.phase
	v.take(chunks)
	switch v.phase {
	case verifierHolds:
		if len(chunks) > 0 {
			r.timers.engineGoesOn(r.now, &r.env.Limits)
		}
		return outcome{}

	// The decision takes long: the run has to receive from its client and its timers meanwhile.
	// The engine owes nothing any more except its counts.
	case verifierDeciding:
		if before != verifierDeciding {
			r.timers.Clear(TimerFirst)
			r.timers.Clear(TimerIdle)
			r.beside(decision{v.check})
		}
		return outcome{}
	}

	// In place of an answer of the wrong form another one is made, once.
	if v.verdict == turn.Unkept && r.o.Mode == api.Loop && !r.call.repeated {
		return outcome{over: overUnkept}
	}
	r.call.verifier = nil
	return r.toReply(v.settle())
}

// toReply hands chunks to the reply.
func (r *Run) toReply(chunks []engine.Chunk) outcome {
	for i := range chunks {
		c := &chunks[i]

		// The tokens that came with the abort are output: a call that continues begins after them.
		var aborted *apierror.Error
		if c.Finish == engine.FinishAbort {
			aborted, c.Finish = c.Refusal(c.Index+1), engine.FinishNone
			if len(c.Tokens) == 0 {
				return lostBy(aborted)
			}
		}

		last := r.call.use(c)
		r.continuation.count(c)
		r.rec.Chunk(c, r.now)
		r.timers.engineGoesOn(r.now, &r.env.Limits)

		var err *apierror.Error
		r.pending.buf, err = r.reply.Push(r.pending.buf, c)
		switch {
		case err != nil:
			return outcome{over: overFailed, err: err}
		case r.reply.Done():
			return outcome{over: overEnough}
		case aborted != nil:
			return lostBy(aborted)
		case last:
			// The counts may come after the last choice's end. They are not waited for long.
			r.timers.Set(TimerGrace, r.now, closingGrace)
		}
	}
	return outcome{}
}

// follow decides what follows after something has happened to the model call.
func (r *Run) follow(o outcome) {
	switch {
	case o.at != "":
		r.rec.Tape.Broken(o.at, o.cause)
	case o.over == overEnded:
		r.rec.Tape.Happened(record.KindEnd)
	}

	if o.over.waits() && r.call.deciding() { // which may need no more of the call
		r.call.verifier.wait(o)
		return
	}

	switch o.over {
	case overNot:
	case overLimit, overEnded, overComplete:
		if o.over == overLimit {
			r.env.Telemetry.Interrupted(r.rec, interruptedByLimit, r.now)
		}
		// A call that continues makes one choice: others may not be complete.
		if r.continuation.continues() || r.continuation.interrupted() {
			r.continueNext(Retry{})
			return
		}
		r.advance()
	case overEnough:
		r.advance()
	case overInterrupted:
		r.continueNext(Retry{})
	case overUnkept:
		// From the beginning, also where other calls have continued the first one: what they
		// have made of it is a part of the wrong answer.
		first := r.continuation.fromBeginning(r.call.request)
		r.repeat(withOtherSeed(first), Retry{}, "unkept_format")
	case overElsewhere:
		again, retry := *r.call.request, r.call.retry
		retry.Number++
		r.send(&again, retry)
	case overLost:
		r.lost(o.err, o.remedy)
	case overFailed:
		r.fail(o.err)
	}
}

// lost repeats a lost call if none of its output is part of the reply. Else calls of another
// replica continue its choices, if that is possible and allowed, or the reply fails.
func (r *Run) lost(err *apierror.Error, most remedy) {
	// What the client has got of the call would come again, and could be different.
	repeatable := r.o.Mode == api.Loop && !r.call.repeated && r.call.phase != callUsed && !r.continuation.grown()
	excluded := cmp.Or(r.call.replica, r.call.retry.Excluded)
	if most == remedyRepeat && repeatable {
		r.repeat(*r.call.request, Retry{Number: 1, Excluded: excluded}, err.Code)
		return
	}

	if most == remedyNone || r.failing {
		r.fail(err)
		return
	}
	if fails := r.continuation.lose(err, r.env.Limits.Continuations); fails != nil {
		r.fail(fails)
		return
	}
	r.env.Telemetry.Continued(r.rec, &telemetry.Loss{
		RequestID: r.o.RequestID,
		Engine:    r.o.Target.Engine,
		Replica:   r.call.replica,
		Kept:      r.continuation.kept(),
		Err:       err,
	}, r.now)
	r.continueNext(Retry{Number: 1, Excluded: excluded, SamePrefill: true})
}

// repeat makes a call once more. reason is the code of the error that it has ended
// with.
func (r *Run) repeat(req engine.Request, retry Retry, reason string) {
	r.call.repeated = true
	r.continuation.restart()

	left := req.N * req.MaxTokens
	if r.continuation.continues() {
		left = r.continuation.left()
	}
	r.plan(plannedCall{request: &req, further: true, retry: retry, repeats: true, reason: reason}, r.spend.again(left))
}

// continueNext continues the first choice that is not complete. If there is none, the
// step is complete.
func (r *Run) continueNext(retry Retry) {
	for {
		next := r.continuation.next()
		if next.interrupted != turn.NotInterrupted {
			r.env.Telemetry.Interrupted(r.rec, string(next.interrupted), r.now)
		}
		switch {
		case next.complete:
			r.follow(outcome{over: overEnough})
			return
		case next.call != nil:
			// Headers that are not sent yet wait for the new answer as they did for the first.
			r.call.repeated = false
			r.timers.Clear(TimerHold)
			again := r.spend.again(r.continuation.left())
			r.plan(plannedCall{request: next.call, further: true, retry: retry}, again)
			return
		}

		r.beside(r.spend.made(next.inserted))
		if o := r.verified(next.output); o.over != overNot {
			r.follow(o)
			return
		}
	}
}

// Exhausted ends the output of the model call being made because a token quota is used
// up. Each choice ends as if its own limit was reached.
func (r *Run) Exhausted() {
	if r.phase == phaseCall && !r.call.deciding() {
		r.endsWithQuota()
	}
}

// endsWithQuota ends the choices that have no end: there is no room for a call that goes on
// with them.
func (r *Run) endsWithQuota() {
	r.rec.Tape.Happened(record.KindExhausted)

	// The choices end as those of a call that is being made do: the check of their answer may
	// be a job beside it.
	r.phase = phaseCall
	r.env.Telemetry.Interrupted(r.rec, interruptedByQuota, r.now)
	// Messages tells the end of a limit from that of the context, and knows the first one by this.
	LimitOutput(r.reply.Turn().Engine, r.spend.output)
	// An answer of the wrong form is not asked for again either.
	r.call.repeated = true
	for i := range r.continuation.choices {
		if r.continuation.choices[i].done() {
			continue
		}
		if o := r.verified(r.continuation.endChoice(i, engine.FinishLength)); o.over != overNot {
			r.follow(o)
			return
		}
	}
	r.follow(outcome{over: overEnough})
}

// Interrupt ends the reply with what there is of it, because its client wants it so. It reports
// whether the reply ends so: it may be ending already, or have calls for the client.
func (r *Run) Interrupt(why api.Interruption) bool {
	if r.phase != phaseCall && r.phase != phaseJobs || r.failing || r.call.deciding() || r.reply.Ending() ||
		!r.reply.Interrupt(why) {
		return false
	}
	r.rec.Tape.Interrupted(string(why))
	if r.phase == phaseJobs { // no model call follows them
		return true
	}

	// The choices end as those of a call whose quota is used up do.
	r.env.Telemetry.Interrupted(r.rec, interruptedByClient, r.now)
	r.call.repeated = true
	for i := range r.call.request.N {
		if o := r.verified([]engine.Chunk{{Index: i, Finish: engine.FinishLength}}); o.over != overNot {
			r.follow(o)
			return true
		}
	}
	r.follow(outcome{over: overEnough})
	return true
}
