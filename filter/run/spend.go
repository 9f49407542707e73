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

// interruptedByBudget is the reason why output ends where a token budget is used up.
const interruptedByBudget = "token_budget"

// spending is what a run takes of token budgets.
type spending struct {
	account *budget.Account // nil: none bounds the reply
	waiting *engine.Request // the call that waits for its reservation
	output  int             // output tokens of the call
	total   int             // output tokens of all calls
	low     int             // from this many on, more output is reserved
}

// BudgetCall returns what a model call can use of token budgets.
func BudgetCall(req *engine.Request) budget.Call {
	return budget.Call{Prompt: len(req.Prompt), Output: req.N * req.MaxTokens}
}

// reservation is the [api.Job] that reserves what a model call can use.
type reservation struct {
	account *budget.Account
	used    budget.Usage
	call    budget.Call
}

// Do implements [api.Job].
func (j reservation) Do(ctx context.Context) (any, error) {
	return j.account.Reserve(ctx, j.used, j.call), nil
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

// usedSoFar returns what the reply has used.
func (r *Run) usedSoFar() budget.Usage {
	if !r.answered {
		return budget.Usage{}
	}
	s := r.reply.Summary()
	return budget.Usage{Input: r.rec.PromptTokens(), Cached: s.Cached, Output: s.Counts.Output, Reasoning: s.Counts.Reasoning}
}

// reserves reports whether a model call has to wait for its reservation, which begins.
func (r *Run) reserves(req *engine.Request) bool {
	s := &r.spend
	if s.account == nil {
		return false
	}
	used, call := r.usedSoFar(), BudgetCall(req)
	if s.account.Reserved(used, call) {
		return false
	}
	s.waiting = req
	r.phase = phaseReserve
	r.timers.Clear(TimerFirst)
	r.timers.Clear(TimerIdle)
	r.timers.Clear(TimerGrace)
	if r.headersSent {
		r.flush(false)
	}
	r.o.Executor.Start([]api.Job{reservation{s.account, used, call}})
	r.holdHeaders()
	return true
}

// reserved makes the model call that has waited, or fails the reply.
func (r *Run) reserved(d JobDone) {
	req := r.spend.waiting
	r.spend.waiting = nil
	refusal, _ := d.Result.(*apierror.Error)
	if d.Err != nil { // a panic
		refusal = apierror.New(http.StatusInternalServerError, "panic", "", "Internal error.")
	}
	if refusal != nil {
		r.Fail(refusal)
		return
	}
	r.makeCall(req)
}

// beginSpending notes that the output of a model call begins.
func (r *Run) beginSpending() {
	s := &r.spend
	s.output, s.low = 0, math.MaxInt
	if s.account != nil && r.o.Mode == api.Loop {
		s.low = s.account.Low()
	}
}

// spent notes output of the engine, and reserves more before the reservation ends.
func (r *Run) spent(chunks []engine.Chunk) {
	s := &r.spend
	for i := range chunks {
		s.output += len(chunks[i].Tokens)
		s.total += len(chunks[i].Tokens)
	}
	if s.output < s.low {
		return
	}
	s.low = math.MaxInt // until it is done
	r.o.Executor.Beside(growth{s.account})
}

// takeGrown takes what has become of reserving more output, if that is the job's result.
func (r *Run) takeGrown(d JobDone) {
	g, ok := d.Result.(grown)
	switch {
	case !ok || r.spend.account == nil:
	case g.refusal != nil:
		r.Exhausted()
	default:
		r.spend.low = r.spend.account.Low()
		r.spent(nil)
	}
}

// Exhausted ends the output of the model call being made because a token budget is used
// up. Each choice ends as if its own limit was reached.
func (r *Run) Exhausted() {
	if r.phase != phaseCall || r.deciding() {
		return
	}
	r.rec.Tape.Happened(record.KindExhausted)
	r.env.Telemetry.Interrupted(r.rec, interruptedByBudget, r.now)
	r.call.repeated = true // also if the output has not the form that it should have
	for i := range r.cont.choices {
		if !r.cont.choices[i].done && r.endChoice(i, engine.FinishLength) {
			return
		}
	}
	if !r.waits(nil) {
		r.advance()
	}
}

// settle returns what the reply has reserved and not used.
func (r *Run) settle() {
	if r.spend.account != nil {
		r.settleFor(r.usedSoFar())
	}
}

// settleBroken is settle for a reply that must not be asked any more. It counts all
// output as what is no reasoning.
func (r *Run) settleBroken() {
	if r.spend.account != nil {
		r.settleFor(budget.Usage{Input: r.rec.PromptTokens(), Output: r.spend.total})
	}
}

func (r *Run) settleFor(used budget.Usage) {
	r.o.Executor.Detach([]api.Job{settlement{r.spend.account, used}})
	r.spend.account = nil
}

// limits appends the headers that say what is left of a token budget.
func (r *Run) limits(headers []engine.Header) []engine.Header {
	if r.spend.account == nil || r.o.Limits == nil {
		return headers
	}
	if left, ok := r.spend.account.Left(); ok {
		headers = append(headers, r.o.Limits(&left, r.now)...)
	}
	return headers
}
