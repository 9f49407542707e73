package responses

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// beginEvent begins a server-sent event up to its sequence number.
func (r *Reply) beginEvent(kind, step string) {
	r.dst = append(append(append(r.dst, `event: `...), kind...), step...)
	r.dst = append(append(append(r.dst, "\ndata: {\"type\":\""...), kind...), step...)
	r.dst = strconv.AppendInt(append(r.dst, `","sequence_number":`...), int64(r.sequence), 10)
	r.sequence++
}

func (r *Reply) endEvent() { r.dst = append(r.dst, "}\n\n"...) }

// beginItemEvent begins an event of an item.
func (r *Reply) beginItemEvent(it *outputItem, kind, step string) {
	r.beginEvent(kind, step)
	r.dst = jsontext.AppendString(append(r.dst, `,"item_id":`...), it.id)
	r.dst = strconv.AppendInt(append(r.dst, `,"output_index":`...), int64(it.index), 10)
}

// beginTextEvent begins an event of an item's text.
func (r *Reply) beginTextEvent(it *outputItem, step string) {
	names := it.kind.names()
	event := names.event
	if it.kind == reasoningItem && r.call.options.openReasoning {
		event = openReasoningEvent
	}
	r.beginItemEvent(it, event, step)
	if names.part != "" {
		r.dst = append(r.dst, `,"content_index":0`...)
	}
}

// endTextEvent ends an event that has text.
func (r *Reply) endTextEvent(it *outputItem) {
	if it.kind.names().part == "output_text" {
		r.dst = append(r.dst, `,"logprobs":[]`...)
	}
	r.endEvent()
}

// begin writes the first events of a stream.
func (r *Reply) begin() {
	if r.begun || !r.call.options.stream {
		return
	}
	r.begun = true
	if r.call.options.background {
		r.writeState("created", statusQueued)
		r.writeState("queued", statusQueued)
	} else {
		r.writeState("created", statusInProgress)
	}
	r.writeState("in_progress", statusInProgress)
}

// writeState writes an event that has the whole response.
func (r *Reply) writeState(step, status string) {
	r.beginEvent("response.", step)
	r.dst = append(r.dst, `,"response":`...)
	r.dst = r.appendResponse(r.dst, &ending{status: status})
	r.endEvent()
}

func (r *Reply) writeItemStart() {
	if !r.call.options.stream {
		return
	}
	r.writeItemAdded(r.item)
	r.writePart(".added", r.item, nil)
}

// writeItemAdded writes the event with which an item begins.
func (r *Reply) writeItemAdded(it *outputItem) {
	if !r.call.options.stream {
		return
	}
	r.beginEvent("response.output_item", ".added")
	r.dst = strconv.AppendInt(append(r.dst, `,"output_index":`...), int64(it.index), 10)
	r.dst = it.append(append(r.dst, `,"item":`...), statusInProgress)
	r.endEvent()
}

// writeItemDone writes the event with which an item ends.
func (r *Reply) writeItemDone(it *outputItem) {
	if !r.call.options.stream {
		return
	}
	r.writeMade(it, ".done")
}

// writeMade writes an event that has the item as it was made.
func (r *Reply) writeMade(it *outputItem, step string) {
	r.beginEvent("response.output_item", step)
	r.dst = strconv.AppendInt(append(r.dst, `,"output_index":`...), int64(it.index), 10)
	r.dst = append(append(r.dst, `,"item":`...), r.made[it.slot].json...)
	r.endEvent()
}

// writeItemStep writes an event that says how far an item's tool has come.
func (r *Reply) writeItemStep(it *outputItem, kind, step string) {
	if !r.call.options.stream {
		return
	}
	r.beginItemEvent(it, kind, step)
	r.endEvent()
}

// writePart writes the events of an item's part and of its summary's.
func (r *Reply) writePart(step string, it *outputItem, text []byte) {
	if part := it.kind.names().part; part != "" {
		r.beginItemEvent(it, "response.content_part", step)
		r.dst = appendPart(append(r.dst, `,"content_index":0,"part":`...), part, text, it.annotations)
		r.endEvent()
	}
	if it.summary {
		r.beginItemEvent(it, "response.reasoning_summary_part", step)
		r.dst = appendPart(append(r.dst, `,"summary_index":0,"part":`...), "summary_text", text, nil)
		r.endEvent()
	}
}

// openDelta makes sure that text can be added to the event being written. The
// text of one chunk of the engine goes into one event.
func (r *Reply) openDelta() {
	if r.delta >= 0 || !r.call.options.stream {
		return
	}
	r.delta = len(r.item.text)
	r.beginTextEvent(r.item, ".delta")
	r.dst = append(r.dst, `,"delta":"`...)
}

// closeDelta ends the event being written, if there is one.
func (r *Reply) closeDelta() {
	if r.delta < 0 {
		r.writeFound()
		return
	}
	it := r.item
	r.dst = append(r.dst, '"')
	r.endTextEvent(it)
	if it.summary {
		r.beginSummaryEvent(it, ".delta")
		r.dst = append(append(r.dst, `,"delta":"`...), it.text[r.delta:]...)
		r.dst = append(r.dst, '"')
		r.endEvent()
	}
	r.delta = -1
	r.writeFound()
}

func (r *Reply) beginSummaryEvent(it *outputItem, step string) {
	r.beginItemEvent(it, "response.reasoning_summary_text", step)
	r.dst = append(r.dst, `,"summary_index":0`...)
}

