package write

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// addAction adds a call with an action, which clients see only when it is complete:
// they never run a part of a command.
func (o *output) addAction(it *outputItem) {
	it.SetAction()
	o.place(it)
	o.add(it, item.StatusCompleted)
	o.events.action(it, o.made[it.slot].JSON)
}

// action writes the events of a call with an action.
func (w *eventWriter) action(it *outputItem, whole []byte) {
	if !w.stream {
		return
	}

	w.itemAdded(it)
	if it.Kind == item.Shell {
		for i, c := range it.Commands() {
			w.command(it, i, ".added", "command", "")
			// Clients know no empty delta.
			if c != "" {
				w.command(it, i, ".delta", "delta", c)
			}
			w.command(it, i, ".done", "command", c)
		}
	}

	w.itemDone(it, whole)
}

// command writes an event of one command of a shell call. Such events have no item_id.
func (w *eventWriter) command(it *outputItem, index int, step, member, text string) {
	w.Begin(it.Kind.Names().Event, step)
	w.Dst = strconv.AppendInt(append(w.Dst, `,"output_index":`...), int64(it.index), 10)
	w.Dst = strconv.AppendInt(append(w.Dst, `,"command_index":`...), int64(index), 10)
	w.Dst = jsontext.AppendString(append(append(append(w.Dst, `,"`...), member...), `":`...), text)
	w.End()
}
