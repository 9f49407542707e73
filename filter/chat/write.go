package chat

import (
	"strconv"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
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
	choice *choice // nil: no event is being written
	kind   deltaKind
	call   *turn.CalledTool
	text   int // index in dst of the beginning of its text
}

// openDelta ensures that an event of this kind is being written, to which text can
// be appended.
func (r *Reply) openDelta(c *choice, kind deltaKind, call *turn.CalledTool) {
	if r.open.choice == c && r.open.kind == kind && r.open.call == call {
		return
	}
	r.closeDelta(nil)
	r.beginEvent(c)
	switch kind {
	case deltaReasoning:
		r.dst = append(r.dst, '"')
		r.dst = append(r.dst, r.request.reasoningField()...)
		r.dst = append(r.dst, `":"`...)
	case deltaContent:
		r.dst = append(r.dst, `"content":"`...)
	case deltaCall:
		if !r.request.options.legacyCalls {
			r.dst = append(r.dst, `"tool_calls":[{"index":`...)
			r.dst = append(strconv.AppendInt(r.dst, int64(call.Index), 10), ',')
		}
		r.dst = r.appendCallHead(r.dst, call)
	case deltaArguments:
		switch {
		case r.request.options.legacyCalls:
			r.dst = append(r.dst, `"function_call":{"arguments":"`...)
		case r.custom(call):
			r.dst = append(strconv.AppendInt(append(r.dst, `"tool_calls":[{"index":`...), int64(call.Index), 10), `,"custom":{"input":"`...)
		default:
			r.dst = append(strconv.AppendInt(append(r.dst, `"tool_calls":[{"index":`...), int64(call.Index), 10), `,"function":{"arguments":"`...)
		}
	}
	r.open = delta{choice: c, kind: kind, call: call, text: len(r.dst)}
}

// openAny ensures that an event is being written.
func (r *Reply) openAny(c *choice) {
	if r.open.choice == nil {
		r.openDelta(c, deltaEmpty, nil)
	}
}

// closeDelta ends the event being written, if there is one. tokens are those of this
// event and of the events before it that had none.
func (r *Reply) closeDelta(tokens []harmony.Token) {
	if r.open.choice == nil {
		return
	}
	switch r.open.kind {
	case deltaReasoning:
		end := len(r.dst)
		r.dst = append(r.dst, '"')
		if r.request.bothReasoningFields() {
			r.dst = append(r.dst, `,"reasoning_content":"`...)
			r.dst = append(r.dst, r.dst[r.open.text:end]...)
			r.dst = append(r.dst, '"')
		}
	case deltaContent:
		r.dst = append(r.dst, '"')
	case deltaCall, deltaArguments:
		r.dst = append(r.dst, r.callEnd()...)
	}
	r.dst = append(r.dst, '}')
	if len(r.logprobs) > 0 {
		r.dst = appendLogprobs(r.dst, r.logprobs)
		r.logprobs = r.logprobs[:0]
	}
	r.dst = append(r.dst, `,"finish_reason":null`...)
	r.endEvent(tokens)
	r.open = delta{}
}

// begin writes the first event of a choice, with the role, once.
func (r *Reply) begin(c *choice) {
	if c.begun || !r.request.options.stream {
		return
	}
	c.begun = true
	r.beginEvent(c)
	r.dst = append(r.dst, `"role":"assistant","content":null},"finish_reason":null}]`...)
	if r.request.options.tokenIDs {
		r.dst = append(r.dst, `,"prompt_token_ids":`...)
		r.dst = appendTokens(r.dst, r.request.Engine().Prompt)
	}
	r.endChunk()
}

// writeFinish writes the finish event of a choice, its last event.
func (r *Reply) writeFinish(c *choice, tokens []harmony.Token) {
	c.state = closed
	r.beginEvent(c)
	if !c.hasContent && c.reader.Calls() == 0 {
		r.dst = append(r.dst, `"content":""`...)
	}
	r.dst = append(r.dst, `},`...)
	r.appendFinish(c)
	r.endEvent(tokens)
}

