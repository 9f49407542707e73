package write

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// What tools of the filter have returned is part of every prompt until the turn has its answer.
// A response that ends without one therefore leaves its steps in up to three places:
//
//	stored items  beside each item, for requests that continue the response (output.items)
//	a carrier     sealed, for clients that send the whole conversation (carry)
//	Memory        by the ids of the calls, for those that send the items but no carrier (keepSteps)
//
// A response with its answer has nothing of it: its steps are dropped from the prompt.

// maxCarried bounds the steps of a response that a carrier has, or Memory, in bytes: no context has
// room for more, and clients send a carrier in each request.
const maxCarried = 1 << 20

// carry adds a carrier with the steps that no carrier has yet, if there are any. It comes as late
// as it can, so that only turns which the client goes on with have one.
func (o *output) carry() {
	if o.request.Carrier == nil {
		return
	}

	steps := o.uncarried()
	if len(steps) == 0 {
		return
	}

	sealed, err := o.request.Carrier.Seal(seal.Steps, o.request.Context.Tenant, item.AppendSteps(nil, steps))
	if err != nil {
		o.fault = errors.Join(o.fault, fmt.Errorf("seal the steps of a turn: %w", err))
		return
	}
	o.addWhole(&outputItem{Output: item.Output{
		Kind:   item.Carrier,
		ID:     o.request.Context.NewID(item.Carrier.Names().Prefix),
		Sealed: item.CarrierContent(sealed),
	}})
}

// uncarried returns the steps after the last answer that no carrier has, the oldest first. From then
// on one has them. Tools that are at work beside a client's call have not returned yet.
func (o *output) uncarried() []item.Step {
	var steps []item.Step
	var made []*request.Made
	later := 0
	for slot := len(o.made) - 1; slot > o.answered; slot-- {
		m := &o.made[slot]
		switch {
		case m.JSON == nil, m.Carried:
		case m.Kind.IsOwn():
			later++
		// The item of an MCP call has all of it, for clients that send it back. Others leave it out.
		case len(m.View) > 0, m.Kind == item.MCPCall:
			steps, made = append(steps, item.Step{Later: later}), append(made, m)
			m.Carried = true
		}
	}
	slices.Reverse(steps)
	slices.Reverse(made)

	// What is too long is named all the same: the next request says that it has been lost.
	room := maxCarried
	for i, m := range made {
		steps[i].Item = store.Item{ID: m.ID, JSON: bareItem(m)}
		switch {
		case stepBytes(m) > room:
		case len(m.View) > 0:
			steps[i].Item.JSON = o.withView(m, steps[i].Item.JSON)
		default:
			steps[i].Item.JSON = m.JSON
		}
		room -= len(steps[i].Item.JSON)
	}
	return steps
}

// stepBytes is about how many bytes a step takes.
func stepBytes(m *request.Made) int {
	if len(m.View) == 0 {
		return len(m.JSON)
	}
	return len(m.View[0].Text) + len(m.View[1].Text)
}

// bareItem is an item of nothing but its type and id. The type is the item's first member.
func bareItem(m *request.Made) []byte {
	head, _, _ := bytes.Cut(m.JSON, []byte{','})
	return append(jsontext.AppendString(append(bytes.Clone(head), `,"id":`...), m.ID), '}')
}

// keepSteps returns the job that keeps what the steps after the last answer have returned; nil if
// there is nothing to keep, or it has been returned before.
func (o *output) keepSteps() *turn.Keep {
	if o.kept {
		return nil
	}
	o.kept = true

	views := map[string]string{}
	room := maxCarried
	for slot := o.answered + 1; slot < len(o.made); slot++ {
		m := &o.made[slot]
		if m.JSON == nil || len(m.View) == 0 || stepBytes(m) > room {
			continue
		}
		view := item.AppendModelView(nil, &m.View[0], &m.View[1], o.request.Tools.Container)
		views[m.View[0].CallID] = string(view)
		room -= len(view)
	}
	return turn.KeepResults(o.request.Context, views)
}
