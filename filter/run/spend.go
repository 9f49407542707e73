package run

import (
	"context"
	"math"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// interruptedByQuota is the reason why output ends where a token quota is used up.
const interruptedByQuota = "token_budget"

// interruptedByClient is the reason why output ends that the client does not want.
const interruptedByClient = "client"

// spending is what a run takes of token quotas.
type spending struct {
	quota *budget.Account // nil: none bounds the reply

	// What a model call does that waits for its reservation; nil: none waits.
	granted func(output int)
	refused func(err *apierror.Error)

	// A model call was sent and no engine had answered when the reply was given up.
	leftCall bool

	// Output tokens that engines have made, whether a client sees them or not.
	total  int // of the reply
	output int // since the last reservation
	limit  int // most of these that the reservation is for
	low    int // from this many on, more output is reserved
}

// BudgetCall returns what a model call can use of token quotas.
func BudgetCall(req *engine.Request) budget.Call {
	call := budget.Call{Prompt: len(req.Prompt), Output: req.N * req.MaxTokens}
	if req.Unlimited {
		call.Least = req.N * min(budget.LeastOutput, req.MaxTokens)
	}
	return call
}

// LimitOutput limits the output of a model call to what token quotas have reserved for it, of
// all choices together. A call whose request names a limit has all of it.
func LimitOutput(req *engine.Request, output int) {
	req.MaxTokens = min(req.MaxTokens, output/req.N)
	req.MinTokens = min(req.MinTokens, req.MaxTokens)
}

// reservation is the [api.Job] that reserves what a model call can use. Its result is a
// [reservedOutput].
type reservation struct {
	account *budget.Account
	used    budget.Usage
	call    budget.Call
}

// Do implements [api.Job].
func (j reservation) Do(ctx context.Context) (any, error) {
	output, refusal := j.account.Reserve(ctx, j.used, j.call)
	return reservedOutput{output, refusal}, nil
}

// reservedOutput is what has become of a reservation.
type reservedOutput struct {
	tokens  int
	refusal *apierror.Error
}

// growth is the [api.Job] that reserves more output of a model call. Its result is a
// [grown].
type growth struct{ account *budget.Account }

// grown is what has become of a growth.
type grown struct{ refusal *apierror.Error }

// Do implements [api.Job].
func (j growth) Do(ctx context.Context) (any, error) { return grown{j.account.Grow(ctx)}, nil }

// settlement is the [api.Job] that returns what a reply has not used.
type settlement struct {
	account *budget.Account
	used    budget.Usage
}

// Do implements [api.Job].
func (j settlement) Do(ctx context.Context) (any, error) { return nil, j.account.Settle(ctx, j.used) }

// usedSoFar returns what the reply has used. Output is what engines have made of it, and not
// what the reply says of itself: output that is held back, that nobody wants any more or that
// was asked for again has taken an engine as long. Output that no reply has read counts as
// what is no reasoning.
func (r *Run) usedSoFar() budget.Usage {
	used := r.madeSoFar()
	if r.answered {
		s := r.reply.Summary()
		used.Cached, used.Reasoning = s.Cached, s.Counts.Reasoning
	}
	return used
}

// madeSoFar is usedSoFar without what only the reply knows.
func (r *Run) madeSoFar() budget.Usage {
	if !r.answered && !r.spend.leftCall {
		return budget.Usage{}
	}
	return budget.Usage{Input: r.rec.PromptTokens(), Output: r.spend.total}
}

// reserve makes a model call, once what it can use is reserved: granted has the output tokens
// that it may have. A call for which there is no room is refused.
func (r *Run) reserve(call budget.Call, granted func(output int), refused func(err *apierror.Error)) {
	s := &r.spend
	if s.quota == nil {
		granted(call.Output)
		return
	}

	used := r.usedSoFar()
	if s.quota.Reserved(used, call) {
		r.beginSpending(call.Output)
		granted(call.Output)
		return
	}

	// The store has to be asked, which may take a while. What the reply says meanwhile waits for
	// its headers as output of the engine does.
	s.granted, s.refused = func(output int) {
		r.beginSpending(output)
		granted(output)
	}, refused
	r.phase = phaseReserve
	r.timers.Clear(TimerFirst)
	r.timers.Clear(TimerIdle)
	r.timers.Clear(TimerGrace)
	if r.headersSent {
		r.flush(false)
	}
	r.o.Executor.Start([]api.Job{reservation{s.quota, used, call}})
	r.holdHeaders()
}

// reserveAgain makes a further call of a step. The reservation of the step's first call is
// for as many output tokens as its choices may have. If the engine has made some that are no
// part of them, what is left to be made has to be reserved.
func (r *Run) reserveAgain(left int, granted func(), refused func(err *apierror.Error)) {
	s := &r.spend
	if s.quota == nil || s.output+left <= s.limit {
		granted()
		return
	}
	// The prompt counts once: here it is 0 when an engine has answered.
	prompt := r.rec.PromptTokens() - r.madeSoFar().Input
	r.reserve(budget.Call{Prompt: prompt, Output: left}, func(int) { granted() }, refused)
}

// reserved goes on with the model call that has waited.
func (r *Run) reserved(d JobDone) {
	s := &r.spend
	granted, refused := s.granted, s.refused
	s.granted, s.refused = nil, nil

	got, _ := d.Result.(reservedOutput)
	if d.Err != nil { // a panic
		got.refusal = apierror.New(http.StatusInternalServerError, "panic", "", "Internal error.")
	}

	if got.refusal != nil {
		refused(got.refusal)
		return
	}
	granted(got.tokens)
}

// beginSpending notes that the output of a model call begins, for which so much is reserved.
func (r *Run) beginSpending(output int) {
	s := &r.spend
	s.output, s.limit, s.low = 0, output, math.MaxInt
	if r.o.Mode == api.Loop {
		s.low = s.quota.Low()
	}
}

// spent notes output of the engine.
func (r *Run) spent(chunks []engine.Chunk) {
	n := 0
	for i := range chunks {
		n += len(chunks[i].Tokens)
	}
	r.spend.total += n
	r.spendOutput(n)
}

// spendOutput reserves more output before the reservation ends.
func (r *Run) spendOutput(n int) {
	s := &r.spend
	s.output += n
	if s.output < s.low {
		return
	}
	s.low = math.MaxInt // until it is done
	r.o.Executor.Beside(growth{s.quota})
}

// takeGrown takes what has become of reserving more output, if that is the job's result.
func (r *Run) takeGrown(d JobDone) {
	g, ok := d.Result.(grown)
	switch {
	case !ok || r.spend.quota == nil:
	case g.refusal != nil:
		r.Exhausted()
	default:
		r.spend.low = r.spend.quota.Low()
		r.spendOutput(0)
	}
}

// Exhausted ends the output of the model call being made because a token quota is used
// up. Each choice ends as if its own limit was reached.
func (r *Run) Exhausted() {
	if r.phase != phaseCall || r.deciding() {
		return
	}
	r.endsWithQuota(nil)
}

// endsWithQuota ends the choices that have no end: there is no room for a call that goes on
// with them.
func (r *Run) endsWithQuota(*apierror.Error) {
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
		if !r.continuation.choices[i].done() && r.endChoice(i, engine.FinishLength) {
			return
		}
	}
	if !r.waits(nil) {
		r.advance()
	}
}

