package extproc

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/budget"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/run"
)

// quota returns what a party's request to a target takes of token quotas; nil if none
// bounds it.
func (s *Server) quota(p party, to *run.Target) *budget.Account {
	if to.Engine == "" {
		return nil
	}
	return s.o.Budgets.Account(budget.Subject{Tenant: p.tenant, Key: p.key, Model: to.Model})
}

// reserveTokens reserves what the first model call of a request can use, and limits its output to
// that. A request without one yet reserves before its first call.
func (s *Server) reserveTokens(ctx context.Context, h *handled, recording *record.Tape) {
	r := h.outcome.Request
	if h.quota == nil || r == nil || r.Engine() == nil {
		return
	}
	output, err := h.quota.Reserve(ctx, budget.Usage{}, run.BudgetCall(r.Engine()))
	if err != nil {
		recording.Failed(err)
		s.drop(h)
		h.outcome = api.Refused(err)
		return
	}

	// Here, because without a loopback listener the call is sent as it is, and the metadata of
	// the request names the limit.
	run.LimitOutput(r.Engine(), output)
}

// returnTokens returns what was reserved for a reply that is not made.
func (s *Server) returnTokens(a *budget.Account) {
	if a == nil {
		return
	}
	// The request has ended. The process waits for this at its own end.
	s.o.Env.Workers.Go(func() {
		if err := a.Settle(context.Background(), budget.Usage{}); err != nil {
			s.telemetry.Log.WithError(err).Warn("What was reserved of a token budget could not be returned")
		}
	})
}
