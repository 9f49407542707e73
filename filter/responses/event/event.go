// Package event writes the server-sent events of the Responses API, and reads them for those who pass
// them on. An event's name is before its data too, and each event has the next number of its stream:
//
//	event: response.output_text.delta
//	data: {"type":"response.output_text.delta","sequence_number":7,…}
package event

import (
	"cmp"
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Writer appends events to Dst.
type Writer struct {
	Dst      []byte
	Sequence int // number of the next event
}

// Begin begins an event, up to its sequence number. Its name is kind and step
// together.
func (w *Writer) Begin(kind, step string) {
	w.Dst = append(append(append(w.Dst, `event: `...), kind...), step...)
	w.Dst = append(append(append(w.Dst, "\ndata: {\"type\":\""...), kind...), step...)
	w.Dst = strconv.AppendInt(append(w.Dst, `","sequence_number":`...), int64(w.Sequence), 10)
	w.Sequence++
}

// End ends an event.
func (w *Writer) End() { w.Dst = append(w.Dst, "}\n\n"...) }

// Error writes the event with which a stream breaks off.
func (w *Writer) Error(err *apierror.Error) {
	w.Begin("error", "")
	w.Dst = jsontext.AppendString(append(w.Dst, `,"code":`...), cmp.Or(err.Code, err.Type))
	w.Dst = jsontext.AppendString(append(w.Dst, `,"message":`...), err.Message)
	w.Dst = append(w.Dst, `,"param":null`...)
	w.End()
}

// Close ends the stream.
func (w *Writer) Close() { w.Dst = append(w.Dst, jsontext.Done...) }
