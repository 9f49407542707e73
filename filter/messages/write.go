package messages

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// ping is an event without a meaning.
const ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"

// begin writes the first events of a stream, once.
func (r *Reply) begin() {
	if r.begun || !r.request.options.stream {
		return
	}
	r.begun = true
	r.dst = append(r.dst, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
	r.dst = r.appendHead(r.dst)
	r.dst = append(r.dst, `],"stop_reason":null,"stop_sequence":null,"usage":`...)
	r.dst = r.appendDiagnostics(r.appendUsage(r.dst))
	r.dst = append(r.dst, "}}\n\n"+ping...)
}

// appendHead appends a message up to its content blocks.
func (r *Reply) appendHead(dst []byte) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), r.request.id)
	dst = jsontext.AppendString(append(dst, `,"type":"message","role":"assistant","model":`...), r.request.model)
	return append(dst, `,"content":[`...)
}

// writeEnd writes the last events of a stream.
func (r *Reply) writeEnd() {
	if r.blocks.count == 0 {
		r.startBlock(turn.Event{Kind: turn.Answer})
		r.endBlock()
	}
	r.dst = append(r.dst, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	r.dst = r.appendStop(r.dst)
	r.dst = append(r.appendContainer(r.dst), `},"usage":`...)
	r.dst = r.appendUsage(r.dst)
	r.dst = append(r.dst, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
}

// writeObject writes the message of a request without stream.
func (r *Reply) writeObject() {
	if r.blocks.count == 0 {
		r.startBlock(turn.Event{Kind: turn.Answer})
		r.endBlock()
	}
	r.dst = r.appendHead(r.dst)
	r.dst = append(r.dst, r.whole[:len(r.whole)-1]...)
	r.dst = append(r.dst, `],`...)
	r.dst = r.appendStop(r.dst)
	r.dst = append(r.appendContainer(r.dst), `,"usage":`...)
	r.dst = append(r.appendDiagnostics(r.appendUsage(r.dst)), '}')
}

// appendStop appends why the reply ended.
func (r *Reply) appendStop(dst []byte) []byte {
	reason, sequence := r.stop()
	dst = append(append(append(dst, `"stop_reason":"`...), reason...), `","stop_sequence":`...)
	if sequence == "" {
		return append(dst, "null"...)
	}
	return jsontext.AppendString(dst, sequence)
}

// stop returns why the reply ended: the stop_reason, and the stop sequence if one
// was generated.
func (r *Reply) stop() (reason, sequence string) {
	switch finish := r.reader.Finish(); {
	case r.turns.cut != "":
		return r.turns.cut, ""
	case finish == turn.FinishLength && r.contextFull():
		return "model_context_window_exceeded", ""
	case finish == turn.FinishLength:
		return "max_tokens", ""
	case finish == turn.FinishCalls:
		return "tool_use", ""
	}
	if m := r.reader.Matched(); m != nil && m.Text != "" {
		return "stop_sequence", m.Text
	}
	return "end_turn", ""
}

// contextFull reports whether the context left less room for the output of the
// current turn than the request asks for.
func (r *Reply) contextFull() bool {
	asked := r.request.maxTokens
	return asked == 0 || r.turns.current.Engine.MaxTokens < asked-r.turns.earlier.Counts.Output
}

// appendUsage appends the token counts so far. The filter counts the tokens itself.
// Only the engine knows how many tokens of the prompt were cached: none as long as it
// does not report them.
func (r *Reply) appendUsage(dst []byte) []byte {
	input, counts := r.promptTokens(), r.turns.earlier.Counts
	c := r.reader.Counts()
	counts.Output += c.Output
	counts.Reasoning += c.Reasoning
	cached := r.turns.earlierCached
	if r.cached != engine.Unknown {
		cached += r.cached
	}
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), int64(input-cached), 10)
	dst = strconv.AppendInt(append(dst, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...), int64(cached), 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens":`...), int64(counts.Output), 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens_details":{"thinking_tokens":`...), int64(counts.Reasoning), 10)
	if dst = append(dst, '}'); len(r.request.hosted) > 0 {
		dst = strconv.AppendInt(append(dst, `,"server_tool_use":{"web_search_requests":`...), int64(r.runs.searches), 10)
		dst = append(dst, `,"web_fetch_requests":0}`...)
	}
	return append(dst, '}')
}
