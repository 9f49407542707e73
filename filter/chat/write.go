package chat

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// deltaKind is the field in the delta of a server-sent event.
type deltaKind uint8

const (
	deltaEmpty deltaKind = iota
	deltaReasoning
	deltaContent
	deltaCall      // the beginning of a call
	deltaArguments // a piece of a call's arguments
)

// delta is the server-sent event that is being written. The text of a chunk of the
// engine goes into one event as long as it belongs to the same field.
type delta struct {
	choice *reply.Choice // nil: no event is being written
	kind   deltaKind
	call   *turn.CalledTool
	text   int // index in dst of the beginning of its text
}

// openDelta ensures that an event of this kind is being written, to which text can
// be appended.
func (e *encoder) openDelta(dst []byte, c *reply.Choice, kind deltaKind, call *turn.CalledTool) []byte {
	if e.open.choice == c && e.open.kind == kind && e.open.call == call {
		return dst
	}

	dst = e.beginEvent(e.closeDelta(dst, nil), c)
	switch kind {
	case deltaReasoning:
		dst = append(dst, '"')
		dst = append(dst, e.request.reasoningField()...)
		dst = append(dst, `":"`...)
	case deltaContent:
		dst = append(dst, `"content":"`...)
	case deltaCall, deltaArguments:
		dst = e.appendCallDelta(dst, kind, call)
	}
	// The beginning of the text is kept, because closeDelta may have to repeat it.
	e.open = delta{choice: c, kind: kind, call: call, text: len(dst)}
	return dst
}

// appendCallDelta appends the member of a call's delta up to the text of its arguments.
func (e *encoder) appendCallDelta(dst []byte, kind deltaKind, call *turn.CalledTool) []byte {
	legacy := e.request.options.legacyCalls
	if !legacy {
		dst = strconv.AppendInt(append(dst, `"tool_calls":[{"index":`...), int64(call.Index), 10)
	}

	switch {
	case legacy && kind == deltaArguments:
		return append(dst, `"function_call":{"arguments":"`...)
	case legacy:
		return e.appendCallHead(dst, call)
	case kind == deltaCall:
		return e.appendCallHead(append(dst, ','), call)
	case e.custom(call):
		return append(dst, `,"custom":{"input":"`...)
	}
	return append(dst, `,"function":{"arguments":"`...)
}

// closeDelta ends the event being written, if there is one. tokens are those of this
// event and of the events before it that had none.
func (e *encoder) closeDelta(dst []byte, tokens []harmony.Token) []byte {
	if e.open.choice == nil {
		return dst
	}

	switch e.open.kind {
	case deltaReasoning:
		end := len(dst)
		dst = append(dst, '"')
		// Clients read the one field or the other: see turn.ReasoningBoth.
		if e.request.bothReasoningFields() {
			dst = append(dst, `,"reasoning_content":"`...)
			dst = append(dst, dst[e.open.text:end]...)
			dst = append(dst, '"')
		}
	case deltaContent:
		dst = append(dst, '"')
	case deltaCall, deltaArguments:
		dst = append(dst, e.callEnd()...)
	}
	dst = append(dst, '}')

	// The entries are collected beside the text, which is written straight into dst.
	if len(e.logprobs) > 0 {
		dst = appendLogprobs(dst, e.logprobs)
		e.logprobs = e.logprobs[:0]
	}
	dst = append(dst, `,"finish_reason":null`...)
	e.open = delta{}
	return e.endEvent(dst, tokens)
}

// appendFinish appends why the choice ended.
func (e *encoder) appendFinish(dst []byte, c *reply.Choice) []byte {
	finish := c.Finish()
	// The model was to correct its calls, of which the client sees none.
	if stop := e.reply.Stop(); stop.Has(reply.OutOfRoom) && !stop.Has(reply.ClientActs) {
		finish = turn.FinishLength
	}
	if e.request.options.legacyCalls && finish == turn.FinishCalls {
		finish = "function_call"
	}
	dst = append(append(append(dst, `"finish_reason":"`...), finish...), '"')

	// The member is SGLang's, and holds a text or a token id, whichever stopped the choice.
	switch m := c.Matched(); {
	case m == nil:
		return dst
	case m.Text != "":
		return jsontext.AppendString(append(dst, `,"matched_stop":`...), m.Text)
	default:
		return strconv.AppendUint(append(dst, `,"matched_stop":`...), uint64(m.Token), 10)
	}
}