// Interrupt ends the reply with what there is of it, because its client wants it so. It reports
// whether the reply ends so: it may be ending already, or have calls for the client.
func (r *Run) Interrupt(why api.Interruption) bool {
	if r.phase != phaseCall && r.phase != phaseJobs || r.failing || r.deciding() || r.reply.Ending() ||
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
		if r.deliver([]engine.Chunk{{Index: i, Finish: engine.FinishLength}}) {
			return true
		}
	}
	if !r.waits(nil) {
		r.advance()
	}
	return true
}

// leaveCall notes that the reply is given up, as when its client leaves. A call that was sent then
// is charged with its prompt: an engine may have read all of it, and a client that always leaves
// in time would have that for nothing. A call that was refused, or has failed, stays free.
func (r *Run) leaveCall() {
	if r.phase == phaseCall && r.call.phase == callSent {
		r.spend.leftCall = true
	}
}

// returnUnused returns what the reply has reserved and not used.
func (r *Run) returnUnused() {
	if r.spend.quota != nil {
		r.returnExcept(r.usedSoFar())
	}
}

// returnUnusedOfBroken is returnUnused for a reply that must not be asked any more.
func (r *Run) returnUnusedOfBroken() {
	if r.spend.quota != nil {
		r.returnExcept(r.madeSoFar())
	}
}

// returnExcept returns what was reserved except what was used.
func (r *Run) returnExcept(used budget.Usage) {
	r.o.Executor.Detach([]api.Job{settlement{r.spend.quota, used}})
	r.spend.quota = nil
}

// limits appends the headers that say what is left of a token quota.
func (r *Run) limits(headers []engine.Header) []engine.Header {
	if r.spend.quota == nil || r.o.Limits == nil {
		return headers
	}
	if left, ok := r.spend.quota.Left(); ok {
		headers = append(headers, r.o.Limits(&left, r.now)...)
	}
	return headers
}