// writeItemEnd writes the events that complete an item.
func (r *Reply) writeItemEnd(it *outputItem) {
	if !r.call.options.stream {
		return
	}
	r.writeText(it)
	if it.summary {
		r.beginSummaryEvent(it, ".done")
		r.dst = append(append(append(r.dst, `,"text":"`...), it.text...), '"')
		r.endEvent()
	}
	r.writePart(".done", it, it.text)
	r.writeItemDone(it)
}

// writeText writes the event that has an item's whole text.
func (r *Reply) writeText(it *outputItem) {
	if !r.call.options.stream {
		return
	}
	r.beginTextEvent(it, ".done")
	if it.kind == functionItem {
		r.dst = jsontext.AppendString(append(r.dst, `,"name":`...), it.call.Name)
	}
	r.dst = append(append(append(r.dst, `,"`...), it.kind.names().text...), `":"`...)
	r.dst = append(append(r.dst, it.text...), '"')
	r.endTextEvent(it)
}

// ending is how a response stands.
type ending struct {
	status string
	reason string          // why it is incomplete, "" if there is no word for it
	err    *apierror.Error // why it failed
	at     int64           // when it came to its own end, Unix time in seconds
}

// writeEnd writes the last event of a stream, or the whole object.
func (r *Reply) writeEnd(end *ending) {
	if c := r.call.compaction; c != nil && c.standalone {
		r.dst = r.appendCompaction(r.dst)
		return
	}
	if !r.call.options.stream {
		r.dst = r.appendResponse(r.dst, end)
		return
	}
	r.beginEvent("response.", end.status)
	r.dst = r.appendResponse(append(r.dst, `,"response":`...), end)
	r.endEvent()
	r.dst = append(r.dst, "data: [DONE]\n\n"...)
}

// appendResponse appends the response object.
func (r *Reply) appendResponse(dst []byte, end *ending) []byte {
	dst = r.appendMembers(dst, end)
	dst = append(r.appendOutput(append(dst, `,"output":[`...)), ']')
	if r.messages != nil && end.status != statusQueued && end.status != statusInProgress {
		dst = r.messages.append(dst)
	}
	return append(dst, '}')
}

// stoppedAt is the first member of a stored object that is incomplete: when it
// ended, which completed_at does not say. Clients do not get it.
const stoppedAt = "stopped_at"

// storedObject is the response object as it is stored: without its output.
func (r *Reply) storedObject(end *ending) []byte {
	object := append(r.appendMembers(nil, end), '}')
	if end.status == statusIncomplete {
		stopped := strconv.AppendInt([]byte(`{"`+stoppedAt+`":`), end.at, 10)
		object = append(append(stopped, ','), object[1:]...)
	}
	return object
}

// shownMembers is the members of a stored object that clients get.
func shownMembers(object []byte) []byte {
	members := object[1 : len(object)-1]
	if bytes.HasPrefix(members, []byte(`"`+stoppedAt+`":`)) {
		_, members, _ = bytes.Cut(members, []byte{','})
	}
	return members
}

// appendMembers begins the response object with all members but its output.
func (r *Reply) appendMembers(dst []byte, end *ending) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), r.call.id)
	dst = strconv.AppendInt(append(dst, `,"object":"response","created_at":`...), r.created, 10)
	dst = append(append(append(dst, `,"status":"`...), end.status...), `","completed_at":`...)
	if end.status == statusCompleted {
		dst = strconv.AppendInt(dst, end.at, 10)
	} else {
		dst = append(dst, `null`...)
	}
	dst = append(dst, `,"error":`...)
	if end.err != nil {
		dst = appendError(dst, end.err)
	} else {
		dst = append(dst, `null`...)
	}
	dst = append(dst, `,"incomplete_details":`...)
	if end.reason != "" {
		dst = append(append(append(dst, `{"reason":"`...), end.reason...), `"}`...)
	} else {
		dst = append(dst, `null`...)
	}
	dst = jsontext.AppendString(append(dst, `,"model":`...), r.call.model)
	dst = append(dst, `,"previous_response_id":`...)
	if r.call.previous != "" {
		dst = jsontext.AppendString(dst, r.call.previous)
	} else {
		dst = append(dst, `null`...)
	}
	dst = r.appendOwner(append(dst, `,"conversation":`...))
	dst = strconv.AppendBool(append(dst, `,"store":`...), r.stored)
	dst = append(dst, `,"usage":`...)
	if end.status == statusInProgress || end.status == statusQueued {
		dst = append(dst, `null`...)
	} else {
		r.countTurn()
		dst = r.usage.append(dst, r.call.options.usagePerTurn)
	}
	return append(append(dst, ','), r.call.fixed...)
}

// appendError appends why a response failed, with one of the codes that
// clients know. They read from the message when to try again.
func appendError(dst []byte, err *apierror.Error) []byte {
	code, message := "server_error", err.Message
	switch {
	case err.Code == "context_length_exceeded":
		code = err.Code
	case err.Status == http.StatusTooManyRequests:
		code = "rate_limit_exceeded"
		if err.RetryAfter > 0 {
			message += " Please try again in " + strconv.FormatFloat(err.RetryAfter.Round(time.Millisecond).Seconds(), 'f', -1, 64) + "s."
		}
	case err.Status == http.StatusBadRequest:
		code = "invalid_prompt"
	}
	dst = append(append(append(dst, `{"code":"`...), code...), `","message":`...)
	return append(jsontext.AppendString(dst, message), '}')
}