// beginEvent begins an event up to the members of its delta.
func (e *encoder) beginEvent(dst []byte, c *reply.Choice) []byte {
	dst = append(e.beginChunk(dst), `"choices":[{"index":`...)
	dst = strconv.AppendInt(dst, int64(c.Index), 10)
	return append(dst, `,"delta":{`...)
}

// endEvent ends the choice of an event and the event.
func (e *encoder) endEvent(dst []byte, tokens []harmony.Token) []byte {
	if e.request.options.tokenIDs && len(tokens) > 0 {
		dst = appendTokens(append(dst, `,"token_ids":`...), tokens)
	}
	return e.endChunk(append(dst, `}]`...))
}

// headBytes is the capacity of an event's head.
const headBytes = 256

// beginChunk begins a chat.completion.chunk. Its head is made once: it is most of what
// the event of a token has. The render service makes one chunk of several: a new text in a delta
// that comes at once, and not in pieces, is named there.
func (e *encoder) beginChunk(dst []byte) []byte {
	if version := e.reply.Fingerprint(); e.head == nil || e.version != version {
		e.version = version
		e.head = e.appendHead(append(make([]byte, 0, headBytes), `data: `...), "chat.completion.chunk")
	}
	return append(dst, e.head...)
}

func (e *encoder) endChunk(dst []byte) []byte {
	switch {
	case e.request.options.continuousUsage:
		dst = e.appendUsage(append(dst, `,"usage":`...))
	case e.request.options.includeUsage:
		dst = append(dst, `,"usage":null`...)
	}
	return append(dst, "}\n\n"...)
}

// appendChoice appends a choice of the whole object.
func (e *encoder) appendChoice(dst []byte, c *reply.Choice) []byte {
	choice := &e.choices[c.Index]
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(c.Index), 10)

	dst = append(dst, `,"message":{"role":"assistant","content":`...)
	// OpenAI has null beside calls; without calls clients expect a text, even an empty one.
	if choice.hasContent || len(choice.calls) == 0 {
		dst = append(append(append(dst, '"'), choice.content...), '"')
	} else {
		dst = append(dst, `null`...)
	}
	dst = append(dst, `,"refusal":null`...)
	if choice.hasReasoning {
		dst = appendReasoning(dst, e.request.reasoningField(), choice.reasoning)
		if e.request.bothReasoningFields() {
			dst = appendReasoning(dst, turn.ReasoningContent, choice.reasoning)
		}
	}
	dst = append(e.appendCalls(dst, choice.calls), '}')

	if e.request.options.logprobs {
		dst = appendLogprobs(dst, choice.logprobs)
	} else {
		dst = append(dst, `,"logprobs":null`...)
	}
	dst = e.appendFinish(append(dst, ','), c)
	if e.request.options.tokenIDs {
		dst = appendTokens(append(dst, `,"token_ids":`...), choice.tokens)
	}
	return append(dst, '}')
}

func appendReasoning(dst []byte, field string, text []byte) []byte {
	dst = append(append(append(dst, `,"`...), field...), `":"`...)
	return append(append(dst, text...), '"')
}

// appendCalls appends the member with the calls of a whole object, if there are any.
func (e *encoder) appendCalls(dst []byte, calls []calledTool) []byte {
	if len(calls) == 0 {
		return dst
	}

	// The older member has room for one call; a request with it allows no more.
	if e.request.options.legacyCalls {
		dst = e.appendCallHead(append(dst, ','), calls[0].CalledTool)
		return append(append(dst, calls[0].arguments...), e.callEnd()...)
	}

	dst = append(dst, `,"tool_calls":[`...)
	for i, call := range calls {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = e.appendCallHead(append(dst, '{'), call.CalledTool)
		dst = append(append(dst, call.arguments...), `"}}`...)
	}
	return append(dst, ']')
}

