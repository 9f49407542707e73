package read

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// newPreflight is nil where the model can be called at once.
func (d *decoder) newPreflight(ctx context.Context) (*request.Preflight, *apierror.Error) {
	p := &request.Preflight{Preparation: d, Unlisted: d.tools.Unlisted(d.items.state.listed)}

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
		// No reply could have the preflight, and no call is made.
		hosted.List(ctx, d.reader.Servers, p.Unlisted, d.rc)
		return nil, d.tools.Offer()
	case len(p.Unlisted)+len(p.Approved) == 0, compacts:
		return nil, d.tools.Offer()
	}

	return p, nil
}

// Offer implements [request.Preparation].
func (d *decoder) Offer(r *request.Request) *apierror.Error {
	if err := d.tools.Offer(); err != nil {
		return err
	}
	d.tools.Settle(&r.Tools)
	r.IgnoredFields = d.fields.ignored
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