// appendFinish appends why the choice ended.
func (r *Reply) appendFinish(c *choice) {
	r.dst = append(r.dst, `"finish_reason":"`...)
	finish := string(c.finish())
	if r.request.options.legacyCalls && c.finish() == turn.FinishCalls {
		finish = "function_call"
	}
	r.dst = append(append(r.dst, finish...), '"')
	m := c.reader.Matched()
	switch {
	case m == nil:
	case m.Text != "":
		r.dst = jsontext.AppendString(append(r.dst, `,"matched_stop":`...), m.Text)
	default:
		r.dst = strconv.AppendUint(append(r.dst, `,"matched_stop":`...), uint64(m.Token), 10)
	}
}

// beginEvent begins an event up to the members of its delta.
func (r *Reply) beginEvent(c *choice) {
	r.beginChunk()
	r.dst = append(r.dst, `"choices":[{"index":`...)
	r.dst = strconv.AppendInt(r.dst, int64(c.index), 10)
	r.dst = append(r.dst, `,"delta":{`...)
}

// endEvent ends the choice of an event and the event.
func (r *Reply) endEvent(tokens []harmony.Token) {
	if r.request.options.tokenIDs && len(tokens) > 0 {
		r.dst = appendTokens(append(r.dst, `,"token_ids":`...), tokens)
	}
	r.dst = append(r.dst, `}]`...)
	r.endChunk()
}

// headBytes is the capacity of an event's head.
const headBytes = 256

// beginChunk begins a chat.completion.chunk.
func (r *Reply) beginChunk() {
	if r.head == nil {
		r.head = r.appendHead(append(make([]byte, 0, headBytes), `data: `...), "chat.completion.chunk")
	}
	r.dst = append(r.dst, r.head...)
}

func (r *Reply) endChunk() {
	switch {
	case r.request.options.continuousUsage:
		r.dst = r.appendUsage(append(r.dst, `,"usage":`...))
	case r.request.options.includeUsage:
		r.dst = append(r.dst, `,"usage":null`...)
	}
	r.dst = append(r.dst, "}\n\n"...)
}

// writeStreamEnd writes the finish events that were held back, and the events after
// the choices of a stream.
func (r *Reply) writeStreamEnd() {
	for i := range r.choices {
		if c := &r.choices[i]; c.state != closed {
			r.writeFinish(c, c.tokens)
		}
	}
	if r.request.options.includeUsage || r.request.options.continuousUsage {
		r.beginChunk()
		r.dst = r.appendUsage(append(r.dst, `"choices":[],"usage":`...))
		r.dst = append(r.dst, "}\n\n"...)
	}
	r.dst = append(r.dst, "data: [DONE]\n\n"...)
}

// writeObject writes the chat.completion object of a request without stream.
func (r *Reply) writeObject() {
	r.dst = r.appendHead(r.dst, "chat.completion")
	r.dst = append(r.dst, `"choices":[`...)
	for i := range r.choices {
		if i > 0 {
			r.dst = append(r.dst, ',')
		}
		r.writeChoice(&r.choices[i])
	}
	r.dst = append(r.dst, `],"usage":`...)
	r.dst = r.appendUsage(r.dst)
	if r.request.options.tokenIDs {
		r.dst = appendTokens(append(r.dst, `,"prompt_token_ids":`...), r.request.Engine().Prompt)
	}
	r.dst = append(r.dst, '}')
}

func (r *Reply) writeChoice(c *choice) {
	r.dst = strconv.AppendInt(append(r.dst, `{"index":`...), int64(c.index), 10)
	r.dst = append(r.dst, `,"message":{"role":"assistant","content":`...)
	if c.hasContent || len(c.calls) == 0 {
		r.dst = append(append(append(r.dst, '"'), c.content...), '"')
	} else {
		r.dst = append(r.dst, `null`...)
	}
	r.dst = append(r.dst, `,"refusal":null`...)
	if c.hasReasoning {
		r.writeReasoning(c, r.request.reasoningField())
		if r.request.bothReasoningFields() {
			r.writeReasoning(c, turn.ReasoningContent)
		}
	}
	r.writeCalls(c)
	r.dst = append(r.dst, '}')
	if r.request.options.logprobs {
		r.dst = appendLogprobs(r.dst, c.logprobs)
	} else {
		r.dst = append(r.dst, `,"logprobs":null`...)
	}
	r.dst = append(r.dst, ',')
	r.appendFinish(c)
	if r.request.options.tokenIDs {
		r.dst = appendTokens(append(r.dst, `,"token_ids":`...), c.tokens)
	}
	r.dst = append(r.dst, '}')
}

