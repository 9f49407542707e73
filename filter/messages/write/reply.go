package write

import (
	"bytes"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/compaction"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// encoder writes the reply to one request. Streams and whole objects are made of the
// same parts, each of which is a content block: a stream has its events at once, the
// object is written at the end. It is a [reply.Encoder] and [reply.Tools].
type encoder struct {
	request *Request
	reply   *reply.Machine

	block  block
	blocks int    // so far
	whole  []byte // of a whole object: its content blocks, each followed by a comma

	searches int // that the filter has made

	// Of a compaction: the summary, and whether it is complete.
	summary   compaction.Summary
	compacted bool
}

// NewReply begins the reply to the request. In [api.SingleCall] mode the model
// call is being made already, and the first step follows it.
func (r *Request) NewReply(mode api.Mode) api.Reply {
	e := &encoder{request: r}
	o := reply.Options{
		Encoder: e, Stream: r.Options.Stream, Mode: mode,
		Turns: r.Context.Limits.Turns, MaxTokens: r.MaxTokens,
	}
	// A compaction is no turn of the reply's own, and neither is one without an output.
	aside := r.Compacts || r.Prepares
	if !aside {
		o.Turn = r.Turn
	}
	// A begun message has no next turn: its prompt ends within a message.
	if r.BegunMessage {
		o.Turns = 1
	}
	if r.Corrects || len(r.Tools.Hosted)+len(r.Tools.Withdrawn) > 0 || r.Tools.Search != nil {
		o.Tools, o.Run = e, e.run
	}
	// Without it the turn is known, and the machine begins with the model call.
	if r.Preflight != nil {
		o.First = e.list
	}

	e.reply = reply.New(o)
	if aside && r.Turn != nil {
		e.begin(r.Turn)
	}
	return e.reply
}

// Begin writes the first events of a stream.
func (e *encoder) Begin(dst []byte, _ *reply.Choice) []byte {
	dst = append(beginEvent(dst, "message_start"), `,"message":`...)
	dst = append(e.appendHead(dst), `],"stop_reason":null,"stop_sequence":null,"usage":`...)
	dst = append(e.appendDiagnostics(e.appendUsage(dst)), '}')
	return append(endEvent(dst), ping...)
}

// Error ends a stream that has failed.
func (e *encoder) Error(dst []byte, err *apierror.Error) []byte {
	_, object := err.Anthropic(e.request.Context.RequestID)
	return append(jsontext.Writer(dst).Event("error"), object...).EndEvent()
}

// End writes the last events of a stream.
func (e *encoder) End(dst []byte) []byte {
	dst = e.ensureBlock(dst)
	dst = append(beginEvent(dst, "message_delta"), `,"delta":{`...)
	dst = append(e.appendContainer(e.appendStop(dst)), `},"usage":`...)
	dst = endEvent(e.appendUsage(dst))

	return endEvent(beginEvent(dst, "message_stop"))
}

// Object writes the message of a request without stream.
func (e *encoder) Object(dst []byte) ([]byte, *apierror.Error) {
	dst = e.ensureBlock(dst)
	// Each block ends with a comma, the last one too.
	dst = append(e.appendHead(dst), bytes.TrimSuffix(e.whole, []byte(","))...)
	dst = e.appendStop(append(dst, `],`...))
	dst = append(e.appendContainer(dst), `,"usage":`...)

	return append(e.appendDiagnostics(e.appendUsage(dst)), '}'), nil
}

// ensureBlock writes an empty text if the message has no content block: clients read
// the first one, unless they have asked for none.
func (e *encoder) ensureBlock(dst []byte) []byte {
	if e.blocks > 0 || e.request.Prepares {
		return dst
	}

	empty := &reply.Part{Kind: turn.Answer}
	return e.Close(e.Open(dst, empty), empty, nil, false)
}

// ping is an event without a meaning.
const ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"

// beginEvent begins an event: its name, and the object that names it again.
func beginEvent(dst []byte, name string) []byte {
	return jsontext.Writer(dst).Event(name).Open().Text("type", name)
}

// endEvent ends an event and its object.
func endEvent(dst []byte) []byte { return append(dst, "}\n\n"...) }

// appendHead appends a message up to its content blocks.
func (e *encoder) appendHead(dst []byte) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), e.request.ID)
	dst = jsontext.AppendString(append(dst, `,"type":"message","role":"assistant","model":`...), e.request.Model)
	return append(dst, `,"content":[`...)
}

