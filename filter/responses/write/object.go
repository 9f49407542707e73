package write

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
)

// ending is how a response has ended, or its state while it has not.
type ending struct {
	status string
	reason string          // why it is incomplete; "" if there is no word for it
	err    *apierror.Error // why it failed
	at     int64           // when it came to its own end, Unix time in seconds
}

// own reports whether a response has come to its own end. Any other leaves a turn
// that it resumes as it was: the client can send its request again.
func (e *ending) own() bool {
	return e.status == item.StatusCompleted || e.status == item.StatusIncomplete
}

// begin writes the first events of a stream.
func (e *encoder) begin() {
	e.begun = true
	if e.request.Options.Background {
		e.writeState("created", item.StatusQueued)
		e.writeState("queued", item.StatusQueued)
	} else {
		e.writeState("created", item.StatusInProgress)
	}
	e.writeState("in_progress", item.StatusInProgress)
}

// writeState writes an event that has the whole response.
func (e *encoder) writeState(step, status string) {
	e.events.Begin("response.", step)
	e.events.Dst = append(e.events.Dst, `,"response":`...)
	e.events.Dst = e.object.append(e.events.Dst, &ending{status: status})
	e.events.End()
}

// writeEnd writes the last event of a stream, or the whole object.
func (e *encoder) writeEnd(end *ending) {
	w := &e.events
	if c := e.request.Compaction; c != nil && c.Standalone {
		w.Dst = e.object.appendCompaction(w.Dst)
		return
	}
	if !w.stream {
		w.Dst = e.object.append(w.Dst, end)
		return
	}

	w.Begin("response.", end.status)
	w.Dst = e.object.append(append(w.Dst, `,"response":`...), end)
	w.End()
	w.Close()
}

// responseObject is the JSON of a response.
type responseObject struct {
	request *request.Request
	encoder *encoder
	stored  bool // the response is stored, as far as is known
	apart   bool // its conversation did not get its items
}

// append appends the response object: of an event, whole, or as it is stored.
func (o *responseObject) append(dst []byte, end *ending) []byte {
	dst = o.appendMembers(dst, end)
	dst = append(o.encoder.output.append(append(dst, `,"output":[`...)), ']')
	if m := o.encoder.messages; m != nil && end.status != item.StatusQueued && end.status != item.StatusInProgress {
		dst = m.append(dst)
	}
	return append(dst, '}')
}

// appendStored appends the response object as it is stored: without its output.
func (o *responseObject) appendStored(dst []byte, end *ending) []byte {
	begin := len(dst)
	dst = append(o.appendMembers(dst, end), '}')
	if end.status == item.StatusIncomplete {
		stopped := strconv.AppendInt([]byte(`{"`+stored.StoppedAt+`":`), end.at, 10)
		dst = append(append(append(dst[:begin:begin], stopped...), ','), dst[begin+1:]...)
	}
	return dst
}

// appendMembers begins the response object with all members but its output. All response objects
// have these: those of events, whole ones and stored ones. Replay and stored.conclude make the
// events of an end of a stored object, so that a member that only the end has is removed there.
// appendCompaction writes the other kind of object.
func (o *responseObject) appendMembers(dst []byte, end *ending) []byte {
	q := o.request
	dst = jsontext.AppendString(append(dst, `{"id":`...), q.ResponseID)
	dst = strconv.AppendInt(append(dst, `,"object":"response","created_at":`...), q.Created, 10)
	dst = append(append(append(dst, `,"status":"`...), end.status...), `","completed_at":`...)
	if end.status == item.StatusCompleted {
		dst = strconv.AppendInt(dst, end.at, 10)
	} else {
		dst = append(dst, `null`...)
	}

	dst = append(dst, `,"error":`...)
	if end.err != nil {
		dst = stored.AppendError(dst, end.err)
	} else {
		dst = append(dst, `null`...)
	}

	dst = append(dst, `,"incomplete_details":`...)
	if end.reason != "" {
		dst = append(append(append(dst, `{"reason":"`...), end.reason...), `"}`...)
	} else {
		dst = append(dst, `null`...)
	}

	dst = jsontext.AppendString(append(dst, `,"model":`...), q.Model)
	dst = append(dst, `,"previous_response_id":`...)
	if q.Storage.Previous != "" {
		dst = jsontext.AppendString(dst, q.Storage.Previous)
	} else {
		dst = append(dst, `null`...)
	}

	dst = o.appendConversation(append(dst, `,"conversation":`...))
	dst = strconv.AppendBool(append(dst, `,"store":`...), o.stored)
	dst = append(dst, `,"usage":`...)
	// Nothing has been counted yet.
	if end.status == item.StatusInProgress || end.status == item.StatusQueued {
		dst = append(dst, `null`...)
	} else {
		used := o.encoder.usage()
		dst = used.append(dst, q.Options.UsagePerTurn)
		if q.Options.Compared {
			dst = appendCacheDiagnostics(dst, o.encoder.diagnosis)
		}
	}

	return append(append(dst, ','), q.Echo...)
}

// appendConversation appends the conversation that a response belongs to.
func (o *responseObject) appendConversation(dst []byte) []byte {
	id := o.request.Lock.ID()
	if id == "" || o.apart {
		return append(dst, `null`...)
	}
	return append(jsontext.AppendString(append(dst, `{"id":`...), id), '}')
}
