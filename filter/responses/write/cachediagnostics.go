package write

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/diagnosis"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// cacheReasons are OpenAI's names of the causes that it has a name for.
var cacheReasons = map[diagnosis.Cause]string{
	diagnosis.Model:          "model_changed",
	diagnosis.Effort:         "reasoning_effort_changed",
	diagnosis.Instructions:   "input_changed",
	diagnosis.Tools:          "tools_changed",
	diagnosis.ToolsReordered: "tools_changed",
	diagnosis.Format:         "text_format_changed",
	diagnosis.Compacted:      "context_compacted",
	diagnosis.Truncated:      "context_compacted",
	diagnosis.History:        "input_changed",
}

// cacheKeyChanged is OpenAI's reason for a prompt that another session's extends: its
// model call may go to another replica.
const cacheKeyChanged = "prompt_cache_key_changed"

// appendCacheDiagnostics appends the member prompt_cache_diagnostics of a response that
// is complete: how its prompt extends that of the response with which the request
// compares it. It is unavailable if the cause has no name in the API, and for a prompt
// of which the engine does not say whether it had it in its cache.
func appendCacheDiagnostics(dst []byte, d *turn.Diagnosis) []byte {
	dst = append(dst, `,"prompt_cache_diagnostics":{"type":`...)
	if d == nil {
		return append(dst, `"unavailable"}`...)
	}

	// The reply is compared, not the session: the client has named it.
	f := d.Reply
	// The prompt may extend the other one and miss the cache all the same: another replica has it.
	missed := f.Missed(d.Cached, d.Replica) != diagnosis.None
	lost, reason := f.Lost, cacheReasons[f.Cause]
	if missed && f.Cause == diagnosis.None && f.Elsewhere {
		lost, reason = f.Shared-d.Cached, cacheKeyChanged
	}

	switch {
	case !f.Known:
		return append(dst, `"comparison_response_not_found"}`...)
	case reason != "":
		dst = strconv.AppendInt(append(dst, `"cache_miss","reason":"`+reason+`","cache_missed_tokens":`...),
			int64(lost), 10)
		dst = strconv.AppendInt(append(dst, `,"comparison_reusable_tokens":`...), int64(f.Shared), 10)
		return append(dst, '}')
	case f.Cause == diagnosis.None && !missed && d.Cached > 0:
		return append(dst, `"cache_hit"}`...)
	}

	return append(dst, `"unavailable"}`...)
}
