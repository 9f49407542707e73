package responses

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// preflightReply is how far the preflight of a reply has come.
type preflightReply struct {
	*preflight
	records approvalRecords
	own     []*approvalRecord // of the approved calls
	first   []*approvalRecord // that are stored for them
}

func (r *Reply) newPreflight(p *preflight) *preflightReply {
	return &preflightReply{preflight: p, records: approvalRecords{store: r.request.services.Approvals, tenant: r.request.rc.Tenant}}
}

// firstStep lets servers list their tools.
func (p *preflightReply) firstStep(r *Reply) (api.Step, *apierror.Error) {
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
func (p *preflightReply) listedStep(r *Reply) (api.Step, *apierror.Error) {
	if err := p.preparation.Offer(r.request.Asked); err != nil {
		return api.Step{}, err
	}
	if len(p.approved) == 0 {
		return p.prepareStep(r)
	}
	return r.runJobs([]stepJob{p.prepareJob(r, nil, func(*prepared) {})}, p.recordStep)
}

// recordStep begins the approval records. If the store fails nothing is called.
func (p *preflightReply) recordStep(r *Reply) (api.Step, *apierror.Error) {
	for i := range p.approved {
		p.own = append(p.own, newRecord(&p.approved[i], r.request.rc.NewID(recordPrefix)))
	}
	if p.records.store == nil {
		p.first = p.own
		return p.approvedStep(r)
	}
	job := stepJob{beginApprovals{p.records, p.approved, p.own}, func(result any, err error) {
		var ok bool
		if p.first, ok = result.([]*approvalRecord); !ok {
			r.steps.err = stored.Unavailable(err)
		}
	}}
	return r.runJobs([]stepJob{job}, p.approvedStep)
}

// approvedStep makes the calls that the client has approved.
func (p *preflightReply) approvedStep(r *Reply) (api.Step, *apierror.Error) {
	for i := range p.approved {
		p.startApproved(r, i)
	}
	return r.runJobs(r.tools.jobs(), p.prepareStep)
}

// startApproved begins the item of the i-th call about which the client has a
// verdict. The call is not made if its outcome is known already.
func (p *preflightReply) startApproved(r *Reply, i int) {
	c := &p.approved[i]
	h := c.server
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
		if p.records.store != nil {
			t.completion = &recordCompletion{records: p.records, request: c.request, own: *p.own[i]}
		}
		if h.Tool(c.name) == nil {
			t.known = &tools.Result{Error: "The server has no such tool, or it may not be called."}
		}
	}
	r.tools.start(t)
}

// prepareStep makes the first model call's request, with what the tools have
// returned.
func (p *preflightReply) prepareStep(r *Reply) (api.Step, *apierror.Error) {
	items, err := r.newItems()
	if err != nil {
		return api.Step{}, err
	}
	return r.runJobs([]stepJob{p.prepareJob(r, items, func(first *prepared) { r.beginFirst(first, p.preparation) })}, p.lastStep)
}

// lastStep is the first model call.
func (*preflightReply) lastStep(r *Reply) (api.Step, *apierror.Error) {
	r.request.preflight = nil
	return r.callStep()
}

// prepareJob is the job that makes the token request.
func (p *preflightReply) prepareJob(r *Reply, made []turn.Item, done func(*prepared)) stepJob {
	return stepJob{p.preparation.First(made), func(result any, err error) {
		if first, ok := result.(*prepared); ok {
			done(first)
			return
		}
		r.steps.err = ofInput(jobError(err))
	}}
}