// appendStop appends why the reply ended.
func (e *encoder) appendStop(dst []byte) []byte {
	reason, sequence := e.stop()
	dst = append(append(append(dst, `"stop_reason":"`...), reason...), `","stop_sequence":`...)
	if sequence == "" {
		return append(dst, "null"...)
	}
	return jsontext.AppendString(dst, sequence)
}

// stop returns why the reply ended: the stop_reason, and the stop sequence if one
// was generated.
func (e *encoder) stop() (reason, sequence string) {
	switch {
	case e.compacted:
		return "compaction", ""
	case e.request.Prepares:
		return "max_tokens", ""
	}
	choice := e.reply.Choice(0)
	finish := choice.Finish()

	switch stop := e.reply.Stop(); {
	// The client has calls to make, whatever else was in the way.
	case stop.Has(reply.ClientActs):
	// The client sends a message that was paused back, and the next request goes on with it.
	case stop.Has(reply.OutOfTurns):
		return "pause_turn", ""
	case stop.Has(reply.OutOfRoom):
		return "max_tokens", ""
	case stop.Has(reply.ContextFull):
		return contextExceeded, ""
	}

	switch {
	case finish == turn.FinishLength && e.contextFull():
		return contextExceeded, ""
	case finish == turn.FinishLength:
		return "max_tokens", ""
	case finish == turn.FinishCalls:
		return "tool_use", ""
	}
	// Of a stop token, for which Anthropic's API has no word, the client learns only the end.
	if m := choice.Matched(); m != nil && m.Text != "" {
		return "stop_sequence", m.Text
	}
	return "end_turn", ""
}

const contextExceeded = "model_context_window_exceeded"

// contextFull reports whether the context left less room for the output of the
// current turn than the request asks for.
func (e *encoder) contextFull() bool {
	call := e.reply.Turn().Engine
	left := e.request.Context.ContextLength() - len(call.Prompt)

	// Something narrower than the context ended the output: the request, or a token quota. Claude Code
	// compacts a conversation that has filled the context, which would not help here.
	if call.MaxTokens < left {
		return false
	}

	asked := e.request.MaxTokens
	if asked == 0 {
		return true
	}
	calls := e.reply.Calls()
	for _, call := range calls[:len(calls)-1] {
		asked -= call.Output
	}
	return left < asked
}

// appendUsage appends the token counts so far. The filter counts the tokens itself.
// Only the engine knows how many tokens of the prompt were cached: none as long as it
// does not report them.
func (e *encoder) appendUsage(dst []byte) []byte {
	total := e.reply.Total()
	// What the engine had to write all the same is not the client's.
	if e.request.Prepares {
		total.Output, total.Reasoning = 0, 0
	}
	cached := 0
	// A call whose engine reports nothing has -1 here.
	for _, call := range e.reply.Calls() {
		cached += max(call.Cached, 0)
	}

	dst = appendMember(dst, `{"input_tokens":`, total.Prompt-cached)
	dst = appendMember(dst, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`, cached)
	dst = appendMember(dst, `,"output_tokens":`, total.Output)
	dst = append(appendMember(dst, `,"output_tokens_details":{"thinking_tokens":`, total.Reasoning), '}')
	if len(e.request.Tools.Hosted) > 0 {
		dst = appendMember(dst, `,"server_tool_use":{"web_search_requests":`, e.searches)
		dst = append(dst, `,"web_fetch_requests":0}`...)
	}
	return append(dst, '}')
}
