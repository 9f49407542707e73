package messages

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// readDiagnostics reads {"previous_message_id":…}: the message whose prompt this one
// should extend, or null.
func (d *decoder) readDiagnostics(v jsontext.Field) *apierror.Error {
	if d.rc.Prompts == nil {
		d.ignored.Add(v.Path)
		return nil
	}
	d.options.diagnostics = true
	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch {
		case key != "previous_message_id":
			d.ignored.Add(v.Path)
		case v.Type != gjson.Null:
			id, err := v.ShortText()
			d.input.Replies.Compared = strings.Clone(id)
			return err
		}
		return nil
	})
}

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
	if !e.request.options.diagnostics {
		return dst
	}

	dst = append(dst, `,"diagnostics":`...)
	d := e.reply.Turn().Diagnosis()
	if d == nil || e.request.compared == "" {
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
