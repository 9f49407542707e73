package run

import (
	"context"
	"math"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// spending is what a run takes of token quotas: it knows what is reserved, and not what for. What
// a reservation comes to:
//
//	asked by      for                            comes to
//	reserve       the output of a model call     granted; wait, where the store has to be asked
//	reserved      the same, once the job is done granted; refused
//	made          output that has been made      nothing; a job, where more has to be reserved soon
//	grown         the same, once the job is done nothing; a further job; exhausted
//	settle        the end of the reply           a job, once, which returns what was not used
type spending struct {
	quota *budget.Account // nil: none bounds the reply
	rec   *telemetry.Record
	grows bool // more output can be reserved while it is made

	answered bool // an engine has begun to answer
	// A model call was sent and no engine had answered when the reply was given up.
	leftCall bool

	// Output tokens that engines have made, whether a client sees them or not.
	total  int // of the reply
	output int // since the last reservation
	limit  int // most of these that the reservation is for
	low    int // from this many on, more output is reserved
}

// grant is what a reservation has come to: granted, unless one of the others is set.
type grant struct {
	output  int             // tokens that the model call may have
	wait    api.Job         // has to be done first, and reserved be called with its result
	refused *apierror.Error // why there is no room
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
// [grant].
type reservation struct {
	account *budget.Account
	used    budget.Usage
	call    budget.Call
}

// Do implements [api.Job].
func (j reservation) Do(ctx context.Context) (any, error) {
	output, refusal := j.account.Reserve(ctx, j.used, j.call)
	return grant{output: output, refused: refusal}, nil
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

// used returns what the reply has used so far, without what only the reply knows.
func (s *spending) used() budget.Usage {
	if !s.answered && !s.leftCall {
		return budget.Usage{}
	}
	return budget.Usage{Input: s.rec.PromptTokens(), Output: s.total}
}

// covers reports whether what is reserved is enough for so much more output. The reservation of
// a step's first call is for as many output tokens as its choices may have. If the engine has made
// some that are no part of them, what is left to be made has to be reserved.
func (s *spending) covers(output int) bool { return s.quota == nil || s.output+output <= s.limit }

// again is what a further call of a step can use. The prompt counts once: here it is 0 when an
// engine has answered.
func (s *spending) again(output int) budget.Call {
	return budget.Call{Prompt: s.rec.PromptTokens() - s.used().Input, Output: output}
}

// reserve reserves what a model call can use, after what was used before it.
func (s *spending) reserve(used budget.Usage, call budget.Call) grant {
	if !s.quota.Reserved(used, call) {
		return grant{wait: reservation{s.quota, used, call}}
	}
	s.begin(call.Output)
	return grant{output: call.Output}
}

// reserved takes what the job of a grant has come to.
func (s *spending) reserved(d JobDone) grant {
	got, _ := d.Result.(grant)
	if d.Err != nil { // a panic
		got.refused = apierror.New(http.StatusInternalServerError, "panic", "", "Internal error.")
	}
	if got.refused == nil {
		s.begin(got.output)
	}
	return got
}

// begin takes that the output of a model call begins, for which so much is reserved.
func (s *spending) begin(output int) {
	s.output, s.limit, s.low = 0, output, math.MaxInt
	if s.grows {
		s.low = s.quota.Low()
	}
}

// made takes output. Before the reservation ends, it returns the job that reserves more; else nil.
func (s *spending) made(tokens int) (more api.Job) {
	s.total += tokens
	s.output += tokens
	if s.output < s.low {
		return nil
	}
	s.low = math.MaxInt // until it is done
	return growth{s.quota}
}

// grown takes what has become of reserving more output, if that is the job's result. more is the
// job that reserves still more; exhausted says that there is no more.
func (s *spending) grown(d JobDone) (more api.Job, exhausted bool) {
	g, ok := d.Result.(grown)
	switch {
	case !ok || s.quota == nil:
		return nil, false
	case g.refusal != nil:
		return nil, true
	}
	s.low = s.quota.Low()
	return s.made(0), false
}

// settle returns the job that returns what was reserved except what was used; nil if there is
// none.
func (s *spending) settle(used budget.Usage) api.Job {
	if s.quota == nil {
		return nil
	}
	quota := s.quota
	s.quota = nil
	return settlement{quota, used}
}

// countTokens counts the tokens of chunks.
func countTokens(chunks []engine.Chunk) (n int) {
	for i := range chunks {
		n += len(chunks[i].Tokens)
	}
	return n
}
