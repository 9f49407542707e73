package write

import (
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/hosted"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// preflight is the stages of a reply before its first model call:
//
//	list      servers list their tools
//	listed    the tools are offered; with approved calls, it is checked that the request can be answered
//	begin     the approvals are begun in the store
//	approved  the approved calls are made
//	prepare   the token request is made, with what the tools have returned
//
// Without approved calls, prepare follows listed.
type preflight struct {
	*request.Preflight
	encoder *encoder

	approvals approvals
	own       []*approval // of the approved calls
	first     []*approval // that are stored for them
}

func newPreflight(e *encoder, p *request.Preflight) *preflight {
	return &preflight{
		Preflight: p, encoder: e,
		approvals: approvals{store: e.request.Services.Approvals, tenant: e.request.Context.Tenant},
	}
}

// list lets servers list their tools.
func (p *preflight) list(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	// Nothing is left to be listed: the prompt has been made, and was too long.
	if p.Compacts {
		return p.prepare(dst)
	}

	e := p.encoder
	e.events.Dst = dst
	for _, h := range p.Unlisted {
		e.reply.Start(e.listRun(h))
	}

	dst, jobs := e.reply.Runs(e.take())

	return dst, reply.Step{Jobs: jobs, Then: p.listed}, nil
}

// listRun is the run in which a server lists its tools.
func (e *encoder) listRun(h *hosted.Server) *reply.Run {
	it := &outputItem{
		Output: item.Output{
			Kind:   item.MCPList,
			ID:     e.request.Context.NewID(item.MCPList.Names().Prefix),
			Server: h.Label,
		},
		hosted: h,
	}
	// The client has named a tool, and no server: it gets no item about one.
	if h.Builtin == nil {
		e.output.announce(it)
	}

	r := e.newRun(it, h.MCP)
	r.Job = hosted.ListJob{Runner: e.request.Services.Servers, Server: h, Request: e.request.Context}
	return r
}

// listed follows when the tools are known. Before approved calls are made it is
// checked that the request can be answered.
func (p *preflight) listed(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	if err := p.Preparation.Offer(p.encoder.request.Request); err != nil {
		return dst, reply.Step{}, err
	}
	if len(p.Approved) == 0 {
		return p.prepare(dst)
	}
	check := p.prepareJob(nil, func(dst []byte, _ *request.Prepared) []byte { return dst })
	return dst, reply.Step{Jobs: []reply.Job{check}, Then: p.begin}, nil
}

// begin begins the approvals in the store. If the store fails nothing is called.
func (p *preflight) begin(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	for i := range p.Approved {
		p.own = append(p.own, newApproval(&p.Approved[i], p.encoder.request.Context.NewID(approvalPrefix)))
	}

	if p.approvals.store == nil {
		p.first = p.own
		return p.approved(dst)
	}

	begin := reply.Job{Do: beginApprovals{
		p.approvals,
		p.Approved,
		p.own,
	}, Done: func(dst []byte, result any, err error) ([]byte, *apierror.Error) {
		var ok bool
		if p.first, ok = result.([]*approval); !ok {
			return dst, stored.Unavailable(err)
		}
		return dst, nil
	}}

	return dst, reply.Step{Jobs: []reply.Job{begin}, Then: p.approved}, nil
}

// approved makes the calls that the client has approved.
func (p *preflight) approved(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	e := p.encoder
	e.events.Dst = dst
	for i := range p.Approved {
		e.reply.Start(p.approvedRun(i))
	}
	dst, jobs := e.reply.Runs(e.take())
	return dst, reply.Step{Jobs: jobs, Then: p.prepare}, nil
}

// approvedRun begins the item of the i-th call about which the client has a verdict. The
// call is not made if its outcome is known already.
func (p *preflight) approvedRun(i int) *reply.Run {
	e, c := p.encoder, &p.Approved[i]
	it := &outputItem{
		Output: item.Output{
			Kind: item.MCPCall, ID: e.request.Context.NewID(item.MCPCall.Names().Prefix), Approval: c.RequestID,
			Call: &turn.CalledTool{Namespace: c.Label, Name: c.Name},
		},
		hosted: c.Server,
	}
	e.output.announce(it)
	e.output.write(it, []byte(c.Arguments))
	e.events.closeDelta(it)
	e.events.text(it)

	job := toolJob{
		servers: e.request.Services.Servers, job: tools.Job{Server: c.Server.MCP, Tool: c.Name, Arguments: c.Arguments},
		known: p.own[i].outcome(p.first[i]),
	}
	if job.known == nil {
		if p.approvals.store != nil {
			job.completion = &completion{approvals: p.approvals, request: c.RequestID, own: *p.own[i]}
		}
		// The server may have changed its tools, or the request its filter, since the client was asked.
		if c.Server.Tool(c.Name) == nil {
			job.known = &tools.Result{Error: "The server has no such tool, or it may not be called."}
		}
	}

	// Every call counts, also one whose outcome is known.
	if refused := e.reply.Refuse(); job.known == nil {
		job.known = refused
	}

	r := e.newRun(it, c.Server.MCP)
	r.Call, r.Known = it.Call, job.known
	if job.known == nil || job.completion != nil {
		r.Job = job
	}

	return r
}

// prepare makes the first model call's request, with what the tools have returned.
func (p *preflight) prepare(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	items, err := p.encoder.newItems()
	if err != nil {
		return dst, reply.Step{}, err
	}

	prepare := p.prepareJob(items, func(dst []byte, first *request.Prepared) []byte {
		// The preflight holds all that was read of the request.
		p.encoder.request.Preflight = nil
		return p.encoder.beginFirst(dst, first, p.Preparation)
	})

	return dst, reply.Step{Jobs: []reply.Job{prepare}}, nil
}

// prepareJob is the job that makes the token request.
func (p *preflight) prepareJob(made []turn.Item, done func([]byte, *request.Prepared) []byte) reply.Job {
	take := func(dst []byte, result any, err error) ([]byte, *apierror.Error) {
		first, ok := result.(*request.Prepared)
		if !ok {
			return dst, request.OfInput(reply.Failure(err))
		}
		return done(dst, first), nil
	}

	return reply.Job{Do: p.Preparation.First(made), Done: take}
}
