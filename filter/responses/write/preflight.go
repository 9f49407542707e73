package write

import (
	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// preflight is how far the preflight of a reply has come.
type preflight struct {
	*request.Preflight
	records approvalRecords
	own     []*approvalRecord // of the approved calls
	first   []*approvalRecord // that are stored for them
}

func (r *Reply) newPreflight(p *request.Preflight) *preflight {
	return &preflight{Preflight: p, records: approvalRecords{store: r.request.Services.Approvals, tenant: r.request.Context.Tenant}}
}

// firstStep lets servers list their tools.
func (p *preflight) firstStep(r *Reply) (api.Step, *apierror.Error) {
	if p.Compacts {
		return p.prepareStep(r)
	}
	for _, h := range p.Unlisted {
		it := &outputItem{Output: item.Output{Kind: item.MCPList, ID: r.request.Context.NewID(item.MCPList.Names().Prefix), Server: h.Label}, hosted: h}
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
	if err := p.Preparation.Offer(r.request.Request); err != nil {
		return api.Step{}, err
	}
	if len(p.Approved) == 0 {
		return p.prepareStep(r)
	}
	return r.runJobs([]stepJob{p.prepareJob(r, nil, func(*request.Prepared) {})}, p.recordStep)
}

// recordStep begins the approval records. If the store fails nothing is called.
func (p *preflight) recordStep(r *Reply) (api.Step, *apierror.Error) {
	for i := range p.Approved {
		p.own = append(p.own, newRecord(&p.Approved[i], r.request.Context.NewID(recordPrefix)))
	}
	if p.records.store == nil {
		p.first = p.own
		return p.approvedStep(r)
	}
	job := stepJob{beginApprovals{p.records, p.Approved, p.own}, func(result any, err error) {
		var ok bool
		if p.first, ok = result.([]*approvalRecord); !ok {
			r.steps.err = stored.Unavailable(err)
		}
	}}
	return r.runJobs([]stepJob{job}, p.approvedStep)
}

// approvedStep makes the calls that the client has approved.
func (p *preflight) approvedStep(r *Reply) (api.Step, *apierror.Error) {
	for i := range p.Approved {
		p.startApproved(r, i)
	}
	return r.runJobs(r.tools.jobs(), p.prepareStep)
}

// startApproved begins the item of the i-th call about which the client has a
// verdict. The call is not made if its outcome is known already.
func (p *preflight) startApproved(r *Reply, i int) {
	c := &p.Approved[i]
	h := c.Server
	it := &outputItem{
		Output: item.Output{
			Kind: item.MCPCall, ID: r.request.Context.NewID(item.MCPCall.Names().Prefix), Approval: c.RequestID,
			Call: &turn.CalledTool{Namespace: c.Label, Name: c.Name},
		},
		hosted: h,
	}
	r.output.announce(it)
	r.output.write(it, []byte(c.Arguments))
	r.events.closeDelta(it)
	r.events.text(it)
	t := &toolRun{item: it, job: tools.Job{Server: h.MCP, Tool: c.Name, Arguments: c.Arguments}, known: p.own[i].outcome(p.first[i])}
	if t.known == nil {
		if p.records.store != nil {
			t.completion = &recordCompletion{records: p.records, request: c.RequestID, own: *p.own[i]}
		}
		if h.Tool(c.Name) == nil {
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
	return r.runJobs([]stepJob{p.prepareJob(r, items, func(first *request.Prepared) { r.beginFirst(first, p.Preparation) })}, p.lastStep)
}

// lastStep is the first model call.
func (*preflight) lastStep(r *Reply) (api.Step, *apierror.Error) {
	r.request.Preflight = nil
	return r.callStep()
}

// prepareJob is the job that makes the token request.
func (p *preflight) prepareJob(r *Reply, made []turn.Item, done func(*request.Prepared)) stepJob {
	return stepJob{p.Preparation.First(made), func(result any, err error) {
		if first, ok := result.(*request.Prepared); ok {
			done(first)
			return
		}
		r.steps.err = request.OfInput(jobError(err))
	}}
}
