package responses

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// preflight is what a reply does before its first model call: servers list their
// tools, and calls are made that the client has approved.
type preflight struct {
	decoder  *decoder
	unlisted []*hostedServer
	approved []approvedCall
	own      []*approvalRecord // of the approved calls
	first    []*approvalRecord // that are stored for them
	compacts bool              // the conversation is compacted, and nothing else is to be done
}

// newPreflight is nil where the model can be called at once.
func (d *decoder) newPreflight(ctx context.Context) (*preflight, *apierror.Error) {
	p := &preflight{decoder: d}
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
	for i := range p.approved {
		if _, err := d.tools.serverOf(&p.approved[i]); err != nil {
			return nil, err
		}
	}
	compacts := d.items.compacting.triggered
	switch {
	case compacts && len(p.approved) > 0:
		return nil, apierror.Invalid(p.approved[0].at, "A conversation that is compacted cannot continue with a call. Send the approval in a request of its own.")
	case d.rc.Unbounded && !compacts:
		p.listNow(ctx)
		return nil, d.tools.addHostedTools()
	case len(p.unlisted)+len(p.approved) == 0, compacts:
		return nil, d.tools.addHostedTools()
	}
	return p, nil
}

// listNow lets servers list their tools for a prompt that no model gets. Nothing is
// stored, and no call is made.
func (p *preflight) listNow(ctx context.Context) {
	servers := make([]*hosted.Server, len(p.unlisted))
	for i, h := range p.unlisted {
		servers[i] = &h.Server
	}
	hosted.List(ctx, p.decoder.api.toolServers(), servers, p.decoder.rc)
}

// firstStep lets servers list their tools.
func (p *preflight) firstStep(r *Reply) (api.Step, *apierror.Error) {
	if p.compacts {
		return p.prepareStep(r)
	}
	for _, h := range p.unlisted {
		it := &outputItem{Output: item.Output{Kind: item.MCPList, ID: r.request.rc.NewID(item.MCPList.Names().Prefix), Server: h.Label}, hosted: h}
		if h.Builtin == nil {
			r.output.announce(it)
		}
		r.tools.pending = append(r.tools.pending, &toolRun{item: it, job: tools.Job{Server: h.MCP}})
	}
	return r.runJobs(r.tools.jobs(), p.listedStep)
}

// listedStep follows when the tools are known. Before approved calls are made it is
// checked that the request can be answered.
func (p *preflight) listedStep(r *Reply) (api.Step, *apierror.Error) {
	if err := p.decoder.tools.addHostedTools(); err != nil {
		return api.Step{}, err
	}
	r.request.tools.deferred = p.decoder.tools.deferred
	r.request.ignored = p.decoder.fields.ignored
	if len(p.approved) == 0 {
		return p.prepareStep(r)
	}
	return r.runJobs([]stepJob{p.prepareJob(r, func(*prepared) {})}, p.recordStep)
}

// recordStep begins the approval records. If the store fails nothing is called.
func (p *preflight) recordStep(r *Reply) (api.Step, *apierror.Error) {
	for i := range p.approved {
		p.own = append(p.own, newRecord(&p.approved[i], r.request.rc.NewID(recordPrefix)))
	}
	if p.records().store == nil {
		p.first = p.own
		return p.approvedStep(r)
	}
	job := stepJob{beginApprovals{p.records(), p.approved, p.own}, func(result any, err error) {
		var ok bool
		if p.first, ok = result.([]*approvalRecord); !ok {
			r.steps.err = stored.Unavailable(err)
		}
	}}
	return r.runJobs([]stepJob{job}, p.approvedStep)
}

func (p *preflight) records() approvalRecords {
	return approvalRecords{store: p.decoder.api.Approvals, tenant: p.decoder.rc.Tenant}
}

// approvedStep makes the calls that the client has approved.
func (p *preflight) approvedStep(r *Reply) (api.Step, *apierror.Error) {
	for i := range p.approved {
		p.startApproved(r, i)
	}
	return r.runJobs(r.tools.jobs(), p.prepareStep)
}

// startApproved begins the item of the i-th call about which the client has a
// verdict. The call is not made if its outcome is known already.
func (p *preflight) startApproved(r *Reply, i int) {
	c := &p.approved[i]
	h, err := p.decoder.tools.serverOf(c)
	if err != nil {
		return // has been checked
	}
	it := &outputItem{
		Output: item.Output{
			Kind: item.MCPCall, ID: r.request.rc.NewID(item.MCPCall.Names().Prefix), Approval: c.request,
			Call: &turn.CalledTool{Namespace: c.label, Name: c.name},
		},
		hosted: h,
	}
	r.output.announce(it)
	r.output.write(it, []byte(c.arguments))
	r.events.closeDelta(it)
	r.events.text(it)
	t := &toolRun{item: it, job: tools.Job{Server: h.MCP, Tool: c.name, Arguments: c.arguments}, known: p.own[i].outcome(p.first[i])}
	if t.known == nil {
		if p.records().store != nil {
			t.completion = &recordCompletion{records: p.records(), request: c.request, own: *p.own[i]}
		}
		if h.Tool(c.name) == nil {
			t.known = &tools.Result{Error: "The server has no such tool, or it may not be called."}
		}
	}
	r.tools.start(t)
}

// prepareStep makes the first model call's request, with what the tools have
// returned.
func (p *preflight) prepareStep(r *Reply) (api.Step, *apierror.Error) {
	items, err := r.newItems()
	if err != nil {
		return api.Step{}, err
	}
	p.decoder.items.addTurn(items...)
	return r.runJobs([]stepJob{p.prepareJob(r, func(first *prepared) { first.begin(r, p.decoder) })}, p.lastStep)
}

// lastStep is the first model call.
func (*preflight) lastStep(r *Reply) (api.Step, *apierror.Error) {
	r.request.preflight = nil
	return r.callStep()
}

// prepareJob is the job that makes the token request.
func (p *preflight) prepareJob(r *Reply, done func(*prepared)) stepJob {
	return stepJob{p.decoder.preparation(), func(result any, err error) {
		if first, ok := result.(*prepared); ok {
			done(first)
			return
		}
		r.steps.err = ofInput(jobError(err))
	}}
}
