package responses

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// newPreflight is nil where the model can be called at once.
func (d *decoder) newPreflight(ctx context.Context) (*preflight, *apierror.Error) {
	p := &preflight{preparation: d}
	for _, h := range d.tools.hosted {
		if h.Known {
			continue
		}
		if listed, ok := d.items.state.listed[h.Label]; ok && h.Builtin == nil && h.Covers(listed) {
			_ = h.Offer(d.rc, listed) // what is left out was logged when the tools were listed
		} else if !d.fields.input.NoCalls {
			p.unlisted = append(p.unlisted, h)
		}
	}
	var err *apierror.Error
	if p.approved, err = d.findApproved(ctx); err != nil {
		return nil, err
	}
	compacts := d.items.compacting.triggered
	switch {
	case compacts && len(p.approved) > 0:
		return nil, apierror.Invalid(p.approved[0].at, "A conversation that is compacted cannot continue with a call. Send the approval in a request of its own.")
	case d.rc.Unbounded && !compacts:
		d.listNow(ctx, p.unlisted)
		return nil, d.tools.addHostedTools()
	case len(p.unlisted)+len(p.approved) == 0, compacts:
		return nil, d.tools.addHostedTools()
	}
	return p, nil
}

// listNow lets servers list their tools for a prompt that no model gets. Nothing is
// stored, and no call is made.
func (d *decoder) listNow(ctx context.Context, unlisted []*hostedServer) {
	servers := make([]*hosted.Server, len(unlisted))
	for i, h := range unlisted {
		servers[i] = &h.Server
	}
	hosted.List(ctx, d.reader.Servers, servers, d.rc)
}

// Offer implements [preparation].
func (d *decoder) Offer(r *Asked) *apierror.Error {
	if err := d.tools.addHostedTools(); err != nil {
		return err
	}
	r.tools.deferred, r.ignored = d.tools.deferred, d.fields.ignored
	return nil
}

// First implements [preparation].
func (d *decoder) First(made []turn.Item) api.Job {
	d.items.addTurn(made...)
	return d.firstCall()
}

// AfterCompaction implements [preparation].
func (d *decoder) AfterCompaction(made *store.Item) api.Job {
	return &afterCompaction{decoder: d, made: made}
}
