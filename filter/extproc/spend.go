package extproc

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// account returns the account of a party's request to a target; nil if no token budget
// bounds it.
func (s *Server) account(p party, to *run.Target) *budget.Account {
	if to.Engine == "" {
		return nil
	}
	return s.o.Budgets.Account(budget.Subject{Tenant: p.tenant, Key: p.key, Model: to.Model})
}

// reserve reserves what the first model call of a request can use. A request without one
// yet reserves before its first call.
func (s *Server) reserve(ctx context.Context, h *handled, tape *record.Tape) {
	r := h.outcome.Request
	if h.account == nil || r == nil || r.Engine() == nil {
		return
	}
	if err := h.account.Reserve(ctx, budget.Usage{}, run.BudgetCall(r.Engine())); err != nil {
		tape.Failed(err)
		s.drop(h)
		h.outcome = api.Outcome{Err: err}
	}
}

// settle returns what was reserved for a reply that is not made.
func (s *Server) settle(a *budget.Account) {
	if a == nil {
		return
	}
	s.o.Env.Workers.Go(func() {
		if err := a.Settle(context.Background(), budget.Usage{}); err != nil {
			s.o.Env.Telemetry.Log.WithError(err).Warn("What was reserved of a token budget could not be returned")
		}
	})
}
