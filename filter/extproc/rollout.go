package extproc

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/rollout"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
)

// A rollout has only a part of the sessions of a Harmony model handled here. The
// others pass through as requests for other models do. A request is on the side of
// its session, which can need the whole body to be known; a request that continues
// a stored response or conversation is on the side that has stored it. What is too
// large or too slow to be collected for this passes through: only the filter has
// these limits.

// rolledOut is what the rollout makes of a request.
type rolledOut struct {
	entry     *config.Rollout // nil: none is for the request
	side      string          // "": not known, or there is no entry
	undecided bool            // there is an entry, and the side is not known yet

	// What the request continues, and by which its side is known once the store
	// has been asked; "": nothing.
	response, conversation string
}

// decide notes the side of a request, and reports whether it is the upstream.
func (o *rolledOut) decide(in bool) (upstream bool) {
	o.side, o.undecided = telemetry.RolloutUpstream, false
	if in {
		o.side = telemetry.RolloutFilter
	}
	return !in
}

// count counts a request whose side is known.
func (o *rolledOut) count(m *telemetry.Metrics) {
	if o.side != "" {
		m.RolledOut(o.entry.Match, o.entry.Tenant, o.side)
	}
}

// rollOut finds the rollout of a request for a Harmony model, and decides the request's side if
// it is known.
func (r *clientRequest) rollOut(cfg *config.Config) {
	if r.override == overrideOn {
		return
	}
	entry := cfg.RolloutOf(r.scan.model, r.tenant)
	if entry == nil {
		return
	}

	// A session that the headers name decides at once, unless the request may continue what is
	// stored: then where it is stored does.
	r.rollout.entry = entry
	switch percent := *entry.Percent; {
	case percent == 0, percent == 100:
		r.rollout.decide(percent == 100)
	case r.session != "" && !continues(r.endpoint):
		r.rollout.decide(rollout.Named(r.tenant, r.session).In(percent))
	default:
		r.rollout.undecided = true
	}
}

// continues reports whether the requests of an endpoint can continue what is stored.
func continues(e *api.Endpoint) bool { return e.API == "responses" }

// decideByBody decides by the whole body what has to be, and reports whether the
// request is the upstream's. One that continues something is handled, and turns out
// to be the upstream's if that is not stored here.
func (r *clientRequest) decideByBody(body []byte) (upstream bool) {
	if !r.rollout.undecided {
		return false
	}

	q := rollout.Read(body)
	if continues(r.endpoint) && q.Response+q.Conversation != "" {
		// They outlive the body
		r.rollout.response, r.rollout.conversation = strings.Clone(q.Response), strings.Clone(q.Conversation)
		return false
	}

	// Requests of one conversation have the same beginning, where nothing names their session.
	key := q.Beginning(r.tenant, r.scan.model)
	if session := cmp.Or(r.session, q.CacheKey); session != "" {
		key = rollout.Named(r.tenant, session)
	}
	return r.rollout.decide(key.In(*r.rollout.entry.Percent))
}

// whereStored is an endpoint's handler, for a request that continues something: it
// handles the request only if that is stored here.
func (s *Server) whereStored(o *rolledOut, handle handler) handler {
	response, conversation := o.response, o.conversation
	if response+conversation == "" {
		return handle
	}
	return func(ctx context.Context, r *api.HTTPRequest) api.Outcome {
		stored, err := s.o.Stored(record.With(ctx, nil), r.Context.Tenant, response, conversation)
		if err == nil && !stored {
			return api.Elsewhere(notStored(response))
		}
		// The endpoint reports that the store fails.
		return handle(ctx, r)
	}
}

// notStored is the error for a request that continues a response, else a
// conversation, that is stored nowhere.
func notStored(response string) *apierror.Error {
	if response == "" {
		return apierror.New(http.StatusNotFound, "", "conversation",
			"The conversation is not stored (any more). Begin another one.")
	}
	return apierror.New(http.StatusBadRequest, "previous_response_not_found", "previous_response_id",
		"The response that the request continues is not stored (any more). Send the whole conversation as input.")
}

type handler = func(context.Context, *api.HTTPRequest) api.Outcome
