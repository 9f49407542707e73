package write

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/event"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// eventWriter writes the events of items. For a whole object it writes nothing.
type eventWriter struct {
	event.Writer
	stream bool
	// The events of reasoning text have Open Responses' names.
	openReasoning bool
	// Where in the item's text the delta begins that is being written; -1 if none is.
	delta int
	// Where in the item's log probabilities those of the delta begin.
	logprobs int
}

func newEventWriter(o request.Options) eventWriter {
	return eventWriter{stream: o.Stream, openReasoning: o.OpenReasoning, delta: -1}
}

// beginItem begins an event of an item.
func (w *eventWriter) beginItem(it *outputItem, kind, step string) {
	w.Begin(kind, step)
	w.Dst = jsontext.AppendString(append(w.Dst, `,"item_id":`...), it.ID)
	w.Dst = strconv.AppendInt(append(w.Dst, `,"output_index":`...), int64(it.index), 10)
}

// beginText begins an event of an item's text.
func (w *eventWriter) beginText(it *outputItem, step string) {
	names := it.Kind.Names()
	name := names.Event
	switch {
	case it.Summary:
		w.beginItem(it, "response.reasoning_summary_text", step)
		w.Dst = append(w.Dst, `,"summary_index":0`...)
		return
	// The operator has chosen Open Responses' names for this client: see responses.reasoning_events.
	case it.Kind == item.Reasoning && w.openReasoning:
		name = item.OpenReasoningEvent
	}

	w.beginItem(it, name, step)
	// Items with a part number their texts; arguments of calls are not in parts.
	if names.Part != "" {
		w.Dst = append(w.Dst, `,"content_index":0`...)
	}
}

// endText ends an event that has text, and these log probabilities.
func (w *eventWriter) endText(it *outputItem, logprobs []byte) {
	if it.Kind.Names().Part == "output_text" {
		w.Dst = turn.AppendLogprobsArray(append(w.Dst, `,"logprobs":`...), logprobs)
	}
	w.End()
}

// itemStart writes the events with which an item with text begins.
func (w *eventWriter) itemStart(it *outputItem) {
	if w.stream {
		w.itemAdded(it)
		w.part(".added", it, nil)
	}
}

// itemAdded writes the event with which an item begins.
func (w *eventWriter) itemAdded(it *outputItem) {
	if !w.stream {
		return
	}
	w.Begin("response.output_item", ".added")
	w.Dst = strconv.AppendInt(append(w.Dst, `,"output_index":`...), int64(it.index), 10)
	w.Dst = it.Append(append(w.Dst, `,"item":`...), item.StatusInProgress)
	w.End()
}

// itemDone writes the event with which an item ends.
func (w *eventWriter) itemDone(it *outputItem, json []byte) {
	if w.stream {
		w.itemWhole(it.index, ".done", json)
	}
}

// itemWhole writes an event that has a whole item.
func (w *eventWriter) itemWhole(index int, step string, json []byte) {
	w.Begin("response.output_item", step)
	w.Dst = strconv.AppendInt(append(w.Dst, `,"output_index":`...), int64(index), 10)
	w.Dst = append(append(w.Dst, `,"item":`...), json...)
	w.End()
}

// itemStep writes an event that says how far the tool of an item has come.
func (w *eventWriter) itemStep(it *outputItem, step string) {
	if w.stream {
		w.beginItem(it, it.Kind.Names().Step, step)
		w.End()
	}
}

// part writes the events of an item's part: of its content, or of its summary.
func (w *eventWriter) part(step string, it *outputItem, text []byte) {
	part := it.Kind.Names().Part
	switch {
	case it.Summary:
		w.beginItem(it, "response.reasoning_summary_part", step)
		w.Dst = it.AppendPart(append(w.Dst, `,"summary_index":0,"part":`...), "summary_text", text)
	case part != "":
		w.beginItem(it, "response.content_part", step)
		w.Dst = it.AppendPart(append(w.Dst, `,"content_index":0,"part":`...), part, text)
	default:
		return
	}

	w.End()
}

// openDelta makes sure that text can be added to the event being written. The text
// of one chunk of the engine is one event.
func (w *eventWriter) openDelta(it *outputItem) {
	// The event stays open for the whole text of a push.
	if w.delta >= 0 || !w.stream {
		return
	}
	w.delta, w.logprobs = len(it.Text), len(it.Logprobs)
	w.beginText(it, ".delta")
	w.Dst = append(w.Dst, `,"delta":"`...)
}

// closeDelta ends the delta being written, if there is one, and writes the citations
// that its text has. it is nil where no item is being written.
func (w *eventWriter) closeDelta(it *outputItem) {
	if it == nil {
		return
	}
	if w.delta >= 0 {
		w.Dst = append(w.Dst, '"')
		w.endText(it, it.Logprobs[w.logprobs:])
		w.delta = -1
	}
	w.annotate(it)
}

// annotate adds the citations that have been found to the item.
func (w *eventWriter) annotate(it *outputItem) {
	for i := range it.found {
		annotation := it.found[i].JSON()
		if w.stream {
			w.beginItem(it, "response.output_text", ".annotation.added")
			w.Dst = strconv.AppendInt(append(w.Dst, `,"content_index":0,"annotation_index":`...),
				int64(len(it.Annotations)), 10)
			w.Dst = append(append(w.Dst, `,"annotation":`...), annotation...)
			w.End()
		}
		// The events number the annotations by how many there are before.
		it.Annotations = append(it.Annotations, annotation)
	}

	it.found = it.found[:0]
}

// itemEnd writes the events that complete an item with text.
func (w *eventWriter) itemEnd(it *outputItem, json []byte) {
	if !w.stream {
		return
	}
	w.text(it)
	w.part(".done", it, it.Text)
	w.itemDone(it, json)
}

// text writes the event that has an item's whole text.
func (w *eventWriter) text(it *outputItem) {
	if !w.stream {
		return
	}
	w.beginText(it, ".done")
	if it.Kind == item.Function {
		w.Dst = jsontext.AppendString(append(w.Dst, `,"name":`...), it.Call.Name)
	}
	w.Dst = append(append(append(w.Dst, `,"`...), it.Kind.Names().Text...), `":"`...)
	w.Dst = append(append(w.Dst, it.Text...), '"')
	w.endText(it, it.Logprobs)
}