func (r *Reply) writeReasoning(c *choice, field string) {
	r.dst = append(append(append(r.dst, `,"`...), field...), `":"`...)
	r.dst = append(append(r.dst, c.reasoning...), '"')
}

func (r *Reply) writeCalls(c *choice) {
	if len(c.calls) == 0 {
		return
	}
	if r.request.options.legacyCalls {
		r.dst = r.appendCallHead(append(r.dst, ','), c.calls[0].CalledTool)
		r.dst = append(append(r.dst, c.calls[0].arguments...), r.callEnd()...)
		return
	}
	r.dst = append(r.dst, `,"tool_calls":[`...)
	for i, call := range c.calls {
		if i > 0 {
			r.dst = append(r.dst, ',')
		}
		r.dst = r.appendCallHead(append(r.dst, '{'), call.CalledTool)
		r.dst = append(append(r.dst, call.arguments...), `"}}`...)
	}
	r.dst = append(r.dst, ']')
}

// appendCallHead appends the members of a call up to the text of its arguments.
func (r *Reply) appendCallHead(dst []byte, call *turn.CalledTool) []byte {
	if r.request.options.legacyCalls {
		dst = jsontext.AppendString(append(dst, `"function_call":{"name":`...), call.Name)
		return append(dst, `,"arguments":"`...)
	}

	dst = jsontext.AppendString(append(dst, `"id":`...), call.ID)
	if r.custom(call) {
		dst = jsontext.AppendString(append(dst, `,"type":"custom","custom":{"name":`...), call.Name)
		return append(dst, `,"input":"`...)
	}
	dst = jsontext.AppendString(append(dst, `,"type":"function","function":{"name":`...), call.Name)
	return append(dst, `,"arguments":"`...)
}

// callEnd is what follows the arguments of the only call of an event, or of a legacy call.
func (r *Reply) callEnd() string {
	if r.request.options.legacyCalls {
		return `"}`
	}
	return `"}}]`
}

// appendHead appends the members with which all objects begin.
func (r *Reply) appendHead(dst []byte, object string) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), r.request.id)
	dst = append(append(append(dst, `,"object":"`...), object...), `","created":`...)
	dst = strconv.AppendInt(dst, r.created, 10)
	dst = jsontext.AppendString(append(dst, `,"model":`...), r.request.model)
	if r.version == "" {
		return append(dst, `,"system_fingerprint":null,`...) // some clients refuse a reply without it
	}
	dst = jsontext.AppendString(append(dst, `,"system_fingerprint":`...), r.version)
	return append(dst, ',')
}

// promptTokens returns the number of tokens of the prompts so far.
func (r *Reply) promptTokens() int {
	return r.turns.earlierPrompts + r.turns.current.PromptTokens()
}

// cachedTokens returns how many of the prompts' tokens the engine had in its cache;
// engine.Unknown if it does not report that of the current turn.
func (r *Reply) cachedTokens() int {
	if r.cached == engine.Unknown {
		return engine.Unknown
	}
	return r.turns.earlierCached + r.cached
}

// appendUsage appends the token counts so far. The filter counts the tokens itself.
// Only the engine knows how many tokens of the prompt were cached; the member is
// absent if it does not report them.
func (r *Reply) appendUsage(dst []byte) []byte {
	prompt, counts := r.promptTokens(), r.turns.earlier.Counts
	for i := range r.choices {
		c := r.choices[i].reader.Counts()
		counts.Output += c.Output
		counts.Reasoning += c.Reasoning
	}
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), int64(prompt), 10)
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(counts.Output), 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), int64(prompt+counts.Output), 10)
	if cached := r.cachedTokens(); cached != engine.Unknown {
		dst = strconv.AppendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), int64(cached), 10)
		dst = append(dst, '}')
	}
	dst = strconv.AppendInt(append(dst, `,"completion_tokens_details":{"reasoning_tokens":`...), int64(counts.Reasoning), 10)
	return append(dst, `}}`...)
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
