package write

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
)

// missReasons are Anthropic's names of the causes that it has a name for.
var missReasons = map[diagnosis.Cause]string{
	diagnosis.Model:          "model_changed",
	diagnosis.Instructions:   "system_changed",
	diagnosis.Tools:          "tools_changed",
	diagnosis.ToolsReordered: "tools_changed",
	diagnosis.History:        "messages_changed",
	diagnosis.Compacted:      "messages_changed",
	diagnosis.Truncated:      "messages_changed",
}

// appendDiagnostics appends the member diagnostics of a message, if the request has one:
// null if the prompt extends that of the message that the request names, or the
// request names none.
func (e *encoder) appendDiagnostics(dst []byte) []byte {
	if !e.request.Options.Diagnostics {
		return dst
	}

	dst = append(dst, `,"diagnostics":`...)
	d := e.reply.Turn().Diagnosis()
	if d == nil || e.request.Compared == "" {
		return append(dst, "null"...)
	}

	f := d.Reply
	reason := missReasons[f.Cause]
	switch {
	case !f.Known:
		return append(dst, `{"cache_miss_reason":{"type":"previous_message_not_found"}}`...)
	case f.Cause == diagnosis.None:
		return append(dst, "null"...)
	// The API has no name for this cause, and clients know no others.
	case reason == "":
		return append(dst, `{"cache_miss_reason":{"type":"unavailable"}}`...)
	}
	dst = append(dst, `{"cache_miss_reason":{"type":"`+reason+`","cache_missed_input_tokens":`...)
	return append(strconv.AppendInt(dst, int64(f.Lost), 10), "}}"...)
}
