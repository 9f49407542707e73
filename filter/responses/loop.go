package responses

import (
	"context"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A reply is a loop of steps: a model call, what tools have to do because of it,
// the next model call. Before the first call tools can have something to do too:
// servers have to be asked for their tools, and approved calls to be made.

// Step is what has to be done for a reply before it can go on: jobs of tools, of
// which [Reply.Did] is told, or a model call, whose answer [Reply.Push] gets.
// Without either the reply has come to its end.
type Step struct {
	Jobs []tools.Job
	Call *engine.Request
}

// Step begins the next step, when the one before it is done, and appends what
// the client gets of it. A reply with which no step is begun has one model call.
func (r *Reply) Step(dst []byte) ([]byte, Step, *apierror.Error) {
	if r.ended {
		return dst, Step{}, nil
	}
	r.steps = true
	if r.next == nil {
		r.next = (*Reply).firstStep
	}
	r.dst = dst
	r.begin()
	step, err := r.next(r)
	dst, r.dst = r.dst, nil
	return dst, step, err
}

// firstStep is the model call, or what has to be known before it.
func (r *Reply) firstStep() (Step, *apierror.Error) {
	if o := r.call.opening; o != nil {
		r.beginLists(o)
		return r.work((*Reply).listedStep)
	}
	return r.callStep()
}

// listedStep is the calls that the client has approved: now it is known what the
// servers have. Nothing is called for a request that cannot be answered.
func (r *Reply) listedStep() (Step, *apierror.Error) {
	o := r.call.opening
	if err := o.decoder.addHostedTools(); err != nil {
		return Step{}, err
	}
	if len(o.approved) == 0 {
		return r.openedStep()
	}
	if _, err := o.decoder.prepare(o.ctx); err != nil {
		return Step{}, ofInput(err)
	}
	if err := o.claimApproved(); err != nil {
		return Step{}, storeDown(err)
	}
	for i := range o.approved {
		r.beginApproved(o, &o.approved[i])
	}
	return r.work((*Reply).openedStep)
}

func (r *Reply) callStep() (Step, *apierror.Error) {
	r.next = (*Reply).calledStep
	if r.call.compaction == nil {
		r.reader.Corrected()
	}
	return Step{Call: r.call.turn.Engine}, nil
}

// work is the step in which tools do what is to be done, if it is anything.
func (r *Reply) work(next func(*Reply) (Step, *apierror.Error)) (Step, *apierror.Error) {
	r.next = next
	var step Step
	for _, w := range r.works {
		if w.result == nil {
			step.Jobs = append(step.Jobs, w.job)
			r.waiting = append(r.waiting, w)
		}
	}
	r.tell()
	if len(step.Jobs) == 0 {
		return next(r)
	}
	return step, nil
}

// openedStep is the first model call of a reply that began with tools' work.
func (r *Reply) openedStep() (Step, *apierror.Error) {
	t, err := r.call.opening.prepare(r)
	if err != nil {
		return Step{}, err
	}
	r.call.opening, r.call.turn = nil, t
	r.beginTurn(t)
	return r.callStep()
}

// calledStep ends a model call and gives what follows from it.
func (r *Reply) calledStep() (Step, *apierror.Error) {
	if err := r.closeTurn(); err != nil {
		return Step{}, err
	}
	if r.reader.Finish() == turn.FinishLength {
		r.outOfRoom, r.unknown = true, 0 // calls that are complete are made all the same
	}
	if len(r.works)+r.unknown == 0 {
		return Step{}, nil
	}
	return r.work((*Reply).workedStep)
}

// workedStep is the next model call, unless the client has to act first or a
// limit is reached.
func (r *Reply) workedStep() (Step, *apierror.Error) {
	room := 0
	if most := r.call.maxOutput; most > 0 {
		r.countTurn()
		if room = most - r.usage.total().output; room <= 0 {
			r.outOfRoom = true
		}
	}
	switch {
	case r.handedOver, r.outOfRoom:
		return Step{}, nil
	case len(r.usage.turns)-r.usage.earlier >= r.call.scope.Limits.Turns:
		r.stopped = true
		return Step{}, nil
	}
	items, err := r.newItems()
	if err != nil {
		return Step{}, err
	}
	t, err := r.call.turn.Continue(items, room)
	if err != nil && err.Code == "context_length_exceeded" { // what the tools have done stays
		r.outOfRoom = true
		return Step{}, nil
	}
	if err != nil {
		return Step{}, ofInput(err)
	}
	r.call.turn, r.unknown = t, 0
	r.beginTurn(t)
	return r.callStep()
}

// newItems is what the prompt has not yet of the reply's items.
func (r *Reply) newItems() ([]turn.Item, *apierror.Error) {
	d := &decoder{api: r.call.api, scope: r.call.scope}
	d.noteNumbered(r.call.hosted)
	for ; r.known < len(r.made); r.known++ {
		if m := &r.made[r.known]; m.items != nil {
			d.add(m.items...)
		} else if m.json != nil {
			if err := d.addItemOf(store.Item{ID: m.id, JSON: m.json}); err != nil {
				return nil, err
			}
		}
	}
	return d.input.Items, nil
}

// The bounds of what the tools of one response give, and of the calls of one of
// its turns, whose results come together. Beyond them no more calls are made.
const (
	maxResultBytes = 16 << 20
	maxTurnCalls   = 64
)

// work is what a tool does for the reply, and the item that tells of it.
type work struct {
	job    tools.Job
	item   *outputItem
	result *tools.Result                                         // nil until it is done
	settle func(ctx context.Context, result *tools.Result) error // keeps what came of an approved call; nil: nothing is kept
}

// Did takes what came of the i-th job of the step, and appends what the client
// gets of it. Items are completed in their order.
func (r *Reply) Did(dst []byte, i int, result tools.Result) []byte {
	if r.ended {
		return dst
	}
	r.waiting[i].result = &result
	r.settle(r.waiting[i])
	r.resultBytes += len(result.Text)
	for _, part := range result.Content { // of which some items have what is no text
		r.resultBytes += len(part.Data)
	}
	if result.Cause != nil {
		r.note(fmt.Errorf("%s: %w", r.waiting[i].job.Server.Label, result.Cause))
	}
	r.dst = dst
	r.tell()
	dst, r.dst = r.dst, nil
	return dst
}

// tell completes the items of the works that are done, up to the first that is
// not.
func (r *Reply) tell() {
	for len(r.works) > 0 && r.works[0].result != nil {
		w := r.works[0]
		r.works[0], r.works = nil, r.works[1:]
		r.completeWork(w)
	}
	if len(r.works) == 0 {
		clear(r.waiting)
		r.waiting = r.waiting[:0]
	}
}

func (r *Reply) completeWork(w *work) {
	it := w.item
	it.result = w.result
	status := it.ended()
	if it.kind == listItem {
		if status == statusCompleted {
			if odd := it.hosted.offer(w.result.Tools, r.call.scope.Limits); odd != nil {
				r.note(fmt.Errorf("%s: %w", it.hosted.server.Label, odd))
			}
		} else {
			it.hosted.failure = w.result.Error
		}
		if it.hosted.builtin != nil { // the client has not asked for the server
			return
		}
	}
	if it.hosted.builtin != nil {
		r.completeBuiltin(it)
	}
	r.addItem(it, status)
	if status == statusCompleted || it.kind == serverItem || it.kind == listItem { // of the others clients know no failure
		r.writeItemStep(it, it.kind.names().step, "."+status)
	}
	r.writeItemDone(it)
}

// ended is the status of an item whose tool has done its work. Code that raises an
// error has run.
func (it *outputItem) ended() string {
	if it.result.Error != "" && (it.kind != codeItem || len(it.result.Content) == 0) {
		return statusFailed
	}
	return statusCompleted
}

// endCall takes a call that the model has completed.
func (r *Reply) endCall(it *outputItem) {
	if it.hosted.builtin != nil {
		r.endBuiltin(it)
		return
	}
	r.writeText(it)
	r.begins(&work{item: it, job: tools.Job{Server: it.hosted.server, Tool: it.call.Name, Arguments: it.plainText()}})
}

// begins begins the work for a call, if there may be one more.
func (r *Reply) begins(w *work) {
	r.hostedCalls++
	most := r.call.maxToolCalls
	switch {
	case w.result != nil:
	case most > 0 && r.hostedCalls > most, r.resultBytes > maxResultBytes, len(r.works) >= maxTurnCalls:
		w.result = &tools.Result{Error: "The limit of tool calls is reached. Answer with what you have."}
	case w.item.call.Refused:
		w.result = &tools.Result{Error: "The request does not allow this tool."}
	}
	r.works = append(r.works, w)
}

// endUnknown answers a call of a tool that there is not. The client is told
// neither of the call nor of the answer.
func (r *Reply) endUnknown(it *outputItem) {
	r.unknown++
	r.made = append(r.made, madeItem{items: []turn.Item{
		{Kind: turn.Call, Text: it.plainText(), CallID: it.call.ID, Name: it.call.Name},
		{Kind: turn.Result, Text: turn.NoSuchTool(it.call.Name), CallID: it.call.ID, Hosted: true},
	}})
}

// opening is what a reply needs before its first model call.
type opening struct {
	ctx      context.Context //nolint:containedctx // its values are for reading from the store
	decoder  *decoder
	unlisted []*hosted
	approved []approvedCall
}

// openingOf is nil where the model can be called at once.
func (d *decoder) openingOf(ctx context.Context) (*opening, *apierror.Error) {
	o := &opening{ctx: context.WithoutCancel(ctx), decoder: d}
	for _, h := range d.hosted {
		if h.known {
			continue
		}
		if listed, ok := d.facts.listed[h.label]; ok && h.builtin == nil {
			_ = h.offer(listed, d.scope.Limits) // the operator has been told when they were listed
		} else if !d.input.NoCalls {
			o.unlisted = append(o.unlisted, h)
		}
	}
	var err *apierror.Error
	if o.approved, err = d.findApproved(ctx); err != nil {
		return nil, err
	}
	for i := range o.approved {
		if _, err := d.serverOf(&o.approved[i]); err != nil {
			return nil, err
		}
	}
	switch {
	case d.triggered && len(o.approved) > 0:
		return nil, apierror.Invalid(o.approved[0].at, "A conversation that is compacted cannot go on with a call. Send the approval in a request of its own.")
	case len(o.unlisted)+len(o.approved) == 0, d.scope.Unbounded, d.triggered:
		return nil, d.addHostedTools()
	}
	return o, nil
}

// beginLists begins the items with which servers list their tools.
func (r *Reply) beginLists(o *opening) {
	for _, h := range o.unlisted {
		it := &outputItem{kind: listItem, hosted: h, id: r.call.scope.NewID(listItem.names().prefix)}
		if h.builtin == nil {
			r.place(it)
			r.writeItemAdded(it)
			r.writeItemStep(it, it.kind.names().step, ".in_progress")
		}
		r.works = append(r.works, &work{item: it, job: tools.Job{Server: h.server}})
	}
}

// beginApproved begins a call about which the client has a verdict.
func (r *Reply) beginApproved(o *opening, c *approvedCall) {
	h, err := o.decoder.serverOf(c)
	if err != nil {
		return // has been checked
	}
	it := &outputItem{
		kind: serverItem, hosted: h, id: r.call.scope.NewID(serverItem.names().prefix), approval: c.request,
		call: &turn.CalledTool{Namespace: c.label, Name: c.name},
	}
	r.place(it)
	r.writeItemAdded(it)
	r.writeItemStep(it, it.kind.names().step, ".in_progress")
	r.item = it
	r.addText([]byte(c.arguments))
	r.closeDelta()
	r.item = nil
	r.writeText(it)
	w := &work{item: it, job: tools.Job{Server: h.server, Tool: c.name, Arguments: c.arguments}, result: c.result, settle: c.settle}
	if w.result == nil && h.tool(c.name) == nil {
		w.result = &tools.Result{Error: "The server has no such tool, or it may not be called."}
	}
	r.begins(w)
	if w.result != nil {
		r.settle(w)
	}
}

// prepare makes the first model call's request of what the tools have given.
func (o *opening) prepare(r *Reply) (*turn.Turn, *apierror.Error) {
	items, err := r.newItems()
	if err != nil {
		return nil, err
	}
	d := o.decoder
	d.add(items...)
	t, err := d.prepare(o.ctx)
	if err != nil {
		return nil, ofInput(err)
	}
	return t, nil
}

// NewCheck checks an answer to the model call being made, nil if it promises
// nothing that the engine does not see to.
func (r *Reply) NewCheck() *turn.Check { return r.call.turn.NewCheck() }
