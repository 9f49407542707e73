package chat

import (
	"errors"
	"maps"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Reply turns the engine's chunks into the reply to one request. Streams and
// whole objects are made of the same events: a stream writes each as it comes,
// the object is written from what they add up to.
//
// It is not safe for concurrent use.
type Reply struct {
	call    *Call
	created int64
	choices []choice
	cached  int    // of the prompt, engine.Unknown until the engine tells
	version string // the engine's fingerprint
	ended   bool
	turns   turns

	// Of a stream, while a method runs:
	dst      []byte
	head     []byte // what every event begins with
	open     delta
	logprobs []byte // entries of the open delta, with a comma behind each
}

// choice is what has become of one of the n choices.
type choice struct {
	index     int
	reader    *turn.Reader
	begun     bool // the role has been sent
	finished  bool // the finish reason has been sent
	outOfRoom bool // for another turn

	hasReasoning, hasContent bool // some text has been written

	// Of a whole object: the texts as they stand between the quotes of JSON.
	reasoning []byte
	content   []byte
	logprobs  []byte // entries, with a comma behind each
	calls     []calledTool
	tokens    []harmony.Token
}

type calledTool struct {
	*turn.CalledTool
	arguments []byte
}

// NewReply begins the reply to the call.
func (c *Call) NewReply() *Reply {
	r := &Reply{call: c, created: c.scope.Now().Unix(), cached: engine.Unknown, choices: make([]choice, c.Engine().N), turns: turns{current: c.turn}}
	for i := range r.choices {
		choice := &r.choices[i]
		choice.index = i
		choice.reader = c.turn.NewReader(func(e turn.Event) { r.event(choice, e) })
	}
	return r
}

// Fault is what went wrong without an error for the client, such as that
// reasoning could not be kept; nil if nothing did. It is for the log.
func (r *Reply) Fault() error {
	fault := r.turns.current.Fault()
	for i := range r.choices {
		fault = errors.Join(fault, r.choices[i].reader.Fault())
	}
	return fault
}

// Push takes news from the engine and appends to dst what the client gets of
// it: whole server-sent events, or nothing if the client wants one object. An
// error ends the reply; before the reply's headers are sent it can be answered
// with its own status, after them with Fail.
func (r *Reply) Push(dst []byte, chunk *engine.Chunk) ([]byte, *apierror.Error) {
	if r.ended {
		return dst, nil
	}
	if err := chunk.Refusal(len(r.choices)); err != nil {
		return dst, err
	}
	if chunk.Usage != nil && chunk.Usage.CachedTokens != engine.Unknown {
		r.cached = chunk.Usage.CachedTokens
	}
	if chunk.Fingerprint != "" && chunk.Fingerprint != r.version {
		r.version, r.head = chunk.Fingerprint, nil
	}
	if len(chunk.Tokens) == 0 && chunk.Finish == engine.FinishNone {
		return dst, nil
	}
	r.dst = dst
	c := &r.choices[chunk.Index]
	r.begin(c)
	taken, err := c.reader.Push(chunk)
	if err == nil && len(c.logprobs) > maxLogprobs {
		err = apierror.New(http.StatusBadRequest, "logprobs_too_large", "logprobs",
			"The log probabilities of the reply are larger than %d MiB. Ask for a stream, or for less with max_tokens or top_logprobs.", maxLogprobs>>20)
	}
	if err != nil {
		r.closeDelta(nil)
	} else {
		r.settle(c, chunk.Tokens[:taken])
	}
	dst, r.dst = r.dst, nil
	return dst, err
}

// settle ends what Push has begun to write for a choice: the open delta, and
// the choice itself if it has finished.
func (r *Reply) settle(c *choice, tokens []harmony.Token) {
	finishes := c.reader.Finish() != turn.FinishNone && !c.finished
	c.finished = c.finished || finishes
	switch {
	case !r.call.options.stream:
		if r.call.options.tokenIDs {
			c.tokens = append(c.tokens, tokens...)
		}
	case finishes && r.goesOn(c):
		r.closeDelta(nil)
	case finishes:
		r.closeDelta(nil)
		r.writeFinish(c, tokens)
	default:
		if r.call.options.tokenIDs && len(tokens) > 0 {
			r.openAny(c)
		}
		r.closeDelta(tokens)
	}
}

// Done tells that nothing that the engine may still send can change the reply:
// the request to it can be dropped, and End called.
func (r *Reply) Done() bool {
	early := false
	for i := range r.choices {
		if !r.choices[i].finished {
			return false
		}
		early = early || r.choices[i].reader.Early()
	}
	return early
}

// End appends the rest of the reply, after the engine's stream has ended well
// or the reply is Done: the last events of a stream, or the whole object.
func (r *Reply) End(dst []byte) []byte {
	if r.ended {
		return dst
	}
	r.dst = dst
	for i := range r.choices {
		c := &r.choices[i]
		r.begin(c)
		err := c.reader.Close()
		if err != nil {
			r.closeDelta(nil)
			return r.Fail(r.dst, err)
		}
		r.settle(c, nil)
	}
	r.ended = true
	if r.call.options.stream {
		r.writeStreamEnd()
	} else {
		r.writeObject()
	}
	dst, r.dst = r.dst, nil
	return dst
}

// Fail ends the reply with an error after its headers have been sent: an error
// event and the end of the stream. Of a whole object nothing has been sent
// yet; it is replaced by the error.
func (r *Reply) Fail(dst []byte, err *apierror.Error) []byte {
	if r.ended {
		return dst
	}
	r.ended = true
	if !r.call.options.stream {
		return append(dst, err.JSON()...)
	}
	dst = append(dst, "data: "...)
	dst = append(dst, err.JSON()...)
	return append(dst, "\n\ndata: [DONE]\n\n"...)
}

// Summary is what the reply has come to so far.
func (r *Reply) Summary() turn.Summary {
	s := r.turns.past
	s.Repairs = maps.Clone(s.Repairs)
	s.Prompt, s.Cached, s.Finish = r.promptTokens(), r.cached, r.choices[0].reader.Finish()
	for i := range r.choices {
		r.choices[i].reader.AddTo(&s)
	}
	return s
}

// separator stands between two messages of the model that share a field.
const separator = "\n\n"

// event writes one event of a choice.
func (r *Reply) event(c *choice, e turn.Event) {
	if r.note(e) {
		return
	}
	switch e.Kind {
	case turn.Reasoning:
		if !r.call.options.hideReasoning {
			r.text(c, e, deltaReasoning, &c.hasReasoning, &c.reasoning)
		}
	case turn.Call:
		switch e.Step {
		case turn.Start:
			r.startCall(c, e.Call)
		case turn.Delta:
			r.arguments(c, e)
		}
	default:
		r.text(c, e, deltaContent, &c.hasContent, &c.content)
	}
}

// text writes text to a field of the choice; has says whether the field has
// some already.
func (r *Reply) text(c *choice, e turn.Event, kind deltaKind, has *bool, whole *[]byte) {
	text := e.Text
	switch e.Step {
	case turn.Start:
		if !*has {
			return
		}
		text = []byte(separator)
	case turn.End:
		return
	}
	*has = true
	if !r.call.options.stream {
		*whole = jsontext.AppendEscaped(*whole, text)
		c.logprobs = appendEntries(c.logprobs, e.Logprobs)
		return
	}
	r.openDelta(c, kind, nil)
	r.dst = jsontext.AppendEscaped(r.dst, text)
	r.logprobs = appendEntries(r.logprobs, e.Logprobs)
}

func (r *Reply) startCall(c *choice, call *turn.CalledTool) {
	if !r.call.options.stream {
		c.calls = append(c.calls, calledTool{CalledTool: call})
		return
	}
	r.openDelta(c, deltaCall, call)
}

func (r *Reply) arguments(c *choice, e turn.Event) {
	if !r.call.options.stream {
		call := &c.calls[len(c.calls)-1]
		call.arguments = jsontext.AppendEscaped(call.arguments, e.Text)
		return
	}
	r.openDelta(c, deltaArguments, e.Call)
	r.dst = jsontext.AppendEscaped(r.dst, e.Text)
}
