package read

import (
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// openCalls are the calls without an output, as items are added.
type openCalls struct {
	open map[string]bool
	// The ids of the calls by the name of the tool, and of all calls by "".
	queues map[string][]string
}

func (o *openCalls) add(items ...turn.Item) {
	for i := range items {
		switch it := &items[i]; it.Kind {
		case turn.Call:
			o.open[it.CallID] = true
			o.queues[""] = append(o.queues[""], it.CallID)
			if it.Name != "" {
				o.queues[it.Name] = append(o.queues[it.Name], it.CallID)
			}
		case turn.Result:
			delete(o.open, it.CallID)
		}
	}
}

// first is the oldest open call of a tool, of any tool if name is "". It returns "" if
// there is none.
func (o *openCalls) first(name string) string {
	// Calls that have been answered are left out here, not when they are: each is looked at once.
	for q := o.queues[name]; len(q) > 0; q = q[1:] {
		if o.open[q[0]] {
			o.queues[name] = q
			return q[0]
		}
	}
	delete(o.queues, name)
	return ""
}

// openNow are the open calls of the conversation so far.
func (r *itemReader) openNow() *openCalls {
	if r.open == nil {
		r.open = &openCalls{open: map[string]bool{}, queues: map[string][]string{}}
		r.open.add(r.before.OpenCalls()...)
		r.open.add(r.items...)
	}
	return r.open
}

// isRepeat reports whether the stored part of the conversation has a call, which waits
// for its output, or an output already. Some clients send both again together with
// what continues the stored part.
func (d *decoder) isRepeat(it *item.Item) bool {
	h := &d.history
	// Without a stored part there is nothing to repeat.
	if h.items == 0 && d.items.before == nil || it.CallID == "" {
		return false
	}

	switch item.RoleOf(it.Kind) {
	case item.ToolCall:
		return h.waits(d, it.CallID)
	case item.ToolOutput:
		return !d.items.openNow().open[it.CallID] && h.has(d, it.CallID)
	}

	return false
}

// waits reports whether the stored part has a call without an output.
func (h *history) waits(d *decoder, id string) bool {
	if h.waiting == nil {
		calls := &openCalls{open: map[string]bool{}, queues: map[string][]string{}}
		calls.add(d.items.before.OpenCalls()...)
		calls.add(d.items.items[:min(h.items, len(d.items.items))]...)
		h.waiting = calls.open
	}
	return h.waiting[id]
}

// has reports whether the stored part has the output of a call. The items of a
// remembered chain are read for it, once: only a client that repeats an output, or
// makes one up, asks.
func (h *history) has(d *decoder, id string) bool {
	if h.outputs == nil {
		items := slices.Clone(d.items.items[:min(h.items, len(d.items.items))])
		if d.items.whole != nil {
			// If the chain cannot be read now, preparing the turn finds that the call is unknown.
			if whole, err := d.items.whole(); err == nil {
				items = append(items, whole...)
			}
		}
		h.outputs = map[string]bool{}
		for i := range items {
			if items[i].Kind == turn.Result {
				h.outputs[items[i].CallID] = true
			}
		}
	}

	return h.outputs[id]
}
