package read

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// newPreflight is nil where the model can be called at once.
func (d *decoder) newPreflight(ctx context.Context) (*request.Preflight, *apierror.Error) {
	p := &request.Preflight{Preparation: d}
	for _, h := range d.tools.Hosted {
		if h.Known {
			continue
		}
		if listed, ok := d.items.state.listed[h.Label]; ok && h.Builtin == nil && h.Covers(listed) {
			// What is left out was logged when the tools were listed.
			_ = h.Offer(d.rc, listed)
		} else if !d.fields.input.NoCalls {
			p.Unlisted = append(p.Unlisted, h)
		}
	}

	var err *apierror.Error
	if p.Approved, err = d.findApproved(ctx); err != nil {
		return nil, err
	}

	// A summary calls no tools, so that no server has to list any.
	compacts := d.items.compacting.triggered
	switch {
	case compacts && len(p.Approved) > 0:
		return nil, apierror.Invalid(p.Approved[0].At,
			"A conversation that is compacted cannot continue with a call. Send the approval in a request of its own.")
	case d.rc.Unbounded && !compacts:
		d.listNow(ctx, p.Unlisted)
		return nil, d.tools.OfferHosted()
	case len(p.Unlisted)+len(p.Approved) == 0, compacts:
		return nil, d.tools.OfferHosted()
	}

	return p, nil
}

// listNow lets servers list their tools for a prompt that no model gets. Nothing is
// stored, and no call is made.
func (d *decoder) listNow(ctx context.Context, unlisted []*toolset.Server) {
	servers := make([]*hosted.Server, len(unlisted))
	for i, h := range unlisted {
		servers[i] = &h.Server
	}
	hosted.List(ctx, d.reader.Servers, servers, d.rc)
}

// Offer implements [request.Preparation].
func (d *decoder) Offer(r *request.Request) *apierror.Error {
	if err := d.tools.OfferHosted(); err != nil {
		return err
	}
	r.Tools.Deferred, r.IgnoredFields = d.tools.Deferred, d.fields.ignored
	return nil
}

// First implements [request.Preparation].
func (d *decoder) First(made []turn.Item) api.Job {
	d.items.addTurn(made...)
	return d.firstCall()
}

// AfterCompaction implements [request.Preparation].
func (d *decoder) AfterCompaction(made *store.Item) api.Job {
	return &afterCompaction{decoder: d, made: made}
}