// appendCallHead appends the members of a call up to the text of its arguments.
func (e *encoder) appendCallHead(dst []byte, call *turn.CalledTool) []byte {
	if e.request.options.legacyCalls {
		dst = jsontext.AppendString(append(dst, `"function_call":{"name":`...), call.Name)
		return append(dst, `,"arguments":"`...)
	}

	dst = jsontext.AppendString(append(dst, `"id":`...), call.ID)
	if e.custom(call) {
		dst = jsontext.AppendString(append(dst, `,"type":"custom","custom":{"name":`...), call.Name)
		return append(dst, `,"input":"`...)
	}
	dst = jsontext.AppendString(append(dst, `,"type":"function","function":{"name":`...), call.Name)
	return append(dst, `,"arguments":"`...)
}

// callEnd is what follows the arguments of the only call of an event, or of a legacy call.
func (e *encoder) callEnd() string {
	if e.request.options.legacyCalls {
		return `"}`
	}
	return `"}}]`
}

// appendHead appends the members with which all objects begin.
func (e *encoder) appendHead(dst []byte, object string) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), e.request.id)
	dst = append(append(append(dst, `,"object":"`...), object...), `","created":`...)
	dst = strconv.AppendInt(dst, e.created, 10)
	dst = jsontext.AppendString(append(dst, `,"model":`...), e.request.model)

	dst = append(dst, `,"system_fingerprint":`...)
	if version := e.reply.Fingerprint(); version != "" {
		dst = jsontext.AppendString(dst, version)
	} else {
		dst = append(dst, "null"...) // some clients refuse a reply without the member
	}
	return append(dst, ',')
}

// appendUsage appends the token counts so far. The filter counts the tokens itself.
// Only the engine knows how many tokens of the prompt were cached; the member is
// absent if it does not report them.
func (e *encoder) appendUsage(dst []byte) []byte {
	total := e.reply.Total()
	dst = appendMember(dst, `{"prompt_tokens":`, total.Prompt)
	dst = appendMember(dst, `,"completion_tokens":`, total.Output)
	dst = appendMember(dst, `,"total_tokens":`, total.Prompt+total.Output)
	// A 0 would say that the cache had nothing.
	if total.Cached != engine.Unknown {
		dst = append(appendMember(dst, `,"prompt_tokens_details":{"cached_tokens":`, total.Cached), '}')
	}
	dst = appendMember(dst, `,"completion_tokens_details":{"reasoning_tokens":`, total.Reasoning)
	return append(dst, `}}`...)
}

// appendMember appends the beginning of a member, and its number.
func appendMember(dst []byte, begin string, n int) []byte {
	return strconv.AppendInt(append(dst, begin...), int64(n), 10)
}

func appendTokens(dst []byte, tokens []harmony.Token) []byte {
	dst = append(dst, '[')
	for i, t := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(t), 10)
	}
	return append(dst, ']')
}

// reasoningField returns the name of the field for reasoning, the first one if there
// are two.
func (r *Request) reasoningField() string {
	if r.rc.Model.ReasoningFields == turn.ReasoningContent {
		return turn.ReasoningContent
	}
	return turn.ReasoningShort
}

func (r *Request) bothReasoningFields() bool {
	f := r.rc.Model.ReasoningFields
	return f == "" || f == turn.ReasoningBoth
}

// appendLogprobs appends the member logprobs of a choice; each of the entries is
// followed by a comma.
func appendLogprobs(dst, entries []byte) []byte {
	dst = turn.AppendLogprobsArray(append(dst, `,"logprobs":{"content":`...), entries)
	return append(dst, `,"refusal":null}`...)
}
